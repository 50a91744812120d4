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
	"regexp"
	"strings"

	"github.com/keypost/keypost/provision/gcp/internal/allow"
	"github.com/keypost/keypost/provision/gcp/internal/rest"
)

// Project is a Google Cloud project.
type Project struct {
	ID     string // "my-project"
	Number string // "123456789012"
	Caller string // the email of the credentials' account; empty if they do not say
}

// PoolName returns the full name of a pool: projects/NUMBER/locations/global/workloadIdentityPools/ID.
func (p Project) PoolName(pool string) string {
	return "projects/" + p.Number + "/locations/global/workloadIdentityPools/" + pool
}

// ProviderName returns the full name of a provider: PoolName/providers/ID.
func (p Project) ProviderName(pool, provider string) string {
	return p.PoolName(pool) + "/providers/" + provider
}

// Audience returns what a credential configuration names as its audience: "//iam.googleapis.com/" and the provider's full
// name. The host is the same in every universe.
func (p Project) Audience(pool, provider string) string {
	return "//iam.googleapis.com/" + p.ProviderName(pool, provider)
}

// Principal returns the member of a policy that stands for a subject of a pool
// (https://cloud.google.com/iam/docs/principal-identifiers).
func (p Project) Principal(pool, subject string) string { return p.subjects(pool) + subject }

// subjects is how the members begin that stand for subjects of a pool.
func (p Project) subjects(pool string) string {
	return allow.Subjects(p.PoolName(pool))
}

// Email returns the email of the service account with an ID. A project of the older sort, DOMAIN:NAME, has NAME.DOMAIN there.
func (p Project) Email(accountID string) string {
	place := p.ID
	if domain, name, old := strings.Cut(p.ID, ":"); old {
		place = name + "." + domain
	}
	return accountID + "@" + place + ".iam.gserviceaccount.com"
}

// made is how the descriptions begin of all that ccoctl makes; keypost's begin so too, so that either deletes what the other
// made.
const made = "Created By OpenShift ccoctl"

// descriptionLimit is Google's, in bytes.
const descriptionLimit = 256

// Owner is the installation, or the tool, that a thing belongs to by the end of its description. The zero Owner owns nothing.
type Owner struct{ name, suffix string }

// What comes before an installation's name at the end of descriptions, before the name of the key set whose keys a provider has a copy of
// where that is not the one of the installation's name, and at the end of what is for workloads.
const (
	installationSuffix = "; installation "
	keysMark           = "; keys of "
	workloadSuffix     = "; keypost, for a workload"
)

// markForm matches what an owner has put to the end of a description: the key set, if it names one, and the installation.
var markForm = regexp.MustCompile(`(?:` + keysMark + `([a-z0-9-]{1,63}))?` + installationSuffix + `([a-z0-9-]{1,32})$`)

// markOf returns the names of the key set and the installation at the end of a description; empty where there are none.
func markOf(description string) (keySet, installation string) {
	if m := markForm.FindStringSubmatch(description); m != nil {
		return m[1], m[2]
	}
	return "", ""
}

// unmarked returns a description without its owner's mark, and with nothing in it that reads like one.
func unmarked(description string) string {
	text := strings.TrimSuffix(markForm.ReplaceAllString(description, ""), workloadSuffix)
	return strings.NewReplacer(installationSuffix, ", of ", keysMark, ", keys of ").Replace(text)
}

// OwnedBy returns the owner of what is made for the installation of this name.
func OwnedBy(name string) Owner { return Owner{name: name, suffix: installationSuffix + name} }

// OwnedByKeypost returns the owner of accounts for workloads of any cluster. No installation's deletion deletes them.
func OwnedByKeypost() Owner { return Owner{suffix: workloadSuffix} }

// owns reports whether a description ends as the owner's do.
func (o Owner) owns(description string) bool {
	return o.suffix != "" && strings.HasSuffix(description, o.suffix)
}

// takes reports whether a description is the owner's, or ccoctl's, which does not say for which installation it made a thing.
func (o Owner) takes(description string) bool {
	return o.owns(description) || strings.HasPrefix(description, made) && !strings.Contains(description, installationSuffix)
}

