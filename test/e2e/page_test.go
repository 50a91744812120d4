//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// hostile is what somebody may type as a name or a reason: as a page it would run, and as text it reads otherwise than it is.
const hostile = `<script>document.title="run"</script><img src=x onerror=alert(1)>` + "safe\u202egpj.exe \x1b[2J"

// pageScene is a store with something of everything that a page shows, and a keypostd that serves it.
type pageScene struct{ *server }

func newPageScene(t *testing.T) pageScene {
	t.Helper()
	s := pageScene{newStore(t, newAuthority(t))}
	dir := t.TempDir()
	key := func(name string) string {
		s.keypost(t, "key", "generate", "--type", "p256", "--out", filepath.Join(dir, name)).ok(t)
		return filepath.Join(dir, name, "sa.pub")
	}
	add := func(name string, more ...string) {
		s.keypost(t, append([]string{"issuer", "add", name, "--url", "https://oidc.keypost.test/" + name, "--public-key-file", key(name), "--by", "ada@example.com"}, more...)...).ok(t)
	}
	declared := []string{"--relying-party", "aws", "--token-lifetime", "24h"}
	for _, name := range []string{"prod-a", "prod-b", "prod-c", "prod-d", "prod-e"} {
		add(name, declared...)
	}
	document := func(name string) string { return filepath.Join(s.store, name+".yaml") }
	plain := read(t, document("prod-a"))
	bare := regexp.MustCompile(`(?s)  history:\n.*?  issuers:`).ReplaceAllString(string(plain), "  issuers:") // a digest belongs to one name
	for i := range 110 {                                                                                      // more than a page of the list
		name := fmt.Sprintf("many-%03d", i)
		must(t, os.WriteFile(document(name), []byte(strings.ReplaceAll(bare, "prod-a", name)), 0o644))
	}
	s.keypost(t, "rotate", "start", "prod-a", "--public-key-file", key("next"), "--by", "ada@example.com").ok(t)
	s.keypost(t, "rotate", "start", "prod-b", "--public-key-file", key("stolen")).ok(t)
	var list struct {
		Keys []struct{ Kid, State string }
	}
	must(t, json.Unmarshal([]byte(s.keypost(t, "key", "list", "prod-b", "-o", "json").ok(t)), &list))
	for i, k := range list.Keys {
		if k.State == "next" {
			s.keypost(t, "key", "promote", "prod-b", k.Kid, "--force", "--why", "now & at once").ok(t)
			s.keypost(t, "key", "retire", "prod-b", list.Keys[1-i].Kid, "--why", "all sign with the new one").ok(t)
		}
	}
	s.keypost(t, "rotate", "start", "prod-e", "--public-key-file", key("hostile"), "--by", "MARK").ok(t) // which takes no control characters
	marked := read(t, document("prod-e"))
	quoted, err := json.Marshal(hostile)
	must(t, err)
	must(t, os.WriteFile(document("prod-e"), bytes.ReplaceAll(marked, []byte("MARK"), quoted), 0o644))
	s.run(t)
	must(t, os.WriteFile(document("broken"), []byte(hostile), 0o644))
	older := read(t, document("prod-d"))
	s.keypost(t, "issuer", "set", "prod-d", "--max-age", "10m").ok(t)
	s.awaitReport(t, `"name":"prod-d","issuers":["https://oidc.keypost.test/prod-d"],"generation":2`)
	must(t, os.WriteFile(document("prod-d"), older, 0o644)) // as a restored backup
	s.awaitReport(t, `"rejected":"older_generation"`)
	s.keypost(t, "issuer", "remove", "prod-c", "--force", "--confirm-url", "https://oidc.keypost.test/prod-c", "--why", "it is gone").ok(t)
	s.awaitReport(t, `"name":"prod-c","issuers":["https://oidc.keypost.test/prod-c"],"generation":2`)
	return s
}

