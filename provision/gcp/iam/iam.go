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

import "github.com/keypost/keypost/provision/gcp/federation"

// Account is a service account as it should be, with its roles and those who may impersonate it.
type Account struct {
	Request     string   // name of the CredentialsRequest; ccoctl makes from it the names of accounts and roles; empty without one
	ID          string   // before the @; empty for one made of the owner's name and Request, the same in every run
	DisplayName string   // empty for ccoctl's, OWNER-REQUEST, or the ID
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
	All   bool // List is all that the owner should have: what else there is, is in Plan.Extra
	Adopt bool // take over accounts and roles that are somebody else's

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
	Pool        string   // empty for Name
	Requests    []string // names of CredentialsRequests, by which also those accounts of ccoctl's are found that nobody may impersonate
	CustomRoles bool     // also the custom roles that no other account has; other clusters may need them later
}
