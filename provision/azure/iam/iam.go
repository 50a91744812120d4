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
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/install"
)

// Parallel is how many things are changed at once. What Azure allows of federated credentials is far
// less, and kept by itself.
const Parallel = 16

// The kinds of things, with the versions of their APIs.
const (
	groups      arm.Kind = "Microsoft.Resources/subscriptions/resourceGroups/@2021-04-01"
	contents    arm.Kind = "Microsoft.Resources/subscriptions/resourceGroups/resources/@2021-04-01"
	tagsOf      arm.Kind = "Microsoft.Resources/tags/@2021-04-01"
	identities  arm.Kind = "Microsoft.ManagedIdentity/userAssignedIdentities/@2024-11-30"
	credentials arm.Kind = "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/@2024-11-30"
	roles       arm.Kind = "Microsoft.Authorization/roleDefinitions/@2022-04-01"
	assignments arm.Kind = "Microsoft.Authorization/roleAssignments/@2022-04-01"
)

// Options are what the verbs have in common. Fields that a verb has no use for are ignored.
type Options struct {
	install.Options // Adopt is also for what is not tagged as ours, identities that trust another issuer, and an issuer that is unknown to the store
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

// Suffixed returns a name that Azure takes, with a hash in its end.
func Suffixed(name, hashed string) string {
	sum := sha256.Sum256([]byte(hashed))
	clean := strings.ReplaceAll(name, ".", "-")
	return clean[:min(len(clean), 111)] + "-" + hex.EncodeToString(sum[:4])
}

// guid returns a name for a role or an assignment that is the same in every run: made of what it stands for, in lower case, since
// Azure gives IDs back in varying letter case. So a creation whose answer was lost is found again.
func guid(parts ...string) string {
	space := uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://keypost.dev/azure"))
	return uuid.NewSHA1(space, []byte(Folded(strings.Join(parts, "\n")))).String()
}

// last returns the last part of an ID, in lower case: for roles and assignments the GUID, which is unique in the tenant.
func last(id string) string {
	return Folded(id[strings.LastIndexByte(id, '/')+1:])
}

// location returns a region's name in the form in which regions are compared: some answers have "Central US" for "centralus".
func location(s string) string { return Folded(strings.ReplaceAll(s, " ", "")) }

// learn remembers an identity.
func (r *Run) learn(s identityState) { r.seen.Store(Folded(s.Name), s) }

// known returns an identity as Azure last showed it; nil if it did not.
func (r *Run) known(name string) *identityState {
	v, _ := r.seen.Load(Folded(name))
	if s, is := v.(identityState); is {
		return &s
	}
	return nil
}

// Known returns the client and the tenant ID of an identity as Azure last showed it; empty if it did not.
func (r *Run) Known(name string) (client, tenant string) {
	if s := r.known(name); s != nil {
		return s.Properties.ClientID, s.Properties.TenantID
	}
	return "", ""
}

// decided makes a decision of steps, without a word about them.
func decided[S any](steps func(S) ([]cloud.Step, error)) func(S) (cloud.Decision, error) {
	return func(have S) (d cloud.Decision, err error) {
		d.Steps, err = steps(have)
		return d, err
	}
}

// each calls f for every element of a list at once, as far as calls may be under way, and joins the errors.
func each[T, R any](list []T, f func(T) (R, error)) ([]R, error) {
	return cloud.Each(arm.Parallel, list, f)
}
