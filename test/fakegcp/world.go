package fakegcp

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

// State is the project as plain values, to compare in a test.
type State struct {
	Pools     []Pool            // by name, deleted ones too
	Providers []Provider        // by name, deleted ones too
	Accounts  []Account         // by unique ID, deleted ones too
	Roles     []Role            // by name, deleted ones too
	Project   Policy            // the project's own policy
	Policies  map[string]Policy // of accounts, by email
}

// What a pool, a provider, or an account can be.
const (
	active  = "ACTIVE"
	deleted = "DELETED"
)

// Pool is a workload identity pool, as IAM describes it.
type Pool struct {
	Name        string     `json:"name,omitempty"`
	DisplayName string     `json:"displayName,omitempty"`
	Description string     `json:"description,omitempty"`
	State       string     `json:"state,omitempty"`
	Disabled    bool       `json:"disabled,omitempty"`
	Mode        string     `json:"mode,omitempty"`
	ExpireTime  *time.Time `json:"expireTime,omitempty"`

	Created time.Time `json:"-"`
}

// Provider is an OIDC provider of a pool, as IAM describes it.
type Provider struct {
	Name        string            `json:"name,omitempty"`
	DisplayName string            `json:"displayName,omitempty"`
	Description string            `json:"description,omitempty"`
	State       string            `json:"state,omitempty"`
	Disabled    bool              `json:"disabled,omitempty"`
	Mapping     map[string]string `json:"attributeMapping,omitempty"`
	Condition   string            `json:"attributeCondition,omitempty"`
	OIDC        *OIDC             `json:"oidc,omitempty"`
	ExpireTime  *time.Time        `json:"expireTime,omitempty"`
}

// OIDC is what a provider knows of its issuer.
type OIDC struct {
	Issuer    string   `json:"issuerUri,omitempty"`
	Discovery string   `json:"discoveryUri,omitempty"`
	Audiences []string `json:"allowedAudiences,omitempty"`
	JWKS      string   `json:"jwksJson,omitempty"`
}

// Account is a service account, as IAM describes it.
type Account struct {
	Name        string `json:"name,omitempty"`
	ProjectID   string `json:"projectId,omitempty"`
	UniqueID    string `json:"uniqueId,omitempty"`
	Email       string `json:"email,omitempty"`
	DisplayName string `json:"displayName,omitempty"`
	Description string `json:"description,omitempty"`
	Etag        string `json:"etag,omitempty"`
	ClientID    string `json:"oauth2ClientId,omitempty"`
	Disabled    bool   `json:"disabled,omitempty"`

	Created time.Time  `json:"-"`
	Deleted *time.Time `json:"-"` // since when it is deleted
}

// Role is a custom role of the project, as IAM describes it.
type Role struct {
	Name        string   `json:"name,omitempty"`
	Title       string   `json:"title,omitempty"`
	Description string   `json:"description,omitempty"`
	Permissions []string `json:"includedPermissions,omitempty"`
	Stage       string   `json:"stage,omitempty"`
	Etag        string   `json:"etag,omitempty"`
	Deleted     bool     `json:"deleted,omitempty"`

	DeletedAt time.Time `json:"-"`
}

// Policy is an allow policy.
type Policy struct {
	Version  int             `json:"version,omitempty"`
	Etag     string          `json:"etag,omitempty"`
	Bindings []Binding       `json:"bindings,omitempty"`
	Audit    json.RawMessage `json:"auditConfigs,omitempty"`
}

// Binding gives a role to members, under a condition or none.
type Binding struct {
	Role      string     `json:"role,omitempty"`
	Members   []string   `json:"members,omitempty"`
	Condition *Condition `json:"condition,omitempty"`
}

// Condition is the condition of a binding. It is kept, and never evaluated.
type Condition struct {
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Expression  string `json:"expression,omitempty"`
	Location    string `json:"location,omitempty"`
}

// world is the project at one time. It is never changed: a write makes a new one, so that a late read still finds the
// old. What hangs on its values by a pointer, a slice or a map is not changed either.
type world struct {
	pools      map[string]Pool     // by ID
	providers  map[string]Provider // by pool/ID
	accounts   map[string]Account  // by unique ID
	roles      map[string]Role     // by ID
	policies   map[string]Policy   // by unique ID of an account; the project's by ""
	operations []operation         // the newest last
}

// purged is the world without what was deleted so long ago that nothing is left of it.
func (w world) purged(now time.Time) world {
	gone := func(t *time.Time) bool { return t != nil && !now.Before(*t) }
	for id, p := range w.pools {
		if gone(p.ExpireTime) {
			w.pools = fakecloud.Without(w.pools, id)
			for key := range w.providers {
				if strings.HasPrefix(key, id+"/") {
					w.providers = fakecloud.Without(w.providers, key)
				}
			}
		}
	}
	for key, p := range w.providers {
		if gone(p.ExpireTime) {
			w.providers = fakecloud.Without(w.providers, key)
		}
	}
	for id, a := range w.accounts {
		if a.Deleted != nil && !now.Before(a.Deleted.Add(kept)) {
			w.accounts = fakecloud.Without(w.accounts, id)
		}
	}
	for id, r := range w.roles {
		if r.Deleted && !now.Before(r.DeletedAt.Add(roleBlocked)) {
			w.roles = fakecloud.Without(w.roles, id)
		}
	}
	return w
}

func (w world) state() State {
	st := State{Pools: fakecloud.Sorted(w.pools), Providers: fakecloud.Sorted(w.providers), Accounts: fakecloud.Sorted(w.accounts), Roles: fakecloud.Sorted(w.roles),
		Project: w.policies[""], Policies: map[string]Policy{}}
	for id, p := range w.policies {
		if a, ok := w.accounts[id]; ok && a.Deleted == nil {
			st.Policies[a.Email] = p
		}
	}
	return st
}
