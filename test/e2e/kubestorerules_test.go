//go:build e2e

package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// spec is the spec of a stored key set, to be changed as somebody with an editor would.
type spec map[string]any

func (s spec) list(member string) []any {
	all, _ := s[member].([]any)
	return all
}

func (s spec) entry(member string, i int) map[string]any {
	return s.list(member)[i].(map[string]any) //nolint:forcetypeassert // the test wrote it
}

// next sets the generation by up to many changes, each with its line of history.
func (s spec) next(changes int) {
	s["generation"] = s["generation"].(float64) + float64(changes) //nolint:forcetypeassert // the test wrote it
	for i := range changes {
		s.note(fmt.Sprintf("change %d", i))
	}
}

func (s spec) note(what string) {
	s["history"] = append(s.list("history"), map[string]any{"at": time.Now().UTC().Format(time.RFC3339Nano), "what": what})
}

func (s spec) without(member string, i int) map[string]any {
	all := s.list(member)
	out := all[i].(map[string]any) //nolint:forcetypeassert // the test wrote it
	s[member] = slices.Delete(slices.Clone(all), i, i+1)
	return out
}

func (s spec) bury(k map[string]any, why string) {
	s["gone"] = append(s.list("gone"), map[string]any{"kid": k["kid"], "at": "2026-05-01T00:00:00Z", "why": why})
}

// ruled is one update of the key set that ruledSet makes, and what the API server says of it: nothing, or a message.
type ruled struct {
	name   string
	change func(s spec)
	want   string
}

const (
	saysGeneration = "a changed key set needs the next generation"
	saysJump       = "the generation must go up by 1"
	saysURL        = "a key set keeps one of its issuer URLs"
	saysLeft       = "a key may leave only with a line in gone"
	saysMaterial   = "the key behind a kid never changes"
	saysGone       = "gone only grows"
	saysReturned   = "a key that is gone never comes back"
)

func ruledUpdates(t *testing.T) []ruled {
	other := otherKey(t)
	return append(ruledGenerations(), []ruled{
		{"a key is added", func(s spec) { s.next(1); s["keys"] = append(s.list("keys"), other) }, ""},
		{"a key changes its state", func(s spec) { s.next(1); s.entry("keys", 1)["state"] = "next" }, ""},
		{"a key leaves with its line in gone", func(s spec) { s.next(1); s.bury(s.without("keys", 1), "revoked") }, ""},
		{"all keys leave with their lines", func(s spec) {
			s.next(1)
			for len(s.list("keys")) > 0 {
				s.bury(s.without("keys", 0), "revoked")
			}
		}, ""},
		{"a key leaves without a line", func(s spec) { s.next(1); s.without("keys", 1) }, saysLeft},
		{"the order of the keys changes", func(s spec) { s.next(1); slices.Reverse(s.list("keys")) }, ""},
		{"a kid gets another key", func(s spec) { s.next(1); s.entry("keys", 0)["publicKey"] = other["publicKey"] }, saysMaterial},
		{"a kid is there twice", func(s spec) { s.next(1); s["keys"] = append(s.list("keys"), maps.Clone(s.entry("keys", 0))) }, "kid"},
		{"an unknown state", func(s spec) { s.next(1); s.entry("keys", 0)["state"] = "resting" }, "Unsupported value"},
		{"a private key", func(s spec) { s.next(1); s.entry("keys", 0)["publicKey"] = "-----BEGIN PRIVATE KEY-----\n" }, "should match"},

		{"a line of gone goes", func(s spec) { s.next(1); s.without("gone", 0) }, saysGone},
		{"gone goes", func(s spec) { s.next(1); delete(s, "gone") }, saysGone},
		{"a line of gone takes the place of another", func(s spec) { s.next(1); s.entry("gone", 0)["kid"] = "innocent" }, saysGone},
		{"a line of gone spells its time otherwise", func(s spec) { s.next(1); s.entry("gone", 0)["at"] = "2026-01-01T02:00:00+02:00" }, ""},
		{"a key comes back from gone", func(s spec) {
			s.next(1)
			back := maps.Clone(other)
			back["kid"], back["importedKid"] = "lost-laptop", true
			s["keys"] = append(s.list("keys"), back)
		}, saysReturned},

		{"a key leaves with its fingerprint and its dates", func(s spec) {
			s.next(1)
			k := s.without("keys", 1)
			s.bury(k, "removed")
			line := s.entry("gone", len(s.list("gone"))-1)
			line["fingerprint"], line["publishedAt"], line["retiredAt"] = k["kid"], k["publishedAt"], "2026-05-01T00:00:00Z"
		}, ""},
		{"a line of gone gets a fingerprint", func(s spec) { s.next(1); s.entry("gone", 0)["fingerprint"] = other["kid"] }, saysGone},
		{"a key comes back that left under another kid", func(s spec) {
			s.next(1)
			s["gone"] = append(s.list("gone"), map[string]any{"kid": "legacy", "fingerprint": other["kid"], "at": "2026-05-01T00:00:00Z", "why": "revoked"})
			s["keys"] = append(s.list("keys"), other)
		}, saysReturned},
		{"more lines than leave room for the keys", func(s spec) {
			s.next(1)
			for i := len(s.list("gone")); i < 3999; i++ {
				s["gone"] = append(s.list("gone"), map[string]any{"kid": fmt.Sprint("gone-", i), "at": "2026-01-01T00:00:00Z", "why": "removed"})
			}
		}, "so that every key can still leave"},

		{"a URL is added", func(s spec) { s.next(1); s["issuers"] = append(s.list("issuers"), "https://new.example.com") }, ""},
		{"a URL is dropped, which maybe was never served", func(s spec) { s.next(1); s["issuers"] = s.list("issuers")[:1] }, ""},
		{"the canonical URL is dropped", func(s spec) { s.next(1); s["issuers"] = s.list("issuers")[1:] }, ""},
		{"every URL is changed", func(s spec) { s.next(1); s["issuers"] = []any{"https://oidc.example.com/prod-B"} }, saysURL},
		{"the issuer is withdrawn", func(s spec) { s.next(1); s["withdrawnAt"] = "2026-05-01T00:00:00Z" }, ""},
		{"no URL", func(s spec) { s.next(1); s["issuers"] = []any{} }, "should have at least 1 items"},
	}...)
}

