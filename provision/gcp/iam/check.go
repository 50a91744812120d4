package iam

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/keypost/keypost/provision/gcp/federation"
)

// subjectLimit is how many bytes google.subject may have (google.iam.v1, WorkloadIdentityPoolProvider). A longer one is refused only when a
// token is exchanged.
const subjectLimit = 127

// CheckName returns an error if an installation's name cannot be the beginning of its service accounts' IDs, or, with pool, the name of
// its pool and provider: one sentence, where [Accounts.Check] has one for each thing that would bear it.
func CheckName(name string, pool, accounts bool) error {
	switch {
	case pool && federation.CheckPoolID("", name) != nil:
		return fmt.Errorf("%q must have 4 to 32 lower-case letters, digits or hyphens, and not begin with gcp-: the workload identity pool bears this name", name)
	case accounts && !regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`).MatchString(name):
		return fmt.Errorf("%q must have at most 32 lower-case letters, digits or hyphens, and begin with a letter: the IDs of the service accounts begin with it", name)
	}
	return nil
}

// Check returns an error if what is wanted breaks a rule that Google enforces late, or two requests would share one account and what both
// are permitted. It makes no call, and joins the errors, each of which is one sentence.
func (a Accounts) Check() error {
	var errs []error
	asked, roles := map[string]string{}, map[string]string{} // for what is each display name, by which ccoctl's accounts are found; each custom role
	for _, w := range a.List {
		display := a.DisplayName(w)
		if other, taken := asked[display]; taken {
			errs = append(errs, fmt.Errorf("%s and %s come to the same service account %s: drop one of them", other, w.For, display))
		}
		asked[display] = w.For
		if len(w.Permissions) > 0 {
			if other, taken := roles[w.RoleID("")]; taken {
				errs = append(errs, fmt.Errorf("%s and %s come to the same custom role %s: drop one of them", other, w.For, strings.TrimPrefix(w.RoleID(""), "_")))
			}
			roles[w.RoleID("")] = w.For
		}
		for _, s := range w.Subjects {
			if len(s) > subjectLimit {
				errs = append(errs, fmt.Errorf("service account %s (%s): the subject %s has %d bytes, and Google refuses the tokens of those with "+
					"more than %d: use shorter names", display, w.For, s, len(s), subjectLimit))
			}
		}
	}
	return errors.Join(errs...)
}
