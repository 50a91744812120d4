package iampolicy

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// rolePolicyLength is how many characters all inline policies of a role may have together. No quota raises it.
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
const rolePolicyLength = 10240

// CheckRolePolicy returns an error if IAM would refuse text as an inline policy of a role. Every resource must be in partition,
// unless that is empty.
func CheckRolePolicy(text, partition string) error {
	d, err := Parse(text)
	if err != nil {
		return err
	}
	text, err = d.Fit(rolePolicyLength)
	if err != nil {
		return fmt.Errorf("the permissions policy %w, and no quota raises that: put a part into a managed policy", err)
	}
	for i, c := range text {
		if c > 0xFF || c < 0x20 && !strings.ContainsRune("\t\n\r", c) {
			return fmt.Errorf("the permissions policy holds %q at byte %d: AWS takes Latin-1 only", string(c), i)
		}
	}
	first := map[string]int{} // by Sid
	for i, s := range d.statements {
		if err := s.checkPermission(partition); err != nil {
			return fmt.Errorf("statement %d of the permissions policy: %w", i+1, err)
		}
		if n := first[s.sid]; n > 0 && s.sid != "" {
			return fmt.Errorf("statements %d and %d of the permissions policy have the same Sid, %q", n, i+1, s.sid)
		}
		first[s.sid] = i + 1
	}
	return nil
}

var (
	sidPattern    = regexp.MustCompile(`^[0-9A-Za-z]*$`)
	actionPattern = regexp.MustCompile(`^(\*|[\w-]+:[\w*?]+)$`)

	// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html
	operatorPattern = regexp.MustCompile(`^(ForAllValues:|ForAnyValue:)?(String(Not)?(Equals(IgnoreCase)?|Like)|` +
		`Arn(Not)?(Equals|Like)|(Not)?IpAddress|` +
		`Bool|Null|BinaryEquals|(Numeric|Date)((Not)?Equals|(Less|Greater)Than(Equals)?))(IfExists)?$`)
)

// checkPermission returns an error if IAM would refuse a statement in a permissions policy.
func (s statement) checkPermission(partition string) error {
	actions := slices.Concat(s.Elements["Action"], s.Elements["NotAction"])
	resources := slices.Concat(s.Elements["Resource"], s.Elements["NotResource"])
	switch {
	case !sidPattern.MatchString(s.sid):
		return fmt.Errorf("its Sid %q may only have letters and digits", s.sid)
	case len(s.Principal) > 0:
		return errors.New("it names a principal, which only a trust policy does")
	case len(actions) == 0:
		return errors.New("it names no action")
	case len(resources) == 0:
		return errors.New("it names no resource")
	}
	for _, a := range actions {
		if !actionPattern.MatchString(a) {
			return fmt.Errorf("the action %q is not SERVICE:NAME", a)
		}
	}
	for _, r := range resources {
		if err := checkResource(r, partition); err != nil {
			return err
		}
	}
	return s.checkConditions()
}

func (s statement) checkConditions() error {
	for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
		if !operatorPattern.MatchString(operator) {
			return fmt.Errorf("AWS knows no condition operator %q", operator)
		}
		for _, key := range slices.Sorted(maps.Keys(s.Condition[operator])) {
			if !strings.Contains(key, ":") {
				return fmt.Errorf("the condition key %q does not begin with a service and a colon, as aws:SourceIp does", key)
			}
		}
	}
	return nil
}

func checkResource(resource, partition string) error {
	parts := strings.SplitN(resource, ":", 6)
	switch {
	case resource == "*":
		return nil
	case len(parts) < 6 || parts[0] != "arn" || parts[1] == "" || parts[2] == "":
		return fmt.Errorf("the resource %q is neither an ARN (arn:PARTITION:SERVICE:REGION:ACCOUNT:RESOURCE) nor *", resource)
	case partition != "" && !matches(parts[1], partition):
		return fmt.Errorf("the resource %q is in the partition %s, and the account is in %s", resource, parts[1], partition)
	case partition == "" && !strings.HasPrefix(parts[1], "aws") && !strings.ContainsAny(parts[1], "*?"):
		return fmt.Errorf("the resource %q is in the partition %s, which AWS does not have", resource, parts[1])
	}
	return nil
}
