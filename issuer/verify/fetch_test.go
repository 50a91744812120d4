package verify

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore/storetest"
)

func (w *world) client(t *testing.T) *fetch.Client {
	t.Helper()
	w.start(t)
	return fetch.Network{RootCAs: w.options.RootCAs, Dial: w.options.Dial}.Client()
}

func TestClientJWKS(t *testing.T) {
	w := newWorld(t)
	c := w.client(t)
	for url, issuer := range map[string]string{testIssuer: testIssuer, testIssuer + "/keys.json": ""} {
		p, err := c.JWKS(t.Context(), url)
		if err != nil || len(p.Keys) != 1 || string(p.Keys[0].ID()) != w.kid || p.Issuer != issuer || p.URL != testIssuer+"/keys.json" {
			t.Errorf("JWKS(%s) = %+v, %v", url, p, err)
		}
	}
}

// Keys of a type that no key set can have are left out, and named.
func TestClientJWKSLeavesOut(t *testing.T) {
	w := newWorld(t)
	w.jwks = append(w.jwks, member{"kty": "AKP", "kid": "pq", "alg": "ML-DSA-65", "use": "sig", "pub": "AAAA"})
	c := w.client(t)
	for _, url := range []string{testIssuer, testIssuer + "/keys.json"} {
		p, err := c.JWKS(t.Context(), url)
		if err != nil || len(p.Keys) != 1 || string(p.Keys[0].ID()) != w.kid || len(p.Left) != 1 || p.Left[0].ID != "pq" {
			t.Errorf("JWKS(%s) = %+v, %v", url, p, err)
		}
	}
}

func TestClientJWKSRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, url, want string
		make            func(w *world)
	}{
		{"plain HTTP", "http://oidc.example.com/prod-a", "must begin with https://", func(*world) {}},
		{"nothing there", testIssuer + "/absent", "answers 404", func(*world) {}},
		{"another issuer", testIssuer, "names the issuer", func(w *world) { w.discovery["issuer"] = "https://evil.example.com" }},
		{"redirect", testIssuer, "redirects (302)", func(w *world) {
			w.replace["/prod-a/keys.json"] = answer(302, "Location: https://evil.example.com/keys.json", "")
		}},
		{"JWKS over HTTP", testIssuer, "must begin with https://", func(w *world) { w.discovery["jwks_uri"] = "http://oidc.example.com/keys.json" }},
		{"empty JWKS", testIssuer, "without a key", func(w *world) { w.jwks = []member{} }},
		{"private key", testIssuer, "private", func(w *world) { w.jwks[0]["d"] = "c2VjcmV0" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.make(w)
			p, err := w.client(t).JWKS(t.Context(), tt.url)
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(p.Keys) > 0 {
				t.Errorf("JWKS = %+v, %v, want %q", p, err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "c2VjcmV0") {
				t.Errorf("quotes the key: %v", err)
			}
		})
	}
}

// FuzzJWKS: whatever a stranger's server answers is looked at without a crash, and a private member never passes.
func FuzzJWKS(f *testing.F) {
	f.Add(`{"keys":[]}`)
	f.Add(`{"keys":[{"kty":"EC","crv":"P-256","kid":"a","alg":"ES256","use":"sig","x":"axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY","y":"T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}]}`)
	f.Add(`{"keys":[{"kty":"EC","crv":"P-256","kid":"a","d":"AA","x":"axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY","y":"T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}]}`)
	f.Add(`{"keys":[{"kty":"RSA","kid":7,"n":"AA","e":"AQAB"},null,{"kid":"\u001b[31m"}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		set, err := fetch.ParseJWKS(fetch.Answer{URL: testIssuer, Body: []byte(body)})
		if err != nil {
			return
		}
		v := &visit{}
		read := v.checkKeys(testIssuer, set)
		private := false
		for _, k := range set {
			_, d := k["d"]
			private = private || d
		}
		if private && !finding.Failed(v.Findings) {
			t.Errorf("a private member passes: %q", body)
		}
		if len(read.keys)+read.unread != len(set) || (len(set) == 0) != strings.Contains(lastMessage(v), "has no key") {
			t.Errorf("%d keys of %d: %+v", len(read.keys), len(set), v.Findings)
		}
		for _, finding := range v.Findings {
			if strings.ContainsAny(finding.Evidence, "\n\x1b\x00") {
				t.Errorf("control characters: %+v", finding)
			}
		}
	})
}

func lastMessage(v *visit) string {
	if len(v.Findings) == 0 {
		return ""
	}
	return v.Findings[len(v.Findings)-1].Evidence
}

// An impostor may serve keys of its own to everybody but keypost. It cannot tell by a header: looks send what any program in Go sends.
func TestLooksSendWhatAnyProgramSends(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	sent := map[string]bool{}
	w.seen = func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		sent[fmt.Sprint(r.Method, r.Proto, r.Host, r.Header, r.Close)] = true
	}
	w.start(t)
	c := &http.Client{Transport: &http.Transport{DialContext: w.options.Dial, TLSClientConfig: &tls.Config{RootCAs: w.pki.root.Pool()}}}
	res, err := c.Get(testIssuer)
	check(t, err)
	check(t, res.Body.Close())
	c.CloseIdleConnections()
	usual := sent
	sent = map[string]bool{}
	n := w.options.Network
	_, err = Observe(t.Context(), n, Target{URL: storetest.URLs(t, testIssuer)[0], pause: time.Millisecond})
	check(t, err)
	Examine(t.Context(), w.options)
	for request := range sent {
		if !usual[request] {
			t.Errorf("sent %s; a plain client sends %v", request, slices.Sorted(maps.Keys(usual)))
		}
	}
	if len(sent) == 0 {
		t.Error("nothing was sent")
	}
}
