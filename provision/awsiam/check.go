package awsiam

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/keypost/keypost/provision/awsiam/api"
)

// Check returns an error if what is wanted would trust nobody, or too many, or has a mistake that people make: IAM would refuse that
// only after the wait for a new issuer. The rest of its rules it applies itself. Check makes no call, and joins the errors, each of
// which is one sentence. A zero Provider and no roles are not checked.
func Check(p Provider, t Trust, roles []Role) error {
	var errs []error
	if p.URL != "" {
		errs = append(errs, checkAudiences(p.ClientIDs), checkThumbprints(p.Thumbprints), checkTags(p.Owner, p.Tags))
	}
	if len(roles) > 0 && t.Issuer != "" {
		errs = append(errs, checkAudiences(t.Audiences))
	}
	for _, r := range roles {
		errs = append(errs, r.check()...)
	}
	return errors.Join(append(errs, collisions(roles)...)...)
}

func checkAudiences(ids []string) error {
	if len(ids) == 0 || slices.Contains(ids, "") {
		return fmt.Errorf("the client IDs are %q: give one or more, and none that is empty", ids)
	}
	return nil
}

func checkThumbprints(list []string) error {
	for _, t := range list {
		if !regexp.MustCompile(`^[0-9A-Fa-f]{40}$`).MatchString(t) {
			return fmt.Errorf("thumbprint %q is not 40 hexadecimal digits (the SHA-1 of a certificate, without colons)", t)
		}
	}
	return nil
}

// checkTags refuses keys that are taken. IAM ignores their case.
func checkTags(o Owner, tags map[string]string) error {
	for k := range tags {
		if strings.HasPrefix(strings.ToLower(k), "aws:") {
			return fmt.Errorf("the tag %s begins with aws:, which AWS keeps for itself", k)
		}
		if slices.ContainsFunc(o.tags(nil), func(own types.Tag) bool { return strings.EqualFold(*own.Key, k) }) {
			return fmt.Errorf("the tag %s is set twice: keypost sets it itself", k)
		}
	}
	return nil
}

func (r Role) check() []error {
	errs := []error{checkRoleName(r.Name), checkTags(r.Owner, r.Tags)}
	if len(r.Subjects) == 0 {
		errs = append(errs, errors.New("no service account is named that may assume it"))
	}
	for _, arn := range slices.Concat(r.ManagedPolicies, []string{r.Boundary}) {
		errs = append(errs, checkPolicyARN(arn))
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("role %s (%s): %w", r.Name, asker(r), err)
		}
	}
	return errs
}

// roleNameLimit is IAM's, in characters.
const roleNameLimit = 64

func checkRoleName(name string) error {
	if len(name) > roleNameLimit || !regexp.MustCompile(`^[\w+=,.@-]+$`).MatchString(name) {
		return fmt.Errorf("the name must have 1 to %d letters, digits or characters of +=,.@_-", roleNameLimit)
	}
	return nil
}

func checkPolicyARN(arn string) error {
	if _, resource, ok := api.SplitARN(arn); arn != "" && (!ok || !strings.HasPrefix(resource, "policy/")) {
		return fmt.Errorf("%q is not the ARN of a managed policy (arn:aws:iam::ACCOUNT:policy/NAME)", arn)
	}
	return nil
}

// collisions returns an error for each two roles of one name: ccoctl's names are cut to 64 bytes, and IAM ignores their case.
func collisions(roles []Role) []error {
	first := map[string]Role{}
	var errs []error
	for _, r := range roles {
		k := strings.ToLower(r.Name)
		if other, taken := first[k]; taken {
			errs = append(errs, fmt.Errorf("%s and %s come to the same role name %s: choose a shorter name, or drop one of them",
				asker(other), asker(r), r.Name))
			continue
		}
		first[k] = r
	}
	return errs
}

func asker(r Role) string { return cmp.Or(r.For, "role "+r.Name) }
