package verify

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
)

// The shield is shown to origins, and to nobody else: not at a public address, not at one that is both, not to another host.
func TestShieldIsForOrigins(t *testing.T) {
	w := newWorld(t)
	var leaked, let atomic.Int64
	public := func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Origin-Secret") != "" || len(r.TLS.PeerCertificates) > 0 {
			leaked.Add(1)
		}
		w.serve(rw, r)
	}
	origin := func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Origin-Secret") != "let me in" {
			http.Error(rw, "no", http.StatusForbidden)
			return
		}
		let.Add(1)
		w.serve(rw, r)
	}
	p := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": public, "198.51.100.9": origin})
	p.target.Origins = []string{"origin.example.net", "192.0.2.1"}
	if l := p.observe(t); l.Complete() {
		t.Error("a look is complete that an origin has shut out")
	}
	p.network.Shield = fetch.Shield{Header: "X-Origin-Secret", Value: "let me in"}
	if l := p.observe(t); l.Complete() || let.Load() > 0 {
		t.Error("the shield is shown to an origin that only the policy names")
	}
	p.network.Shield.Origins = []string{"Origin.example.net:443", "192.0.2.1"}
	if l := p.observe(t); !l.Complete() {
		t.Errorf("gaps %q with the shield shown", l.Gaps)
	}
	if let.Load() == 0 || leaked.Load() > 0 {
		t.Errorf("%d requests let in, %d at a public address showed the shield", let.Load(), leaked.Load())
	}
	for _, connect := range []string{"198.51.100.9:443", "192.0.2.1:443"} { // the operator names it
		n := p.network
		n.Connect = connect
		if a, err := n.Reach(p.target.URL, fetch.Endpoint{Address: connect, Shielded: true}).Get(t.Context(), testIssuer+fetch.KeysPath); err != nil || a.Status != http.StatusOK {
			t.Errorf("%s: %d, %v", connect, a.Status, err)
		}
	}
	leaked.Store(0)
	c := p.network.Reach(p.target.URL, fetch.Endpoint{Address: "198.51.100.9:443", Shielded: true})
	for _, elsewhere := range []string{"https://192.0.2.1/prod-a/keys.json", "https://oidc.example.com:8444/prod-a/keys.json"} {
		before := let.Load()
		if a, err := c.Get(t.Context(), elsewhere); err == nil && a.Status == http.StatusOK || leaked.Load() > 0 || let.Load() != before {
			t.Errorf("%s: %v, the shield was shown", elsewhere, err)
		}
	}
}

// keypostd refuses with the words that are recognised; issuer/listen/shield is not linked.
func TestShieldBody(t *testing.T) {
	source, err := os.ReadFile("../listen/shield/shield.go")
	check(t, err)
	if !strings.Contains(string(source), strconv.Quote(strings.TrimSuffix(finding.ShieldBody, "\n"))) {
		t.Errorf("issuer/listen/shield does not answer %q", finding.ShieldBody)
	}
}
