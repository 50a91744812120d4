package fakeaws

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/keypost/keypost/test/fakecloud"
)

// What an account and a role may hold (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html).
const (
	roleLimit       = 1000
	trustLimit      = 2048 // characters, unless the account's quota is raised
	defaultDuration = 3600 // seconds
)

type boundaryXML struct {
	PermissionsBoundaryType string
	PermissionsBoundaryArn  string
}

type roleXML struct {
	Path                     string
	RoleName                 string
	RoleId                   string
	Arn                      string
	CreateDate               string
	AssumeRolePolicyDocument string
	Description              string        `xml:",omitempty"`
	MaxSessionDuration       int           `xml:",omitempty"`
	PermissionsBoundary      *boundaryXML  `xml:",omitempty"`
	Tags                     *members[tag] `xml:",omitempty"`
	RoleLastUsed             *struct{}     `xml:",omitempty"`
}

type oneRole struct{ Role roleXML }

// briefly is a role as ListRoles gives it: no tags, no boundary.
func (r Role) briefly() roleXML {
	return roleXML{Path: r.Path, RoleName: r.Name, RoleId: r.ID, Arn: r.ARN, CreateDate: timestamp(r.Created),
		AssumeRolePolicyDocument: escape(r.Trust), Description: r.Description, MaxSessionDuration: r.MaxSession}
}

// wholly is a role as GetRole gives it.
func (r Role) wholly() roleXML {
	x := r.briefly()
	all := tagList(r.Tags)
	x.Tags, x.RoleLastUsed = &all, &struct{}{}
	if r.Boundary != "" {
		x.PermissionsBoundary = &boundaryXML{"Policy", r.Boundary}
	}
	return x
}

// escape encodes a policy as RFC 3986 does, which is how AWS returns one.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

func createRole(q *request) (any, error) {
	r, err := newRole(q)
	if err != nil {
		return nil, err
	}
	if _, taken := q.world.roles[strings.ToLower(r.Name)]; taken {
		return nil, conflict("EntityAlreadyExists", "Role with name %s already exists.", r.Name)
	}
	if len(q.world.roles) == roleLimit {
		return nil, limitExceeded("RolesPerAccount", roleLimit)
	}
	q.world.setRole(r)
	return oneRole{r.wholly()}, nil
}

func newRole(q *request) (Role, error) {
	in := q.in
	path := "/"
	if in.has("Path") {
		path = in.text["Path"]
	}
	trust, err := q.checkTrust(in.text["AssumeRolePolicyDocument"])
	if err != nil {
		return Role{}, err
	}
	given, err := addTags(nil, in.tags["Tags"], "TagsPerRole")
	if err != nil {
		return Role{}, err
	}
	boundary := in.text["PermissionsBoundary"]
	if in.has("PermissionsBoundary") {
		if err := q.checkPolicyARN(boundary, "Scope ARN:"); err != nil {
			return Role{}, err
		}
	}
	return Role{
		ARN: q.arn("iam", "role"+path+in.text["RoleName"]), ID: fmt.Sprintf("AROAFAKEAWS%010d", q.serial),
		Name: in.text["RoleName"], Path: path, Description: in.text["Description"], Trust: trust,
		MaxSession: in.number("MaxSessionDuration", defaultDuration), Boundary: boundary, Tags: given, Created: q.now,
	}, nil
}

// checkTrust gives a trust policy back as AWS keeps it.
func (q *request) checkTrust(s string) (string, error) {
	d, err := parseDocument(s)
	if err != nil {
		return "", err
	}
	if err := d.checkTrust(); err != nil {
		return "", err
	}
	if utf8.RuneCountInString(s) > q.TrustLimit {
		return "", limitExceeded("ACLSizePerRole", q.TrustLimit)
	}
	return d.normalized()
}

// checkPolicyARN finds out whether an ARN is that of a managed policy that there is. what is how AWS's sentence calls it.
func (q *request) checkPolicyARN(arn, what string) error {
	m := regexp.MustCompile(`^arn:([a-z-]+):iam::(aws|\d{12}):policy/[\w+=,.@/-]+$`).FindStringSubmatch(arn)
	if m == nil {
		return invalidInput("ARN %s is not valid.", arn)
	}
	missing := noSuchEntity("%s %s does not exist or is not attachable.", what, arn)
	if m[1] != q.Partition {
		return missing
	}
	if m[2] == "aws" {
		return nil
	}
	if m[2] != account {
		return missing
	}
	return nil
}

func (q *request) role() (Role, error) { return q.world.role(q.in.text["RoleName"]) }

// changeRole is what all changes of an existing role have in common.
func changeRole(q *request, change func(*Role) error) (any, error) {
	r, err := q.role()
	if err != nil {
		return nil, err
	}
	if err := change(&r); err != nil {
		return nil, err
	}
	q.world.setRole(r)
	return nil, nil
}

func getRole(q *request) (any, error) {
	r, err := q.role()
	if err != nil {
		return nil, err
	}
	return oneRole{r.wholly()}, nil
}

func listRoles(q *request) (any, error) {
	var found []Role
	for _, k := range slices.Sorted(maps.Keys(q.world.roles)) {
		found = append(found, q.world.roles[k])
	}
	part, end, err := page(q, found, func(r Role) string { return strings.ToLower(r.Name) })
	if err != nil {
		return nil, err
	}
	out := struct {
		Roles members[roleXML]
		pageEnd
	}{pageEnd: end}
	for _, r := range part {
		out.Roles.Items = append(out.Roles.Items, r.briefly())
	}
	return out, nil
}

func deleteRole(q *request) (any, error) {
	r, err := q.role()
	switch {
	case err != nil:
		return nil, err
	case len(r.Attached) > 0:
		return nil, conflict("DeleteConflict", "Cannot delete entity, must detach all policies first.")
	case len(r.Inline) > 0:
		return nil, conflict("DeleteConflict", "Cannot delete entity, must delete policies first.")
	case r.InProfile:
		return nil, conflict("DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
	}
	q.world.roles = fakecloud.Without(q.world.roles, strings.ToLower(r.Name))
	return nil, nil
}

func updateAssumeRolePolicy(q *request) (any, error) {
	return changeRole(q, func(r *Role) (err error) {
		r.Trust, err = q.checkTrust(q.in.text["PolicyDocument"])
		return err
	})
}

func putBoundary(q *request) (any, error) {
	return changeRole(q, func(r *Role) error {
		r.Boundary = q.in.text["PermissionsBoundary"]
		return q.checkPolicyARN(r.Boundary, "Scope ARN:")
	})
}

func deleteBoundary(q *request) (any, error) {
	return changeRole(q, func(r *Role) error {
		if r.Boundary == "" {
			return noSuchEntity("Role %s does not have a permission boundary attached.", r.Name)
		}
		r.Boundary = ""
		return nil
	})
}

// addRoleToProfile puts a role into an instance profile, which is not kept: a role in one cannot be deleted
// (https://docs.aws.amazon.com/IAM/latest/APIReference/API_DeleteRole.html).
func addRoleToProfile(q *request) (any, error) {
	return changeRole(q, func(r *Role) error {
		r.InProfile = true
		return nil
	})
}

func tagRole(q *request) (any, error) {
	return changeRole(q, func(r *Role) (err error) {
		r.Tags, err = addTags(r.Tags, q.in.tags["Tags"], "TagsPerRole")
		return err
	})
}

func untagRole(q *request) (any, error) {
	return changeRole(q, func(r *Role) error {
		r.Tags = dropTags(r.Tags, q.in.lists["TagKeys"])
		return nil
	})
}
