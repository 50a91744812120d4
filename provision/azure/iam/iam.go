// Package iam makes, moves and deletes what an installation has in Azure: resource groups, managed identities, their federated
// credentials, custom roles and role assignments. A Plan method of [Run] reads what is there and returns a plan, which changes nothing
// until it is applied.
//
// The package promises:
//   - Nothing without the owner's tag is changed, unless it is to be adopted.
//   - An assignment is deleted only if it is in the subscription, binds an identity of ours directly, and goes with its identity or is
//     to be pruned: then it was made by keypost, or is at a scope of ours. Others' stay, and so does what a group of Entra's has.
//   - Whatever is written was read a moment before, since a PUT replaces what is there without a word.
package iam

import (
	"slices"
	"sync"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/install"
)

// Parallel is how many things are changed at once. What Azure allows of federated credentials is far
// less, and kept by itself.
const Parallel = 16

// Options are what the verbs have in common. Fields that a verb has no use for are ignored.
type Options struct {
	install.Options
	arm.Endpoint

	Subscription string // ID of the only subscription in which anything may be changed
	Tenant       string // its tenant's ID; empty for whichever it is
	Region       string // of what is made

	OIDCGroup    string // resource group of the identities
	InstallGroup string // that the installer fills
	DNSGroup     string // of the base domain's zone; empty for none
	NetworkGroup string // of the virtual network, if it has another than the cluster's; empty for none

	Audience string            // of tokens
	Usual    bool              // Audience is a default, and federated credentials that exist may have another
	Tags     map[string]string // for all that is made, beside the owner's
	Adopt    bool              // take over what is not tagged as ours, and identities that trust another issuer; trust one that is unknown to the store
	Prune    bool              // take away what this run does not ask for; without it a run only adds
	Drop     []string          // issuer URLs that an identity for workloads takes no tokens of any more
}

// GroupID returns the ID of a resource group, which is also the scope of assignments.
func (o Options) GroupID(name string) string {
	return "/subscriptions/" + o.Subscription + "/resourceGroups/" + name
}

// Run is one run of a verb.
type Run struct {
	*install.Run
	*arm.Client         // nil until it is set
	O           Options // has those of the installation's Run
	Owner       Owner

	seen sync.Map // identityState by name in lower case, as Azure last showed it
}

// New returns a run for the installation that the options name.
func New(o Options) *Run {
	r := &Run{O: o, Owner: Installation(o.Name)}
	r.Run = install.NewRun(&r.O.Options)
	return r
}

// Identity is a managed identity as it should be, with what hangs on it.
type Identity struct {
	Name        string
	Request     string // what asks for it, for messages
	Actions     []string
	DataActions []string // with Actions, of the custom role under the identity's name; without either there is none
	Roles       []string // names of roles that exist, to be assigned too
	Scopes      []string // IDs of where roles are assigned
	Credentials []Credential
}

// custom reports whether the identity has a role of its own.
func (i Identity) custom() bool { return len(i.Actions)+len(i.DataActions) > 0 }

// Credential is a federated credential: whose tokens the identity takes.
type Credential struct {
	Name, Issuer, Subject, Audience string
}

// Distinct returns a list without what is in it before, whatever its letter case: some requests name an action twice.
func Distinct(list []string) []string {
	var out []string
	for _, s := range list {
		if !contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// contains reports whether a list has s, whatever its letter case.
func contains(list []string, s string) bool {
	return slices.ContainsFunc(list, func(have string) bool { return SameName(have, s) })
}

// minus returns what list has and other does not have, whatever its letter case.
func minus(list, other []string) []string {
	var out []string
	for _, s := range list {
		if !contains(other, s) {
			out = append(out, s)
		}
	}
	return out
}