func ruledGenerations() []ruled {
	return []ruled{
		{"nothing changes", func(spec) {}, ""},
		{"the next generation", func(s spec) { s.next(1) }, ""},
		{"the next generation without a line of history", func(s spec) { s["generation"] = 6.0 }, ""},
		{"two generations with one line of history", func(s spec) { s.next(1); s["generation"] = 7.0 }, saysJump},
		{"far ahead by an accept", func(s spec) { s.note("accept"); s["generation"] = 1000.0 }, ""},
		{"out of reach by an accept", func(s spec) { s.note("accept"); s["generation"] = 9007199254740991.0 }, saysJump},
		{"a lower generation", func(s spec) { s["generation"] = 4.0 }, saysGeneration},
		{"the same generation with another policy", func(s spec) { s["policy"] = map[string]any{"maxAge": "10m"} }, saysGeneration},
		{"the next generation with a member of a newer version", func(s spec) { s.next(1); s["fromTheFuture"] = "x" }, ""},
		{"generation 0", func(s spec) { s["generation"] = 0.0 }, "greater than or equal to 1"},
	}
}

func otherKey(t *testing.T) map[string]any {
	s := storetest.KeySet(t, "other")
	return specOf(t, s).entry("keys", 0)
}

func specOf(t *testing.T, s keystore.KeySet) spec {
	t.Helper()
	data, err := json.Marshal(s)
	must(t, err)
	var d struct{ Spec spec }
	must(t, json.Unmarshal(data, &d))
	return d.Spec
}

// ruledSet is a key set at generation 5 with two keys, two URLs and two lines in gone, one of a newer version.
func ruledSet(t *testing.T) spec {
	s := specOf(t, storetest.KeySet(t, "rules", storetest.Key(t), storetest.Key(t)))
	s["generation"] = 5.0
	s["issuers"] = []any{"https://oidc.example.com/rules", "https://rules.oidc.example.com"}
	s["gone"] = []any{
		map[string]any{"kid": "lost-laptop", "at": "2026-01-01T00:00:00Z", "why": "revoked"},
		map[string]any{"kid": "old", "at": "2026-01-02T00:00:00Z", "why": "removed", "fromTheFuture": true},
	}
	return s
}

func manifest(t *testing.T, n string, s spec) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"apiVersion": "keypost.dev/v1", "kind": "KeySet", "metadata": map[string]any{"name": n}, "spec": s})
	must(t, err)
	return string(data)
}

// rules tries every update twice: as kubectl replace makes it and as a server-side apply (Argo, Flux) makes it. Each is sent by itself:
// kubectl takes longer to start than the API server to answer.
func (p *kubeScene) rules(t *testing.T) {
	ns := p.space(t)
	all := "https://" + p.c.address + "/apis/keypost.dev/v1/namespaces/" + ns + "/keysets"
	for i, c := range ruledUpdates(t) {
		for _, how := range []string{"replace", "apply"} {
			n := fmt.Sprintf("rules-%s-%d", how, i)
			s := ruledSet(t)
			code, answer := p.send(t, http.MethodPost, all, "application/json", manifest(t, n, s))
			var made struct {
				Metadata struct{ ResourceVersion string }
			}
			if must(t, json.Unmarshal([]byte(answer), &made)); code != http.StatusCreated {
				t.Fatalf("%s: %s", n, answer)
			}
			c.change(s)
			if text := manifest(t, n, s); how == "replace" {
				text = strings.Replace(text, `"metadata":{`, `"metadata":{"resourceVersion":"`+made.Metadata.ResourceVersion+`",`, 1)
				code, answer = p.send(t, http.MethodPut, all+"/"+n, "application/json", text)
			} else {
				code, answer = p.send(t, http.MethodPatch, all+"/"+n+"?fieldManager=test&force=true", "application/apply-patch+yaml", text)
			}
			switch {
			case c.want == "" && code != http.StatusOK:
				t.Errorf("%s (%s): refused: %s", c.name, how, answer)
			case c.want != "" && (code == http.StatusOK || !strings.Contains(answer, c.want)):
				t.Errorf("%s (%s): %d: %s, want %q", c.name, how, code, answer, c.want)
			case c.want == "":
				wantSpec(t, n, answer, s)
			}
		}
	}
	p.lowered(t, ns)
	p.refusedNames(t, ns)
	p.largest(t, ns)
}

