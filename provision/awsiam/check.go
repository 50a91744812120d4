package awsiam

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// Check returns an error if what is wanted would trust nobody, or two requests come to one role, or a tag is the owner's. The rules of
// its own IAM applies itself. Check makes no call, and joins the errors, each of which is one sentence. A zero Provider and no roles are
// not checked.
func Check(p Provider, t Trust, roles []Role) error {
	var errs []error
	if p.URL != "" {
		errs = append(errs, checkAudiences(p.ClientIDs), checkTags(p.Owner, p.Tags))
	}
	if len(roles) > 0 && t.Issuer != "" {
		errs = append(errs, checkAudiences(t.Audiences))
	}
	for _, r := range roles {
		errs = append(errs, r.check())
	}
	return errors.Join(append(errs, collisions(roles)...)...)
}

func checkAudiences(ids []string) error {
	if len(ids) == 0 || slices.Contains(ids, "") {
		return fmt.Errorf("the client IDs are %q: give one or more, and none that is empty", ids)
	}
	return nil
}

// checkTags refuses keys that are the owner's. IAM ignores their case.
func checkTags(o Owner, tags map[string]string) error {
	for k := range tags {
		if slices.ContainsFunc(o.tags(nil), func(own types.Tag) bool { return strings.EqualFold(*own.Key, k) }) {
			return fmt.Errorf("the tag %s is set twice: keypost sets it itself", k)
		}
	}
	return nil
}

func (r Role) check() error {
	err := checkTags(r.Owner, r.Tags)
	if len(r.Subjects) == 0 {
		err = errors.New("no service account is named that may assume it")
	}
	if err != nil {
		return fmt.Errorf("role %s (%s): %w", r.Name, asker(r), err)
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
