package fakeaws

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/keypost/keypost/test/fakecloud"
)

// What a role's permissions may hold (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html).
const (
	inlineLimit   = 10240 // characters of all inline policies together, without white space
	attachedLimit = 20
)

func putRolePolicy(q *request) (any, error) {
	return changeRole(q, func(r *Role) error {
		text := q.in.text["PolicyDocument"]
		d, err := parseDocument(text)
		if err != nil {
			return err
		}
		if err := d.checkPermissions(); err != nil {
			return err
		}
		r.Inline = fakecloud.With(r.Inline, q.in.text["PolicyName"], text)
		total := 0
		for _, document := range r.Inline {
			total += countWithoutSpace(document)
		}
		if total > inlineLimit {
			return conflict("LimitExceeded", "Maximum policy size of %d bytes exceeded for role %s", inlineLimit, r.Name)
		}
		return nil
	})
}

func countWithoutSpace(s string) int {
	return utf8.RuneCountInString(s) - len(slices.DeleteFunc([]rune(s), func(r rune) bool { return !unicode.IsSpace(r) }))
}

func getRolePolicy(q *request) (any, error) {
	r, err := q.role()
	if err != nil {
		return nil, err
	}
	name := q.in.text["PolicyName"]
	document, ok := r.Inline[name]
	if !ok {
		return nil, noRolePolicy(name)
	}
	return struct{ RoleName, PolicyName, PolicyDocument string }{r.Name, name, escape(document)}, nil
}

func noRolePolicy(name string) error {
	return noSuchEntity("The role policy with name %s cannot be found.", name)
}

func listRolePolicies(q *request) (any, error) {
	r, err := q.role()
	if err != nil {
		return nil, err
	}
	part, end, err := page(q, slices.Sorted(maps.Keys(r.Inline)), func(name string) string { return name })
	if err != nil {
		return nil, err
	}
	return struct {
		PolicyNames members[string]
		pageEnd
	}{members[string]{part}, end}, nil
}

func deleteRolePolicy(q *request) (any, error) {
	return changeRole(q, func(r *Role) error {
		name := q.in.text["PolicyName"]
		if _, ok := r.Inline[name]; !ok {
			return noRolePolicy(name)
		}
		r.Inline = fakecloud.Without(r.Inline, name)
		return nil
	})
}

func attachRolePolicy(q *request) (any, error) {
	return changeRole(q, func(r *Role) error {
		arn := q.in.text["PolicyArn"]
		if err := q.checkPolicyARN(arn, "Policy"); err != nil {
			return err
		}
		if slices.Contains(r.Attached, arn) {
			return nil
		}
		if len(r.Attached) == attachedLimit {
			return limitExceeded("PoliciesPerRole", attachedLimit)
		}
		r.Attached = append(r.Attached, arn)
		return nil
	})
}

func detachRolePolicy(q *request) (any, error) {
	return changeRole(q, func(r *Role) error {
		arn := q.in.text["PolicyArn"]
		if !slices.Contains(r.Attached, arn) {
			return noSuchEntity("Policy %s was not found.", arn)
		}
		r.Attached = slices.DeleteFunc(r.Attached, func(a string) bool { return a == arn })
		return nil
	})
}

func listAttachedRolePolicies(q *request) (any, error) {
	r, err := q.role()
	if err != nil {
		return nil, err
	}
	type attached struct{ PolicyName, PolicyArn string }
	var found []attached
	for _, arn := range slices.Sorted(slices.Values(r.Attached)) {
		_, full, _ := strings.Cut(arn, ":policy")
		found = append(found, attached{full[strings.LastIndex(full, "/")+1:], arn})
	}
	part, end, err := page(q, found, func(a attached) string { return a.PolicyArn })
	if err != nil {
		return nil, err
	}
	return struct {
		AttachedPolicies members[attached]
		pageEnd
	}{members[attached]{part}, end}, nil
}
