package fakeaws

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

// State is the account as plain values, to compare in a test.
type State struct {
	Providers []Provider // by ARN
	Roles     []Role     // by name
}

// Provider is an IAM OIDC identity provider.
type Provider struct {
	ARN         string
	URL         string // with https://
	ClientIDs   []string
	Thumbprints []string
	Tags        map[string]string
	Created     time.Time
}

// Role is an IAM role. Trust is normalized as AWS does it, inline policies are as given.
type Role struct {
	ARN, ID     string
	Name, Path  string
	Description string
	Trust       string
	MaxSession  int // seconds
	Boundary    string
	Tags        map[string]string
	Inline      map[string]string // policy name to document
	Attached    []string          // ARNs
	InProfile   bool              // an instance profile has it
	Created     time.Time
}

// Disown takes all tags off a provider.
func (s *Server) Disown(providerARN string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.present()
	p := w.providers[providerARN].clone()
	p.Tags = nil
	w.setProvider(p)
	s.commit(w, s.options.Now())
}

func (p Provider) clone() Provider {
	p.ClientIDs, p.Thumbprints, p.Tags = slices.Clone(p.ClientIDs), slices.Clone(p.Thumbprints), maps.Clone(p.Tags)
	return p
}

func (r Role) clone() Role {
	r.Tags, r.Inline, r.Attached = maps.Clone(r.Tags), maps.Clone(r.Inline), slices.Clone(r.Attached)
	return r
}

// world is the account at one time. It is never changed: a write makes a new one, so that a late read still finds the old.
type world struct {
	providers map[string]Provider // by ARN
	roles     map[string]Role     // by name in lower case: names are unique without regard to case
}

func (w *world) setRole(r Role) {
	w.roles = fakecloud.With(w.roles, strings.ToLower(r.Name), r)
}

func (w *world) setProvider(p Provider) {
	w.providers = fakecloud.With(w.providers, p.ARN, p)
}

func (w world) role(name string) (Role, error) {
	r, ok := w.roles[strings.ToLower(name)]
	if !ok {
		return Role{}, noSuchEntity("The role with name %s cannot be found.", name)
	}
	return r.clone(), nil
}

func (w world) provider(arn string) (Provider, error) {
	p, ok := w.providers[arn]
	if !ok {
		return Provider{}, noSuchEntity("OpenIDConnect Provider not found for arn %s", arn)
	}
	return p.clone(), nil
}

func (w world) state() State {
	var st State
	for _, k := range slices.Sorted(maps.Keys(w.providers)) {
		st.Providers = append(st.Providers, w.providers[k].clone())
	}
	for _, k := range slices.Sorted(maps.Keys(w.roles)) {
		st.Roles = append(st.Roles, w.roles[k].clone())
	}
	return st
}
