package page_test

import (
	"crypto/elliptic"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/page"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/golden"
	"github.com/keypost/keypost/test/keys"
)

// lived returns a key set after two years: a rotation that has ended, a key that was taken back, and a rotation under way.
func lived(t *testing.T) keystore.KeySet {
	t.Helper()
	key := func(n int) keystore.VerificationKey {
		k, err := keystore.NewPublic(keys.EC(elliptic.P256(), n).Public())
		check(t, err)
		return k
	}
	u, err := keystore.ParseIssuerURL("https://oidc.example.com/prod-a", false)
	check(t, err)
	d := keystore.DurationPtr
	s, err := keystore.New(keystore.Change{At: t0, By: "ada", Why: "a new cluster"}, keystore.Spec{
		Name: "prod-a", Issuers: []keystore.IssuerURL{u}, Keys: []keystore.VerificationKey{key(1)},
		Policy: keystore.Policy{
			RelyingParties: []string{"aws", "gcp"}, TokenLifetime: d(24 * time.Hour), MaxAge: d(5 * time.Minute), StaleWhileRevalidate: d(10 * time.Minute),
			StaleIfError: d(2 * time.Hour), EdgeHold: d(3 * time.Hour), Private: true,
		},
	})
	check(t, err)
	store := storetest.NewMemStore(t)
	check(t, keystore.Create(t.Context(), store.Store, s))
	step := func(after time.Duration, by string, change func(keystore.Change, keystore.KeySet) (keystore.KeySet, error)) {
		t.Helper()
		s, err = keystore.Update(t.Context(), store.Store, "prod-a", func(was keystore.KeySet) (keystore.KeySet, error) {
			return change(keystore.Change{At: t0.Add(after), By: by, Why: "because of " + by}, was)
		})
		check(t, err)
	}
	const day = 24 * time.Hour
	seen := keystore.Observed{Since: t0.Add(day), Fresh: t0.Add(9 * day), Newest: t0.Add(9 * day)}
	step(day, "bob", func(c keystore.Change, s keystore.KeySet) (keystore.KeySet, error) { return s.StartRotation(c, key(2)) })
	step(9*day, "bob", func(c keystore.Change, s keystore.KeySet) (keystore.KeySet, error) {
		return s.Promote(c, key(2).ID(), seen)
	})
	step(10*day+time.Millisecond, "carol", func(c keystore.Change, s keystore.KeySet) (keystore.KeySet, error) {
		return s.Retire(c, key(1).ID(), keystore.Evidence{Statement: "all sign with the other"})
	})
	step(40*day, "carol", func(c keystore.Change, s keystore.KeySet) (keystore.KeySet, error) {
		return s.Remove(c, key(1).ID(), keystore.Removal{})
	})
	step(50*day, "dan", func(c keystore.Change, s keystore.KeySet) (keystore.KeySet, error) { return s.Add(c, key(3)) })
	step(51*day, "dan", func(c keystore.Change, s keystore.KeySet) (keystore.KeySet, error) {
		return s.Remove(c, key(3).ID(), keystore.Removal{NeverSigned: true})
	})
	step(700*day, "eve", func(c keystore.Change, s keystore.KeySet) (keystore.KeySet, error) { return s.StartRotation(c, key(4)) })
	step(710*day, "eve", func(c keystore.Change, s keystore.KeySet) (keystore.KeySet, error) {
		c.Force = true
		return s.Promote(c, key(4).ID(), keystore.Observed{Since: t0.Add(701 * day), Fresh: c.At, Newest: c.At})
	})
	step(711*day+time.Millisecond, "eve", func(c keystore.Change, s keystore.KeySet) (keystore.KeySet, error) {
		return s.Retire(c, key(2).ID(), keystore.Evidence{Statement: "all sign with the other"})
	})
	return s
}

// TestGolden holds the whole of three pages: each cell.
func TestGolden(t *testing.T) {
	s := lived(t)
	about := at(711*24*time.Hour + 90*time.Minute)
	about.Complete = about.Made.Add(-2 * time.Minute)
	about.Mirror = &page.Mirror{Store: "kubernetes://oidc", Complete: about.Made.Add(-time.Hour), KeySets: 3, Refused: 1}
	about.Trouble = []page.Trouble{{Text: "The mirror is late.", Runbook: page.RunbookMirror}}
	about.Certificates = []page.Certificate{
		{Names: []string{"oidc.example.com", "b.example.com"}, From: "/tls/tls.crt", Until: about.Made.Add(40*24*time.Hour + 5*time.Hour)}, {Names: []string{"new.example.com"}, From: "https://ca.example"},
	}
	served := issuer.Status{Name: "prod-a", Generation: s.Generation() - 1, Served: true, Kids: []keystore.KeyID{s.Keys()[0].ID()}}
	whole := page.Of(about, served, &s, "")
	broken := issuer.Status{Name: "prod-b", Issuers: []string{"https://b.example.com"}, Rejected: "broken", Message: "no YAML"}
	rejected := page.Of(about, broken, nil, "")
	withdrawn := issuer.Status{Name: "prod-c", Generation: 4, Issuers: []string{"https://c.example.com", "https://d.example.com"}}
	gone := page.Of(about, withdrawn, nil, "")
	list := page.List{About: about, KeySets: 3, Issuers: 4, Attention: 1, First: []page.KeySet{rejected}}
	list.Rows = []page.KeySet{whole, rejected, gone}
	for file, p := range map[string]any{"keyset": whole, "rejected": rejected, "list": list} {
		html, err := page.HTML(p)
		check(t, err)
		golden.Same(t, "testdata/"+file+".txt", cells(string(html)))
	}
}

var tags = regexp.MustCompile(`<[^>]*>`)

// cells returns the text of a page, a cell, a heading or a paragraph on a line, with its links.
func cells(html string) string {
	_, body, _ := strings.Cut(html, "<main")
	for _, end := range []string{"</td>", "</th>", "</p>", "</h1>", "</h2>", "</dd>", "</dt>", "</li>", "</caption>", "</tr>"} {
		body = strings.ReplaceAll(body, end, "\n")
	}
	body = regexp.MustCompile(`<a href="([^"]*)"[^>]*>`).ReplaceAllString(body, "[$1] ")
	body = regexp.MustCompile(`<(strong|span) class="(bad|good)">`).ReplaceAllString(body, "($2) ")
	var lines []string
	for line := range strings.Lines(tags.ReplaceAllString("<main"+body, "")) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
