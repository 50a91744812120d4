package awsiam

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Check returns an error if what is wanted would trust nobody, or gives two roles one name. What else is wrong IAM says. Check makes no
// call, and joins the errors, each of which is one sentence. A zero Provider and no roles are not checked.
func Check(p Provider, t Trust, roles []Role) error {
	var errs []error
	if p.URL != "" {
		errs = append(errs, checkAudiences(p.ClientIDs))
	}
	if len(roles) > 0 && t.Issuer != "" {
		errs = append(errs, checkAudiences(t.Audiences))
	}
	for _, r := range roles {
		if len(r.Subjects) == 0 {
			errs = append(errs, fmt.Errorf("role %s (%s): no service account is named that may assume it", r.Name, asker(r)))
		}
	}
	return errors.Join(append(errs, collisions(roles)...)...)
}

func checkAudiences(ids []string) error {
	if len(ids) == 0 || slices.Contains(ids, "") {
		return fmt.Errorf("the client IDs are %q: give one or more, and none that is empty", ids)
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
