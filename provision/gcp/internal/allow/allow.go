// Package allow changes allow policies of Google Cloud member by member. It promises that only the members it is told of gain or lose
// anything: those of others stay, also in the same binding, and so do conditions. It makes no call.
package allow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// UserRole lets its members take the part of a service account (https://cloud.google.com/iam/docs/service-account-permissions).
const UserRole = "roles/iam.workloadIdentityUser"

// Version is always asked for and written: with an older one Google hides conditions, and a write would drop them
// (https://cloud.google.com/iam/docs/policies#versions).
const Version = 3

// Policy is an allow policy. What else Google's has, a write leaves as it is: the default update mask is bindings and etag.
type Policy struct {
	Version  int       `json:"version"`
	Etag     string    `json:"etag,omitempty"`
	Bindings []Binding `json:"bindings"`
}

// Binding gives a role to members, perhaps on a condition.
type Binding struct {
	Role      string          `json:"role"`
	Members   []string        `json:"members"`
	Condition json.RawMessage `json:"condition,omitempty"`
}

// Grants returns the roles of a member that depend on no condition, and those that do.
func (p Policy) Grants(member string) (plain, conditional []string) {
	for _, b := range p.Bindings {
		switch {
		case !slices.Contains(b.Members, member):
		case b.Condition != nil:
			conditional = append(conditional, b.Role)
		default:
			plain = append(plain, b.Role)
		}
	}
	return plain, conditional
}

// without returns p without the members of all bindings that drop picks, and a line for each.
func (p Policy) without(drop func(b Binding, member string) bool) (Policy, []string) {
	var diff []string
	out := Policy{Version: Version, Etag: p.Etag, Bindings: []Binding{}}
	for _, b := range p.Bindings {
		members := []string{}
		for _, m := range b.Members {
			if !drop(b, m) {
				members = append(members, m)
				continue
			}
			diff = append(diff, "- "+grant(b, m))
		}
		if b.Members = members; len(members) > 0 {
			out.Bindings = append(out.Bindings, b)
		}
	}
	return out, diff
}

func grant(b Binding, member string) string {
	if b.Condition != nil {
		return fmt.Sprintf("%s for %s, on a condition", b.Role, member)
	}
	return fmt.Sprintf("%s for %s", b.Role, member)
}

// with returns p with a member in a role, on no condition, and a line if that is new.
func (p Policy) with(role, member string) (Policy, []string) {
	if plain, _ := p.Grants(member); slices.Contains(plain, role) {
		return p, nil
	}
	p.Version, p.Bindings = Version, slices.Clone(p.Bindings)
	diff := []string{fmt.Sprintf("+ %s for %s", role, member)}
	for i, b := range p.Bindings {
		if b.Role == role && b.Condition == nil {
			p.Bindings[i].Members = append(slices.Clone(b.Members), member)
			return p, diff
		}
	}
	p.Bindings = append(p.Bindings, Binding{Role: role, Members: []string{member}})
	return p, diff
}

// Member is how a policy names a service account.
func Member(email string) string { return "serviceAccount:" + email }

// Remains reports whether a member is what Google leaves of a deleted account with one of these emails.
func Remains(m string, emails []string) bool {
	name, is := strings.CutPrefix(m, "deleted:serviceAccount:")
	email, _, _ := strings.Cut(name, "?")
	return is && slices.Contains(emails, email)
}

// Holdings says which roles in the project some accounts should have.
type Holdings struct {
	Roles map[string][]string // by email
	Exact bool                // and no others, but those that depend on conditions
	Gone  []string            // emails of accounts that are to have none at all
}

// Apply returns p as it should be, and what differs.
func (h Holdings) Apply(p Policy) (Policy, []string) {
	emails := slices.Sorted(maps.Keys(h.Roles))
	known := slices.Concat(emails, h.Gone)
	p, diff := p.without(func(b Binding, m string) bool {
		email := strings.TrimPrefix(m, "serviceAccount:")
		if Remains(m, known) || slices.Contains(h.Gone, email) && m == Member(email) {
			return true
		}
		roles, ours := h.Roles[email]
		return ours && m == Member(email) && h.Exact && b.Condition == nil && !slices.Contains(roles, b.Role)
	})
	for _, email := range emails {
		for _, role := range h.Roles[email] {
			var more []string
			p, more = p.with(role, Member(email))
			diff = append(diff, more...)
		}
	}
	return p, diff
}

// Subjects is how the members begin that stand for subjects of a pool, which is given by its full name
// (https://cloud.google.com/iam/docs/principal-identifiers).
func Subjects(pool string) string { return "principal://iam.googleapis.com/" + pool + "/subject/" }

// WithUsers returns the policy of an account with exactly these subjects of a pool as its users. Members of other pools stay, and those
// of other kinds. lost are the subjects, or sets of them, that are not users any more.
func (p Policy) WithUsers(pool string, subjects []string) (want Policy, diff, lost []string) {
	var wanted []string
	for _, s := range subjects {
		wanted = append(wanted, Subjects(pool)+s)
	}
	want, diff = p.without(func(b Binding, m string) bool {
		subject, ours := strings.CutPrefix(m, Subjects(pool))
		if !ours { // a set of subjects, such as all of the pool
			subject, ours = strings.CutPrefix(m, "principalSet://iam.googleapis.com/"+pool+"/")
		}
		if ours = ours && b.Role == UserRole && b.Condition == nil && !slices.Contains(wanted, m); ours {
			lost = append(lost, subject)
		}
		return ours
	})
	want, added := want.PlusUsers(pool, subjects)
	return want, append(diff, added...), lost
}

// PlusUsers returns the policy of an account with these subjects of a pool among its users, and a line for each that is new. Nobody goes.
func (p Policy) PlusUsers(pool string, subjects []string) (want Policy, diff []string) {
	want = p
	for _, s := range subjects {
		var more []string
		want, more = want.with(UserRole, Subjects(pool)+s)
		diff = append(diff, more...)
	}
	return want, diff
}

// Pools returns the full names of the pools whose subjects may impersonate an account by its policy.
func (p Policy) Pools() []string {
	var out []string
	for _, b := range p.Bindings {
		for _, m := range b.Members {
			if _, rest, found := strings.Cut(m, "://iam.googleapis.com/"); found {
				const parts = 6 // projects/NUMBER/locations/global/workloadIdentityPools/POOL; a subject, a group, an attribute or * follows
				name := strings.Split(rest, "/")
				out = append(out, strings.Join(name[:min(len(name), parts)], "/"))
			}
		}
	}
	return out
}