func (s pageScene) awaitReport(t *testing.T, want string) {
	t.Helper()
	await(t, want, func(ctx context.Context) error {
		if report := get(t, http.DefaultClient, admin+"/issuers"); !strings.Contains(string(report), want) {
			return fmt.Errorf("the report is %.500s", report)
		}
		return ctx.Err()
	})
}

// pages are the addresses below a root.
var pages = []string{"index.html", "keysets/prod-a.html", "keysets/prod-b.html", "keysets/prod-c.html", "keysets/prod-d.html", "keysets/prod-e.html", "keysets/broken.html"}

// TestOperatorsPage shows the operator's page to Chromium, in both schemes and on a narrow screen: nothing on it runs
// or is fetched, and the browser has nothing to complain of. Pictures are kept beside the logs;
// KEYPOST_UPDATE=1 makes docs/page.png anew.
func TestOperatorsPage(t *testing.T) {
	s := newPageScene(t)
	b := newBrowser(t)
	t.Run("live", func(t *testing.T) {
		paper := map[string]string{}
		for _, page := range pages {
			for _, way := range []struct {
				name, scheme string
				width        int
			}{{"light", "light", 1280}, {"dark", "dark", 1280}, {"narrow", "light", 390}} {
				if way.name != "light" && !slices.Contains([]string{"index.html", "keysets/prod-b.html"}, page) {
					continue // what the others are made of, these have
				}
				b.show(t, way.width, way.scheme)
				b.open(t, admin+"/"+page)
				paper[way.name] = s.look(t, b, page)
				name := strings.NewReplacer("/", "-", "?", "-", ".html", "").Replace(page)
				b.picture(t, filepath.Join(t.ArtifactDir(), name+"-"+way.name+".png"))
				if page == "keysets/prod-a.html" && way.name == "light" && os.Getenv("KEYPOST_UPDATE") != "" {
					b.picture(t, "../../docs/page.png") // a rotation under way, for docs/page.md
				}
			}
		}
		if paper["light"] == paper["dark"] || paper["light"] != "rgb(255, 255, 255)" {
			t.Errorf("the paper is %v; are the styles in use?", paper)
		}
	})
	t.Run("rebinding", func(t *testing.T) {
		for url, want := range map[string]int{"http://oidc.keypost.test:9090/": 403, "http://oidc.keypost.test:9090/issuers": 403, "http://localhost:9090/": 200, "http://127.0.0.1:9090/issuers": 200} {
			b.open(t, url)
			var got int
			b.value(t, `performance.getEntriesByType("navigation")[0].responseStatus`, &got)
			if got != want {
				t.Errorf("%s: %d, want %d", url, got, want)
			}
		}
	})
}

// look finds fault with the page that is open, and returns the colour of its paper.
func (s pageScene) look(t *testing.T, b *browser, page string) string {
	t.Helper()
	var seen struct {
		Title, Paper           string
		Scripts, Fetched, Wide int
		Text                   string
	}
	b.value(t, `({title: document.title, scripts: document.querySelectorAll("script, [onerror], img, iframe").length, fetched: performance.getEntriesByType("resource").length,
		wide: document.documentElement.scrollWidth - document.documentElement.clientWidth, paper: getComputedStyle(document.body).backgroundColor, text: document.body.innerText})`, &seen)
	if seen.Scripts > 0 || seen.Fetched > 0 || seen.Wide > 0 || !strings.HasSuffix(seen.Title, " – keypost") || strings.ContainsAny(seen.Text, "\u202e\x1b") {
		t.Errorf("%s: %+v", page, seen)
	}
	if strings.HasSuffix(page, "prod-e.html") && !strings.Contains(seen.Text, "<script>") {
		t.Errorf("%s does not show what somebody has typed:\n%s", page, seen.Text)
	}
	if len(b.notes) > 0 {
		t.Errorf("%s:\n%s", page, strings.Join(b.notes, "\n"))
	}
	return seen.Paper
}
