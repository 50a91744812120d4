// Package iam registers an issuer with Google Cloud: a workload identity pool with a provider, the service accounts whose
// part workloads play, and their roles. A Plan method of [Client] reads the project and returns a plan, which changes nothing
// until it is applied.
//
// The package promises:
//   - Nothing without the text that ccoctl and keypost put into descriptions is changed, unless it is to be adopted.
//   - Of a policy, only members that stand for our own accounts, or for subjects of our own pool, change; conditions stay.
//   - Without Prune nobody loses anything: a plan only adds, and names what nobody asked for.
//   - The project's policy is written once by a plan, by its etag, in version 3.
//   - Every call that writes is shown in the plan, and reported when it is made.
//   - A run may be stopped anywhere and started again; after one that stopped as it brought a provider back, it may take Adopt.
package iam

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/rest"
)

// Account is a service account as it should be, with its roles and those who may impersonate it.
type Account struct {
	Name        string   // the CredentialsRequest's, from which the names of account and role are made; for a workload its ID
	For         string   // what asks for it, for messages: "CredentialsRequest NAMESPACE/NAME (FILE)"
	Roles       []string // predefined ones, in the project: "roles/…"
	Permissions []string // of a custom role of the project, shared by all its clusters; empty: no such role
	Subjects    []string // system:serviceaccount:NAMESPACE:NAME, which may impersonate it
}

// Accounts are the service accounts of one owner.
type Accounts struct {
	Owner federation.Owner
	Pool  string // whose subjects may impersonate them
	List  []Account
	Named []string // emails of others that are asked for, and that nobody makes here
	All   bool     // List is all that the owner should have: what else there is, is in Plan.Extra
	Adopt bool     // take over accounts and roles that are somebody else's

	// Prune takes away what nobody asked for: with All, the other accounts; the users of the accounts in List; their roles, unless keypost
	// itself is the owner; the permissions of their custom roles. Without it a plan only adds, and all of that is in Plan.Extra.
	Prune bool
}

// Wanted is what a project should have. Parts that are nil are neither read nor planned.
type Wanted struct {
	Pool     *federation.Pool
	Provider *federation.Provider
	Accounts *Accounts
}

// Deletion says what to delete of what keypost or ccoctl made for the installation of a name: its accounts with their
// bindings, and its pool, with which Google deletes the providers in it.
type Deletion struct {
	Name        string
	Pool        string
	CustomRoles bool // also the custom roles that no other account has; other clusters may need them later
}

// Parallel is how many changes are made at once. IAM takes 600 writes a minute of a whole project, and an installation has about 30
// (https://cloud.google.com/iam/quotas).
const Parallel = 8

// Client calls IAM and Resource Manager for one project. Its methods may be called concurrently.
type Client struct{ *federation.Client }

// Open returns a Client, with the credentials that ccoctl would take unless some are given: see [federation.Open].
func Open(ctx context.Context, a rest.Access) (*Client, error) {
	c, err := federation.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}

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

// The bodies of calls, for a dry run: what would be sent, whatever is there already.

// CreateJSON returns the body of the call that makes the i-th account (projects.serviceAccounts.create).
func (a Accounts) CreateJSON(i int) []byte { return rest.Readable(a.body(a.List[i])) }

// RoleJSON returns the body of the call that makes the custom role of the i-th account in the project with an ID
// (projects.roles.create); nil if it needs none.
func (a Accounts) RoleJSON(i int, projectID string) []byte {
	w := a.List[i]
	if len(w.Permissions) == 0 {
		return nil
	}
	return rest.Readable(a.role(projectID, w).body(w.RoleID(projectID)))
}