// send makes one request of the administrator to the API server.
func (p *kubeScene) send(t *testing.T, method, url, kind, body string) (code int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Authorization", "Bearer "+adminToken)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: p.ca.Pool()}}}
	res, err := client.Do(req)
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(t, err)
	return res.StatusCode, string(text)
}

// lowered: only an accept goes back to an earlier generation, and only from where no publisher follows.
func (p *kubeScene) lowered(t *testing.T, ns string) {
	for i, c := range []struct {
		from    float64
		what    string
		refused bool
	}{
		{1<<53 - 1, "accept", false},
		{1<<53 - 1, "x", true},
		{8 + 1<<20 - 1, "accept", false},
		{8 + 1<<20 - 2, "accept", true},
		{1000, "accept", true},
	} {
		n := fmt.Sprint("lowered-", i)
		s := ruledSet(t)
		s["generation"] = c.from
		p.try(t, manifest(t, n, s), "create", "-n", ns, "-f", "-").ok(t)
		s.note(c.what)
		s["generation"] = 8.0
		r := p.try(t, manifest(t, n, s), "replace", "-n", ns, "-f", "-")
		if (r.code != 0) != c.refused || c.refused && !strings.Contains(r.stderr, saysGeneration) {
			t.Errorf("from %v to 8 by %s: exit code %d: %s", c.from, c.what, r.code, r.stderr)
		}
	}
}

// largest: what the rules cost is within the API server's budget also at the limits that the definition sets.
func (p *kubeScene) largest(t *testing.T, ns string) {
	s := ruledSet(t)
	for i := len(s.list("keys")); i < 200; i++ {
		k := maps.Clone(s.entry("keys", 0))
		k["kid"], k["importedKid"] = fmt.Sprintf("%043d", i), true
		s["keys"] = append(s.list("keys"), k)
	}
	for i := len(s.list("gone")); i < 3800; i++ {
		s["gone"] = append(s.list("gone"), map[string]any{"kid": fmt.Sprintf("gone-%038d", i), "fingerprint": fmt.Sprintf("%042dA", i), "at": "2026-01-01T00:00:00Z", "why": "removed",
			"publishedAt": "2026-01-01T00:00:00Z", "promotedAt": "2026-01-01T00:00:00Z", "retiredAt": "2026-01-01T00:00:00Z"})
	}
	p.try(t, manifest(t, "largest", s), "create", "-n", ns, "-f", "-").ok(t)
	s.next(1)
	s.bury(s.without("keys", 100), "revoked")
	began := time.Now()
	p.try(t, manifest(t, "largest", s), "replace", "-n", ns, "-f", "-").ok(t)
	t.Logf("200 keys and 3,800 lines in gone (%d kB): replaced in %v, kubectl included", len(manifest(t, "largest", s))/1000, time.Since(began).Round(time.Millisecond))
	s.next(1)
	s.without("gone", 2000)
	if r := p.try(t, manifest(t, "largest", s), "replace", "-n", ns, "-f", "-"); r.code == 0 || !strings.Contains(r.stderr, saysGone) {
		t.Errorf("one of 3,801 lines goes: exit code %d: %s", r.code, r.stderr)
	}
}

// wantSpec: what was accepted is stored whole, members of a newer version too.
func wantSpec(t *testing.T, n, answer string, want spec) {
	t.Helper()
	var stored struct{ Spec spec }
	must(t, json.Unmarshal([]byte(answer), &stored))
	a, err := json.Marshal(stored.Spec)
	must(t, err)
	b, err := json.Marshal(want)
	must(t, err)
	if string(a) != string(b) {
		t.Errorf("%s is stored as\n%s\nwant\n%s", n, a, b)
	}
}

func (p *kubeScene) refusedNames(t *testing.T, ns string) {
	for _, n := range []string{"two.labels", strings.Repeat("a", 64)} {
		if r := p.try(t, manifest(t, n, ruledSet(t)), "create", "-n", ns, "-f", "-"); r.code == 0 || !strings.Contains(r.stderr, "must be a DNS label") {
			t.Errorf("a key set named %s: exit code %d: %s", n, r.code, r.stderr)
		}
	}
}
