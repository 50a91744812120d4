package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/internal/admin"
	"github.com/keypost/keypost/issuer/page"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/replicate"
)

// paged is a keypostd with the key sets of test/contract and its page.
type paged struct {
	*daemon
	dir  string
	page http.Handler
}

func newPaged(t testing.TB) *paged {
	t.Helper()
	p := &paged{dir: t.TempDir()}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.CopyFS(p.dir, os.DirFS("../../test/contract/testdata/keysets")))
	c, err := parseConfig(fmt.Appendf(nil, "dir: %s\nissuerURLs: [\"https://oidc.example.com/{name}\", \"https://{name}.oidc.example.com\", \"prod-b=https://d111.example.net/b\"]\nlisten: {tls: {mode: off}}\n", p.dir))
	check(err)
	p.daemon, err = newDaemon(c, "", io.Discard)
	check(err)
	check(p.publisher.Refresh(t.Context()))
	p.page = admin.Local(newPages(p.daemon), false)
	return p
}

// get asks as a browser behind a port-forward does.
func (p *paged) get(path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.RemoteAddr, r.Host = "127.0.0.1:40000", "localhost:9090"
	w := httptest.NewRecorder()
	p.page.ServeHTTP(w, r)
	return w
}

// keySet returns the page about a key set.
func (p *paged) keySet(t *testing.T, name string) page.KeySet {
	t.Helper()
	one, ok := newPages(p.daemon).find(t.Context(), "/keysets/"+name).(page.KeySet)
	if !ok {
		t.Fatalf("no page about %s", name)
	}
	return one
}

func TestPages(t *testing.T) {
	p := newPaged(t)
	for path, want := range map[string]string{
		"/": "<h1>Key sets</h1>", "/index.html": ">prod-a</a>", "/keysets/prod-a.html": "<h1>prod-a</h1>",
	} {
		w := p.get(path)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d without %q:\n%s", path, w.Code, want, w.Body)
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; ") || !strings.HasSuffix(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: policy %q", path, csp)
		}
		if h := w.Header(); h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cross-Origin-Opener-Policy") != "same-origin" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
	for _, path := range []string{"/keysets/prod-z.html", "/keysets/", "/keysets/../prod-a.html", "/keysets/%3Cscript%3E.html", "/debug/pprof/", "/a/b/c"} {
		if w := p.get(path); w.Code != http.StatusNotFound || strings.Contains(w.Body.String(), "<script") {
			t.Errorf("%s: %d:\n%s", path, w.Code, w.Body)
		}
	}
}

// What is wrong stands on the first page, with what is written about it.
func TestPageShowsTrouble(t *testing.T) {
	p := newPaged(t)
	if err := os.WriteFile(filepath.Join(p.dir, "prod-a.yaml"), []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	note, err := json.Marshal(replicate.Heartbeat{Complete: time.Now().Add(-time.Hour), Store: "kubernetes://oidc", KeySets: 3, Refused: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, replicate.HeartbeatFile), note, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.publisher.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := p.get("/").Body.String()
	for _, want := range []string{"Needs attention", "an older version is served", "broken", "#keypostkeysetsrejected", "kubernetes://oidc", "#keypostmirrorstale"} {
		if !strings.Contains(list, want) {
			t.Errorf("the list does not have %q:\n%s", want, list)
		}
	}
	one := p.keySet(t, "prod-a")
	if one.State != page.StateBehind || one.Rejected == nil || one.Rejected.Reason != "broken" || one.Served.Generation == 0 || len(one.Served.Kids) == 0 || one.Stored != nil {
		t.Errorf("%+v", one)
	}
}

// What the mirror beside the directory did not copy is told, with the lines in gone that a decision about it needs.
func TestPageShowsWhatTheMirrorRefuses(t *testing.T) {
	p := newPaged(t)
	note, err := json.Marshal(replicate.Heartbeat{Complete: time.Now(), KeySets: 3, Refused: 2, Reasons: map[keystore.Name]keystore.Reason{"prod-a": "same_generation", "prod-z": "broken"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, replicate.HeartbeatFile), note, 0o600); err != nil {
		t.Fatal(err)
	}
	reasons := map[keystore.Name]keystore.Reason{}
	for _, s := range p.publisher.Report().Issuers {
		reasons[s.Name] = s.Rejected
	}
	if reasons["prod-a"] != "same_generation" || reasons["prod-z"] != "broken" || reasons["prod-b"] != "" {
		t.Errorf("the report: %v", reasons)
	}
	one := p.keySet(t, "prod-a")
	if one.State != page.StateBehind || one.Rejected == nil || one.Rejected.Reason != "same_generation" {
		t.Errorf("the page: %+v", one)
	}
	if list := p.get("/").Body.String(); !strings.Contains(list, "same_generation") {
		t.Errorf("the list:\n%s", list)
	}
}

// The document of what is served comes from the directory, as long as that holds it.
func TestDocumentForARestore(t *testing.T) {
	p := newPaged(t)
	w := p.get("/keysets/prod-a.yaml")
	if _, err := keystore.Parse("prod-a", w.Body.Bytes()); err != nil || w.Code != http.StatusOK {
		t.Errorf("%d, %v:\n%s", w.Code, err, w.Body)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "prod-a.yaml"), []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/keysets/prod-a.yaml", "/keysets/prod-z.yaml", "/keysets/../prod-b.yaml", "/prod-b.yaml"} {
		if w := p.get(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d:\n%s", path, w.Code, w.Body)
		}
	}
}

// The page and the report are for everybody only if the configuration says so.
func TestWhoGetsThePage(t *testing.T) {
	p := newPaged(t)
	for _, everybody := range []bool{false, true} {
		p.c.Admin.Page = everybody
		served := p.adminPages()
		for path, h := range map[string]http.Handler{"/index.html": served.Rest, "/issuers": served.Extra["/issuers"]} {
			for from, want := range map[string]int{"127.0.0.1:40000": http.StatusOK, "10.1.2.3:40000": map[bool]int{false: http.StatusForbidden, true: http.StatusOK}[everybody]} {
				r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
				r.RemoteAddr, r.Host = from, "127.0.0.1:9090"
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != want {
					t.Errorf("admin.page: %v: %s for %s: %d; want %d", everybody, path, from, w.Code, want)
				}
			}
		}
	}
}

// hung is a directory that gives up on a document.
type hung struct{ keystore.Reader }

func (h hung) Load(ctx context.Context, n keystore.Name) (keystore.KeySet, keystore.Revision, error) {
	if n == "prod-a" {
		return keystore.KeySet{}, "", errors.New("the directory hangs")
	}
	return h.Reader.Load(ctx, n)
}

// A file system that does not answer costs the page a document and not the page.
func TestPageOfAHungDirectory(t *testing.T) {
	p := newPaged(t)
	p.publishing.Source = hung{p.publishing.Source}
	if w := p.get("/keysets/prod-a.html"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "the directory hangs") {
		t.Errorf("%d:\n%s", w.Code, w.Body)
	}
	if w := p.get("/"); !strings.Contains(w.Body.String(), ">prod-b</a>") {
		t.Errorf("the list: %d:\n%s", w.Code, w.Body)
	}
}
