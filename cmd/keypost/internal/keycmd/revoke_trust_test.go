package keycmd

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/keystore/storetest"
)

// unadvised is in what is said of a relying party that keypost does not know.
const unadvised = "without end where it fetches only for a kid that it does not know, as Go services with go-oidc do"

// TestStillTrusting: where no relying party is declared each common one is named with advice of its own, and all others in one line.
func TestStillTrusting(t *testing.T) {
	at := time.Now()
	s := storetest.KeySet(t, "prod-a")
	lines := stillTrusting(s, at, keystore.Cache{})
	starts := func(name string) func(string) bool {
		return func(line string) bool { return strings.HasPrefix(line, name+" ") }
	}
	for _, known := range party.Common() {
		i := slices.IndexFunc(lines, starts(known))
		if i < 0 || strings.Contains(lines[i], unadvised) {
			t.Errorf("%s has no advice of its own in:\n%s", known, strings.Join(lines, "\n"))
		}
	}
	if i := slices.IndexFunc(lines, starts("any other")); i < 0 || !strings.Contains(lines[i], unadvised) {
		t.Errorf("nothing is said of all others in:\n%s", strings.Join(lines, "\n"))
	}
	const caches = "caches in front of keypostd"
	if !slices.ContainsFunc(lines, starts(caches+":")) {
		t.Errorf("nothing is said of caches in:\n%s", strings.Join(lines, "\n"))
	}
	declared, err := s.SetPolicy(storetest.Change(time.Hour), keystore.Policy{RelyingParties: []string{"vault", "snowflake"}})
	if err != nil {
		t.Fatal(err)
	}
	lines = stillTrusting(declared, at, keystore.Cache{})
	if !slices.ContainsFunc(lines, starts("vault")) || !slices.ContainsFunc(lines, starts("snowflake")) || slices.ContainsFunc(lines, starts("aws")) || slices.ContainsFunc(lines, starts("any other")) {
		t.Errorf("of vault and snowflake, which are declared:\n%s", strings.Join(lines, "\n"))
	}
	const upload = "gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"
	copies, err := s.SetPolicy(storetest.Change(time.Hour), keystore.Policy{RelyingParties: []string{upload}, Reach: keystore.ReachCopies})
	if err != nil {
		t.Fatal(err)
	}
	lines = stillTrusting(copies, at, keystore.Cache{})
	if !slices.ContainsFunc(lines, starts(upload)) || slices.ContainsFunc(lines, starts(caches+":")) {
		t.Errorf("where nobody reads the documents:\n%s", strings.Join(lines, "\n"))
	}
}
