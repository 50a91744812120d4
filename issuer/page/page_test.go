package page_test

import (
	"bytes"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/page"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/keys"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// at returns a page's About at a time after t0.
func at(d time.Duration) page.About {
	return page.About{Made: t0.Add(d), Build: "keypostd v1", Source: "the directory /srv"}
}

// newSet returns a key set with one active key.
func newSet(t *testing.T, by, why string) keystore.KeySet {
	t.Helper()
	u, err := keystore.ParseIssuerURL("https://oidc.example.com/prod-a", false)
	check(t, err)
	k, err := keystore.NewPublic(keys.EC(elliptic.P256(), 1).Public())
	check(t, err)
	s, err := keystore.New(keystore.Change{At: t0, By: by, Why: why}, keystore.Spec{
		Name: "prod-a", Issuers: []keystore.IssuerURL{u}, Keys: []keystore.VerificationKey{k},
		Policy: keystore.Policy{RelyingParties: []string{"aws"}, TokenLifetime: keystore.DurationPtr(24 * time.Hour)},
	})
	check(t, err)
	return s
}

// rotated is a rotation, and what it is like when the old key was retired.
type rotated struct {
	begun, retired keystore.KeySet
	old, fresh     keystore.KeyID
	seen           keystore.Observed
}

func newRotated(t *testing.T) rotated {
	t.Helper()
	s := newSet(t, "ada", "a new cluster")
	k, err := keystore.NewPublic(keys.EC(elliptic.P256(), 2).Public())
	check(t, err)
	r := rotated{old: s.Keys()[0].ID(), fresh: k.ID()}
	r.begun, err = s.StartRotation(keystore.Change{At: t0, By: "ada", Why: "yearly"}, k)
	check(t, err)
	late := keystore.Change{At: t0.Add(48 * time.Hour), By: "bob"}
	r.seen = keystore.Observed{Since: t0, Fresh: late.At, Newest: late.At}
	promoted, err := r.begun.Promote(late, r.fresh, r.seen)
	check(t, err)
	r.retired, err = promoted.Retire(late, r.old, keystore.Evidence{Statement: "all sign with it"})
	check(t, err)
	return r
}

func keyOf(t *testing.T, p page.KeySet, id keystore.KeyID) page.Key {
	t.Helper()
	i := slices.IndexFunc(p.Keys, func(k page.Key) bool { return k.ID() == id })
	if i < 0 {
		t.Fatalf("no key %s", id)
	}
	return p.Keys[i]
}

// When a gate opens on the page is when the transition opens, to the second.
func TestStepsAreThoseOfTheTransitions(t *testing.T) {
	r := newRotated(t)
	old := keyOf(t, page.Of(at(49*time.Hour), issuer.Status{}, &r.retired, ""), r.old)
	if old.Next == nil || old.Next.Step != keystore.StepRemove || !old.Next.Opens.Equal(old.TrustedUntil) || old.Expired {
		t.Fatalf("remove: %+v of %+v", old.Next, old)
	}
	for d, open := range map[time.Duration]bool{-time.Second: false, 0: true} {
		if _, err := r.retired.Remove(keystore.Change{At: old.Next.Opens.Add(d), By: "ada"}, r.old, keystore.Removal{}); (err == nil) != open {
			t.Errorf("remove at the page's time %+v: %v", d, err)
		}
	}
	after := keyOf(t, page.Of(at(24*30*time.Hour), issuer.Status{}, &r.retired, ""), r.old)
	if after.Next == nil || after.Next.Gate != "" || !after.Expired {
		t.Errorf("after a month: %+v", after)
	}
	if signs := keyOf(t, page.Of(at(49*time.Hour), issuer.Status{}, &r.retired, ""), r.fresh); signs.Next != nil {
		t.Errorf("the only key that signs waits for %+v", signs.Next)
	}
}

func TestStates(t *testing.T) {
	s := newSet(t, "ada", "")
	gone, err := s.Withdraw(keystore.Change{At: t0.Add(time.Hour), By: "ada", Why: "over", Force: true})
	check(t, err)
	served := func(generation int64, rejected keystore.Reason) issuer.Status {
		return issuer.Status{Generation: generation, Digest: s.Digest().String(), Served: true, Rejected: rejected}
	}
	for want, in := range map[page.State]struct {
		served issuer.Status
		stored *keystore.KeySet
	}{
		page.StateServed:    {served(1, ""), &s},
		page.StateBehind:    {served(2, "kid_missing"), &s},
		page.StateRejected:  {served(0, "kid_missing"), nil},
		page.StateMissing:   {served(3, "missing"), nil},
		page.StateWithdrawn: {issuer.Status{}, &gone},
		page.StateAbsent:    {served(0, ""), &s},
	} {
		if got := page.Of(at(0), in.served, in.stored, ""); got.State != want {
			t.Errorf("%s, want %s", got.State, want)
		}
	}
	if r := page.Of(at(0), served(3, "missing"), nil, "").Rejected; !strings.HasSuffix(r.Runbook, "#keypostkeysetsmissing") {
		t.Error(r.Runbook)
	}
	if w := page.Of(at(0), issuer.Status{}, &gone, ""); w.Next != nil || w.Keys[0].Next != nil {
		t.Error("a key of a withdrawn key set waits for something")
	}
}

// hostile is what somebody may have written where a name, a reason or a file's content is shown.
var hostile = []string{
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "</style><script>alert(1)</script>", "' onmouseover='alert(1)",
	"javascript:alert(1)", "{{.}}", "<!--", "]]>", "&lt;b&gt;", "safe\u202egpj.exe", "\u2066isolate", "\u200bhidden", "a\x00b\x1b[2Jc\u009bd", "\xff\xfe", "line\nbreak\r\ttab", "a\u2028b",
	strings.Repeat("long ", 200),
}

var elements = regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)

