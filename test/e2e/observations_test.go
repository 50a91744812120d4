//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/kubestore"
	"github.com/keypost/keypost/keystore/observation"
)

// observations in a real Kubernetes API: they are stored as they are sent, looks are added, and they are not key sets.
func (p *kubeScene) observations(t *testing.T) {
	p.try(t, "", "apply", "--server-side", "-f", observationDefinition).ok(t)
	p.try(t, "", "wait", "--for=condition=Established", "crd/observations.keypost.dev", "--timeout=60s").ok(t)
	ns := p.space(t)
	b, err := kubestore.OpenObservations(t.Context(), ns, kubestore.Options{Kubeconfig: p.admin})
	must(t, err)
	st := observation.NewStore(b)
	place := observation.Subject{Issuer: "https://oidc.example.com/prod-a"}
	ahead := observation.Offset(-time.Second)
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i, l := range []observation.Look{
		{Start: at, End: at.Add(10 * time.Second), Addresses: []string{"192.0.2.1:443"}, Answers: 16, Lifetimes: observation.Lifetimes{MaxAge: keystore.Duration(5 * time.Minute)}, ClockAhead: &ahead},
		{Start: at, End: at.Add(time.Minute), Gaps: []string{"at 192.0.2.1:443: no answer within 5s"}},
		{Start: at, End: at.Add(2 * time.Minute), Addresses: []string{"192.0.2.1:443"}, Answers: 16, SharedCache: "Age: 1"},
	} {
		want, err := st.Add(t.Context(), "prod-a", place, l)
		must(t, err)
		got, err := st.Load(t.Context(), "prod-a", place)
		must(t, err)
		if !got.Complete.Equal(want.Complete) || got.Latest.Answers != l.Answers || len(got.Latest.Gaps) != len(l.Gaps) || got.Latest.SharedCache != l.SharedCache {
			t.Errorf("look %d: %+v, want %+v", i, got, want)
		}
	}
	if all, err := st.Of(t.Context(), "prod-a"); err != nil || len(all) != 1 || !all[0].Complete.Equal(at.Add(2*time.Minute)) {
		t.Errorf("%+v, %v", all, err)
	}
	if out := p.try(t, "", "-n", ns, "get", "observations.keypost.dev").ok(t); !strings.Contains(out, place.Issuer) {
		t.Errorf("kubectl get shows\n%s", out)
	}
	if list, err := p.store(t, ns).List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("they are listed as key sets: %v, %v", list, err)
	}
}