// takesNamed is takes for a thing of an ID: of ccoctl's only one that bears the installation's name. By ccoctl's word alone any
// installation would be its owner.
func (o Owner) takesNamed(id, description string) bool {
	return o.owns(description) || id == o.name && o.takes(description)
}

// holds reports whether a provider is to have the keys of the key set of the owner's name. Where its description names a key set, only
// that one: whoever writes the one of the installation's name has no say in it.
func (o Owner) holds(id, description string) bool {
	if keySet, _ := markOf(description); keySet != "" {
		return keySet == o.name
	}
	return o.takesNamed(id, description)
}

// describe returns a description that the owner takes. What it said before stays, as far as there is room, but for whose it was.
func (o Owner) describe(text string) string {
	switch {
	case o.owns(text), o.suffix == "" && o.takes(text):
		return text
	case o.suffix == "":
		return cut(made+", which took it over: "+unmarked(text), descriptionLimit)
	}
	return o.marked(text, "")
}

// marked returns a description that ends with the owner's mark, and with the key set whose keys the provider is given; empty is the one of
// the installation's name.
func (o Owner) marked(text, keySet string) string {
	end := o.suffix
	if keySet != "" && keySet != o.name {
		end = keysMark + keySet + end
	}
	return cut(unmarked(text), descriptionLimit-len(end)) + end
}

// notOwned is the error for a thing that is somebody else's.
func (o Owner) notOwned(thing, name, description string) error {
	return rest.Problemf(NotOwned, "%s %s is somebody else's: its description is %q", thing, name, description)
}

// Pool is a workload identity pool as it should be: there, enabled, not deleted.
type Pool struct {
	ID    string
	Owner Owner // the zero one leaves open for which installation it is, as ccoctl does
	Adopt bool  // take over a pool that is somebody else's
}

// Provider is an OIDC provider of a pool as it should be: there, enabled, not deleted.
type Provider struct {
	Pool, ID      string
	IssuerURL     string
	Audiences     []string          // that tokens may carry
	KeepAudiences bool              // what an existing provider takes beside Audiences stays
	Condition     string            // attribute condition, CEL; empty leaves what is there
	Mapping       map[string]string // of attributes beside the subject; those that it does not name stay as they are
	JWKS          []byte            // the keys to upload, so that Google never calls the issuer; nil: Google fetches them
	KeySet        string            // whose keys JWKS are, so that it may upload to the provider; empty for the one of the owner's name
	UsualKeys     bool              // no JWKS is a default: a provider that has uploaded keys is refused
	Unrecorded    bool              // nothing says whether JWKS is newer than a copy that is there: it replaces one only with Adopt
	Owner         Owner             // as in Pool
	Adopt         bool              // take over a provider that is somebody else's, or that trusts another issuer; and replace its copy of keys
	Show          bool              // plan also what is refused without Adopt: such a plan is to be shown, and not to be applied

	vacant bool    // it was deleted when it was planned for: nobody lives by the issuer that it had
	held   *string // the JWKS that it had when it was first read; nil if it was not there
}

// Account is a service account as it should be, with its roles and those who may impersonate it.
type Account struct {
	Request     string   // name of the CredentialsRequest, of which ccoctl makes the names of accounts and roles; empty without one
	ID          string   // before the @; empty for one made of the owner's name and Request, the same in every run
	DisplayName string   // empty for ccoctl's, OWNER-REQUEST, or the ID
	For         string   // what asks for it, for messages: "CredentialsRequest NAMESPACE/NAME (FILE)"
	Roles       []string // predefined ones, in the project: "roles/…"
	Permissions []string // of a custom role of the project, shared by all its clusters; empty: no such role
	Subjects    []string // system:serviceaccount:NAMESPACE:NAME, which may impersonate it
}

// Accounts are the service accounts of one owner.
type Accounts struct {
	Owner Owner
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
	Pool     *Pool
	Provider *Provider
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