// Whatever texts say, the page has the same elements as with plain ones, and no character in it changes what stands around it.
func TestHostileTexts(t *testing.T) {
	write := func(t *testing.T, text string) (html []byte) {
		t.Helper()
		s := newSet(t, text, text)
		a := at(time.Hour)
		a.Source, a.Build = text, text
		a.Trouble = []page.Trouble{{Text: text}}
		a.Mirror = &page.Mirror{Store: text, Complete: t0}
		a.Certificates = []page.Certificate{{Names: []string{text}, From: text, Until: t0}}
		one := page.Of(a, issuer.Status{
			Name: keystore.Name(text), Rejected: keystore.Reason(text), Message: text, Generation: 7, Kids: []keystore.KeyID{keystore.KeyID(text)},
		}, &s, "")
		none := page.Of(a, issuer.Status{Name: "broken", Issuers: []string{text}}, nil, text)
		list := page.List{About: a, First: []page.KeySet{one}, Rows: []page.KeySet{one, none}}
		for _, p := range []any{one, none, list} {
			body, err := page.HTML(p)
			check(t, err)
			html = append(html, body...)
		}
		return html
	}
	shape := func(html []byte) (all []string) {
		for _, e := range elements.FindAll(html, -1) {
			all = append(all, regexp.MustCompile(`(href|value)="[^"<>]*"`).ReplaceAllString(string(e), "$1"))
		}
		return all
	}
	want := shape(write(t, "plain"))
	for _, text := range hostile {
		html := write(t, text)
		if got := shape(html); !slices.Equal(got, want) {
			t.Errorf("%.40q makes other elements:\n%.2000s", text, strings.Join(difference(got, want), "\n"))
		}
		for _, r := range string(html) {
			if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f || strings.ContainsRune("\u202e\u2066\u200b\u2028\ufffd", r) {
				t.Errorf("%.40q: the page holds %U", text, r)
				break
			}
		}
		if len(html) > 200<<10 {
			t.Errorf("%.40q: %d bytes", text, len(html))
		}
		for _, m := range regexp.MustCompile(`href="([^"]*)"`).FindAllSubmatch(html, -1) {
			if u, err := url.Parse(strings.ReplaceAll(string(m[1]), "&#43;", "+")); err != nil || u.Scheme != "" && u.Scheme != "https" {
				t.Errorf("%.40q leads to %s", text, m[1])
			}
		}
	}
}

func difference(got, want []string) (all []string) {
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			return append(all, "got  "+g, "want "+w)
		}
	}
	return all
}

// The styles are those that the policy knows by their hash, and nothing on a page asks for anything else.
func TestPolicy(t *testing.T) {
	s := newSet(t, "ada", "")
	for _, p := range []any{page.Of(at(0), issuer.Status{Name: "prod-a"}, &s, ""), page.List{About: at(0)}} {
		html, err := page.HTML(p)
		check(t, err)
		style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindSubmatch(html)
		if style == nil || !strings.Contains(page.Policy(), hashOf(style[1])) || !strings.Contains(page.Policy(), "default-src 'none'") {
			t.Errorf("the policy %s does not know the styles (%s)", page.Policy(), hashOf(style[1]))
		}
		for _, no := range []string{"<script", " style=", " src=", "url(", "@import", "rel=\"stylesheet"} {
			if bytes.Contains(html, []byte(no)) {
				t.Errorf("a page has %q", no)
			}
		}
	}
}

// hashOf returns what a browser compares with the policy.
func hashOf(style []byte) string {
	sum := sha256.Sum256(style)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// What has not been read is not shown as if it had: neither as served as stored, nor as without keys or a next step.
func TestUnread(t *testing.T) {
	const unread = "it has not been read in time"
	served := issuer.Status{Name: "prod-a", Generation: 7, Served: true}
	of := page.Of(at(0), served, nil, unread)
	l := page.List{About: at(0), Rows: []page.KeySet{of}}
	for name, p := range map[string]any{"list": l, "key set": of} {
		html, err := page.HTML(p)
		check(t, err)
		for _, lie := range []string{"served as stored", ">none<", "is not served"} {
			if strings.Contains(string(html), lie) {
				t.Errorf("%s: the page says %q", name, lie)
			}
		}
		for _, has := range []string{`class="bad">served; what is stored was not read`, "not known"} {
			if !strings.Contains(string(html), has) {
				t.Errorf("%s: the page does not say %q", name, has)
			}
		}
	}
	if is := page.Of(at(0), served, new(newSet(t, "ada", "a new cluster")), unread).State; is != page.StateBehind {
		t.Errorf("a set that was read is %q", is)
	}
}
