package kubestore

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// Observations are asked for as a resource of their own: anyone who may write them needs no right to a key set. A missing right
// or definition is named as theirs.
func TestObservationsAreAResourceOfTheirOwn(t *testing.T) {
	f := newFake(t)
	var mu sync.Mutex
	var paths []string
	refuse := 0
	f.when(func(w http.ResponseWriter, r *http.Request, _ func() answer) bool {
		mu.Lock()
		defer mu.Unlock()
		paths = append(paths, r.Method+" "+r.URL.Path)
		switch {
		case refuse == http.StatusForbidden:
			failure(403, "Forbidden", "x", `User "x" cannot get resource`).write(w)
		case refuse != 0:
			http.NotFound(w, r)
		case r.Method == http.MethodGet:
			a := failure(404, "NotFound", r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], "not found")
			a.body.(map[string]any)["details"].(map[string]any)["kind"] = "observations" //nolint:forcetypeassert // failure makes it
			a.write(w)
		default:
			return false
		}
		return true
	})
	st := observation.NewStore(f.open(OpenObservations))
	p := observation.Subject{Issuer: "https://oidc.example.com/prod-a", Vantage: "eu"}
	_, _ = st.Add(t.Context(), "prod-a", p, observation.Look{End: time.Unix(1e9, 0)}) // the fake has key sets only, and does not know what it is sent
	if len(paths) < 2 || slices.ContainsFunc(paths, func(p string) bool { return !strings.Contains(p, "/namespaces/keys/observations") }) {
		t.Errorf("it asks for %q", paths)
	}
	for code, want := range map[int]string{
		http.StatusForbidden: "observations.keypost.dev in namespace keys", http.StatusNotFound: "it knows no observations: install the custom resource definition observations.keypost.dev",
	} {
		refuse = code
		if _, err := st.Load(t.Context(), keystore.Name("prod-a"), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v; want %q", code, err, want)
		}
	}
}
