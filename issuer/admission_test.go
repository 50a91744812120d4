package issuer

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/storetest"
)

// TestCopiesAreLeftApart: a key set whose documents nobody reads is not a failure where none of its issuer URLs may be served: it counts
// nowhere, and nobody waits for it. One of whose URLs a pattern has is to be served, and so is one that relying parties read.
func TestCopiesAreLeftApart(t *testing.T) {
	copies := map[string]any{"reach": "copies", "relyingParties": []string{"gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"}}
	apart := doc{name: "z", generation: 1, issuers: []string{"https://oidc.internal/z"}, policy: copies}
	b := newBench(t)
	apart.keys = append(apart.keys, storetest.Key(t))
	good := doc{name: "a", generation: 1, keys: apart.keys}
	b.put(good, apart)
	b.poll()
	b.serves("https://oidc.example.com/a", good.keys...)
	b.refuses("https://oidc.internal/z", http.StatusNotFound) // and not 503: what is to be served is complete
	b.rejected("z", "")
	if err := b.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	for _, s := range b.Report().Issuers {
		if s.Name == "z" && (s.Served || !strings.Contains(s.Message, "reach copies")) {
			t.Errorf("of z is reported: %+v", s)
		}
	}
	if named := b.values("keypost_key_set_rejected"); named != "" {
		t.Errorf("it counts as rejected: %s", named)
	}
	if all := b.values("keypost_key_sets_rejected"); !strings.Contains(all, `{reason="url_not_permitted"} 0`) {
		t.Errorf("it counts as rejected: %s", all)
	}
	for _, line := range b.said() {
		if strings.HasPrefix(line, "warn ") {
			t.Errorf("logged %q", line)
		}
	}
	b.poll()
	b.silent()

	apart.generation, apart.policy = 2, nil
	b.put(apart)
	b.poll()
	b.rejected("z", lastgood.ReasonURLNotPermitted)
	b.saidOnce("warn ")
	apart.generation, apart.policy, apart.issuers = 3, copies, []string{"https://oidc.internal/z", "https://oidc.example.com/z"}
	b.put(apart)
	b.poll()
	b.rejected("z", lastgood.ReasonURLNotPermitted)
}
