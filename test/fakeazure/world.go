package fakeazure

import (
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

// State is the tenant as plain values, to compare in a test. Every list is in the order of IDs in lower case.
type State struct {
	Groups      []Group
	Identities  []Identity
	Credentials []Credential
	Definitions []Definition // custom ones
	Assignments []Assignment
	Others      []Other // what else is in resource groups
}

// Group is a resource group.
type Group struct {
	ID, Name string
	Location string
	Tags     map[string]string
	Deleting bool // it is still there, and nothing can be made in it
}

// Identity is a user-assigned managed identity.
type Identity struct {
	ID, Name              string
	Location              string
	Tags                  map[string]string
	PrincipalID, ClientID string
	Created               time.Time
}

// Credential is a federated credential of an identity.
type Credential struct {
	ID, Name        string
	Identity        string // its ID
	Issuer, Subject string
	Audiences       []string
}

// Definition is a role. Those that Azure has are not in State.
type Definition struct {
	ID, Name    string // Name is a GUID
	RoleName    string
	Description string
	Scopes      []string // where it may be assigned
	Permissions []Permission
	Created     time.Time
	builtIn     bool
}

// Permission is what a role lets do.
type Permission struct {
	Actions        []string `json:"actions"`
	NotActions     []string `json:"notActions"`
	DataActions    []string `json:"dataActions"`
	NotDataActions []string `json:"notDataActions"`
}

// Assignment gives a role to a principal at a scope.
type Assignment struct {
	ID, Name      string // Name is a GUID
	Scope         string
	Role          string // the definition's ID
	Principal     string
	PrincipalType string
	Description   string
	Created       time.Time
}

// Other is a resource of no kind that the server knows.
type Other struct{ ID, Name, Type string }

// world is the tenant at one time. It is never changed: a write makes a new one. Keys are IDs in lower case, but for
// definitions and assignments: the GUID, which is unique in the tenant.
type world struct {
	groups      map[string]Group
	identities  map[string]Identity
	credentials map[string]Credential
	definitions map[string]Definition
	assignments map[string]Assignment
	others      map[string]Other
	members     map[string][]string // of Entra's groups: principals, by the group's
	operations  map[string]operation
}

func (w world) state() State {
	return State{Groups: fakecloud.Sorted(w.groups), Identities: fakecloud.Sorted(w.identities), Credentials: fakecloud.Sorted(w.credentials),
		Definitions: fakecloud.Sorted(w.definitions), Assignments: fakecloud.Sorted(w.assignments), Others: fakecloud.Sorted(w.others)}
}

// emptied is the world without a group and all that is in it. Assignments elsewhere stay, of principals that are gone too.
func (w world) emptied(group string) world {
	group = strings.ToLower(group)
	w.groups = fakecloud.Without(w.groups, group)
	w.identities = outside(w.identities, group)
	w.credentials = outside(w.credentials, group)
	w.others = outside(w.others, group)
	for key, a := range w.assignments {
		if within(a.Scope, group) {
			w.assignments = fakecloud.Without(w.assignments, key)
		}
	}
	return w
}

// outside are the values whose IDs are not at a scope or below it.
func outside[V any](m map[string]V, scope string) map[string]V {
	for key := range m {
		if within(key, scope) {
			m = fakecloud.Without(m, key)
		}
	}
	return m
}

// principals are an identity's own principal and the groups that it is in, in lower case.
func (w world) principals(principal string) map[string]bool {
	principal = strings.ToLower(principal)
	all := map[string]bool{principal: true}
	for more := true; more; {
		more = false
		for group, members := range w.members {
			for _, m := range members {
				if all[strings.ToLower(m)] && !all[strings.ToLower(group)] {
					all[strings.ToLower(group)], more = true, true
				}
			}
		}
	}
	return all
}
