package iam

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/provision/gcp/federation"
)

// Google's limits (google.iam.v1: WorkloadIdentityPoolProvider and its Oidc; https://cloud.google.com/iam/quotas).
const (
	subjectLimit = 127 // bytes, of google.subject; a longer one is refused only when a token is exchanged
)

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

// Check returns an error if what is wanted breaks a rule that Google enforces late, or for all clusters of a project: for names and subjects.
// It makes no call, and joins the errors, each of which is one sentence.
func (a Accounts) Check() error {
	var errs []error
	ids, displays, roles := map[string]Account{}, map[string]Account{}, map[string]Account{}
	for _, w := range a.List {
		for _, err := range w.check(a) {
			if err != nil {
				errs = append(errs, fmt.Errorf("service account %s%s: %w", a.DisplayName(w), w.reason(), err))
			}
		}
		err := collision(ids, a.ID(w), "account", w)
		if err == nil { // by its display name an account of ccoctl's is found: both would have it
			err = collision(displays, a.DisplayName(w), "display name", w)
		}
		errs = append(errs, err)
		if len(w.Permissions) > 0 {
			errs = append(errs, collision(roles, w.RoleID(""), "custom role", w))
		}
	}
	return errors.Join(errs...)
}

// collision returns an error if a name is taken: ccoctl's are cut.
func collision(taken map[string]Account, name, what string, w Account) error {
	if other, is := taken[name]; is {
		return fmt.Errorf("%s and %s come to the same %s %s: drop one of them", other.asker(), w.asker(), what, strings.TrimPrefix(name, "_"))
	}
	taken[name] = w
	return nil
}

func (w Account) asker() string {
	if w.For != "" {
		return w.For
	}
	return "service account " + w.requested()
}

// reason returns what asks for an account, to append to its name.
func (w Account) reason() string {
	if w.For == "" {
		return ""
	}
	return " (" + w.For + ")"
}

func (w Account) check(a Accounts) []error {
	var errs []error
	if id := a.ID(w); !accountForm.MatchString(id) {
		errs = append(errs, fmt.Errorf("its ID %q must have 6 to 30 lower-case letters, digits or hyphens, begin with a letter and not end in a hyphen", id))
	}
	if len(w.Subjects) == 0 {
		errs = append(errs, errors.New("no service account of the cluster is named that may use it"))
	}
	for _, s := range w.Subjects {
		errs = append(errs, checkSubject(s))
	}
	return errs
}

func checkSubject(s string) error {
	account, ok := strings.CutPrefix(s, "system:serviceaccount:")
	namespace, name, _ := strings.Cut(account, ":")
	switch {
	case !ok || !dnsname.IsLabel(namespace) || !dnsname.IsSubdomain(name):
		return fmt.Errorf("%q is not a service account's subject (system:serviceaccount:NAMESPACE:NAME)", s)
	case len(s) > subjectLimit:
		return fmt.Errorf("the subject %s has %d bytes, and Google refuses the tokens of those with more than %d: use shorter names", s, len(s), subjectLimit)
	}
	return nil
}
