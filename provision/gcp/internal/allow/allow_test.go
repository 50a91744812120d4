package allow_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/gcp/internal/allow"
)

const (
	pool  = "projects/1/locations/global/workloadIdentityPools/prod-a"
	other = "projects/1/locations/global/workloadIdentityPools/prod-a-b" // whose name begins so
)

func set(pool, of string) string { return "principalSet://iam.googleapis.com/" + pool + "/" + of }

// everybody is who may be in a policy.
func everybody() []string {
	return []string{
		allow.Member("ours@p"), allow.Member("gone@p"), allow.Member("theirs@p"), "deleted:serviceAccount:ours@p?uid=1", "deleted:serviceAccount:theirs@p?uid=2",
		"user:a@example.com", allow.Subjects(pool) + "ns/a", allow.Subjects(pool) + "ns/b", set(pool, "*"), allow.Subjects(other) + "ns/a", set(other, "*"),
	}
}

func randomPolicy(r *rand.Rand) allow.Policy {
	p := allow.Policy{Version: 1, Etag: "x"}
	for _, role := range []string{"roles/viewer", "roles/editor", allow.UserRole, "roles/viewer", allow.UserRole} {
		b := allow.Binding{Role: role}
		for _, m := range everybody() {
			if r.IntN(2) == 0 {
				b.Members = append(b.Members, m)
			}
		}
		if r.IntN(3) == 0 {
			b.Condition = json.RawMessage(fmt.Sprintf(`{"title": "c%d"}`, r.IntN(9)))
		}
		if len(b.Members) > 0 {
			p.Bindings = append(p.Bindings, b)
		}
	}
	return p
}

// lines are what a policy gives, each grant with its condition.
func lines(p allow.Policy) []string {
	var all []string
	for _, b := range p.Bindings {
		for _, m := range b.Members {
			all = append(all, fmt.Sprintf("%s %s %s", b.Role, m, b.Condition))
		}
	}
	slices.Sort(all)
	return all
}

// without returns the lines that may not differ: those but of members that may.
func without(p allow.Policy, may func(line string) bool) string {
	return strings.Join(slices.DeleteFunc(lines(p), may), "\n")
}

func TestApplyTouchesNobodyElse(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	h := allow.Holdings{Roles: map[string][]string{"ours@p": {"roles/viewer", "roles/new"}}, Gone: []string{"gone@p"}}
	for range 2000 {
		have := randomPolicy(r)
		before := strings.Join(lines(have), "\n")
		h.Exact = r.IntN(2) == 0
		want, diff := h.Apply(have)
		if strings.Join(lines(have), "\n") != before {
			t.Fatal("the policy that was given has changed")
		}
		may := func(line string) bool {
			return strings.Contains(line, "serviceAccount:gone@p") || strings.Contains(line, "serviceAccount:ours@p ") && strings.HasSuffix(line, " ") ||
				strings.Contains(line, "deleted:serviceAccount:ours@p?")
		}
		if without(want, may) != without(have, may) {
			t.Fatalf("others' grants changed from\n%s\nto\n%s", without(have, may), without(want, may))
		}
		plain, _ := want.Grants(allow.Member("ours@p"))
		if !slices.Contains(plain, "roles/viewer") || !slices.Contains(plain, "roles/new") || h.Exact && len(slices.Compact(slices.Sorted(slices.Values(plain)))) != 2 {
			t.Fatalf("exact %t, and the account has %q", h.Exact, plain)
		}
		if gone, conditional := want.Grants(allow.Member("gone@p")); len(gone)+len(conditional) > 0 {
			t.Fatalf("what goes has %q, %q", gone, conditional)
		}
		if len(diff) == 0 || want.Version != allow.Version || want.Etag != have.Etag {
			t.Fatalf("diff %q, version %d, etag %q", diff, want.Version, want.Etag)
		}
		if again, diff := h.Apply(want); len(diff) > 0 || strings.Join(lines(again), "\n") != strings.Join(lines(want), "\n") {
			t.Fatalf("a second time it changes %q", diff)
		}
	}
}

func TestWithUsersTouchesNoOtherPool(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		have := randomPolicy(r)
		want, diff, lost := have.WithUsers(pool, []string{"ns/a"})
		may := func(line string) bool {
			return strings.HasPrefix(line, allow.UserRole+" principal") && strings.Contains(line, "/"+pool+"/") && strings.HasSuffix(line, " ")
		}
		if without(want, may) != without(have, may) {
			t.Fatalf("others' grants changed from\n%s\nto\n%s", without(have, may), without(want, may))
		}
		left := slices.DeleteFunc(lines(want), func(line string) bool { return !may(line) })
		if left = slices.Compact(left); len(left) != 1 || left[0] != allow.UserRole+" "+allow.Subjects(pool)+"ns/a " {
			t.Fatalf("the pool has %q", left)
		}
		for _, l := range lost {
			if l != "ns/b" && l != "*" {
				t.Fatalf("%q was lost", l)
			}
		}
		if plain, _ := have.Grants(allow.Subjects(pool) + "ns/a"); len(diff) != len(lost) && slices.Contains(plain, allow.UserRole) {
			t.Fatalf("lost %q, told %q", lost, diff)
		}
		if _, diff, lost := want.WithUsers(pool, []string{"ns/a"}); len(diff)+len(lost) > 0 {
			t.Fatalf("a second time it changes %q, %q", diff, lost)
		}
	}
}

func TestPoolsAndRemains(t *testing.T) {
	t.Parallel()
	p := allow.Policy{Bindings: []allow.Binding{{Role: allow.UserRole, Members: []string{"user:a@example.com", allow.Subjects(pool) + "a", set(other, "group/g"), set(other, "*")}}}}
	if got := p.Pools(); !slices.Equal(got, []string{pool, other, other}) {
		t.Errorf("pools %q", got)
	}
	for m, want := range map[string]bool{
		"deleted:serviceAccount:a@p?uid=1": true, "deleted:serviceAccount:b@p?uid=1": false, "deleted:user:a@p?uid=1": false, "serviceAccount:a@p": false,
	} {
		if allow.Remains(m, []string{"a@p"}) != want {
			t.Errorf("%s remains of a@p: %t", m, !want)
		}
	}
}
