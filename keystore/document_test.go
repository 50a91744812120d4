package keystore

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fullSet has every member that a document can have, with times and keys that are the same in every run.
func fullSet(t testing.TB) KeySet {
	t.Helper()
	ok := step(t)
	s := ok(New(because(t0, "first cluster"), Spec{
		Name: "prod-a", Issuers: urls("https://oidc.example.com/prod-a", "https://prod-a.oidc.example.com"),
		Keys: []VerificationKey{testKey(0), must(must(NewPublic(rsaPublic(2048))).WithID("2024-01", "RS512"))},
		Policy: Policy{
			MaxAge: DurationPtr(10 * time.Minute), StaleWhileRevalidate: DurationPtr(0), StaleIfError: DurationPtr(90 * time.Minute), EdgeHold: DurationPtr(time.Hour),
			RelyingParties: []string{"aws", "vault"}, TokenLifetime: DurationPtr(24 * time.Hour), Origins: []string{"origin.example.com:8443"}, Private: true,
			ObserveFrom: []string{"eu", "us"},
		},
	}))
	s = ok(s.Add(change(t0.Add(time.Hour)), testKey(1)))
	s = ok(s.Promote(change(t0.Add(26*time.Hour)), testKey(1).ID(), seen(t0.Add(2*time.Hour), t0.Add(26*time.Hour))))
	s = ok(s.Retire(change(t0.Add(27*time.Hour)), testKey(0).ID(), Evidence{Minted: map[string]KeyID{"10.0.0.1:6443": testKey(1).ID()}}))
	s = ok(s.Revoke(because(t0.Add(28*time.Hour), "the old laptop was lost"), "2024-01", RevokeOptions{}))
	p := s.Policy()
	p.TokenLifetime, p.MaxAge = DurationPtr(time.Hour), DurationPtr(5*time.Minute)
	s = ok(s.SetPolicy(change(t0.Add(29*time.Hour)), p))
	s.body.Rotation = &Rotation{ID: "r1", By: "tester", Kid: testKey(1).ID(), Replaces: []KeyID{testKey(0).ID()}, Stays: []KeyID{"2023-01"}, Servers: []string{"10.0.0.1:6443"}, Step: StepRemove}
	s.labels, s.annotations = map[string]string{"team": "platform"}, map[string]string{"note": "kept"}
	s.body.Generation = 2
	return s
}

func encode(t testing.TB, s KeySet) string {
	t.Helper()
	data, err := Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestDocumentForm keeps the text that is in people's Git repositories: what changes here, changes there.
func TestDocumentForm(t *testing.T) {
	golden := filepath.Join("testdata", "prod-a.yaml")
	got := encode(t, fullSet(t))
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the document is\n%s\nand %s is\n%s", got, golden, want)
	}
	s, err := Parse("prod-a", want)
	if err != nil {
		t.Fatal(err)
	}
	if again := encode(t, s); again != got {
		t.Errorf("read and written again it is\n%s", again)
	}
}

// What commit fa747eb wrote, with its digests in the lines of history, goes on being read and changed.
func TestDocumentsOfAnEarlierVersion(t *testing.T) {
	read := func(n Name, file string) KeySet {
		t.Helper()
		return must(Parse(n, must(os.ReadFile(filepath.Join("testdata", file)))))
	}
	s := read("prod-a", "fa747eb-rotation.yaml")
	const active, next = KeyID("NcIxj3ovlPK-CheEv3BgIwCdEGVwDYFfjMhCp1b1cAU"), KeyID("wePVmHH70luQa89d46DUXgMPW2jo56Pa1LKxJWebZ5w")
	if r := s.Rotation(); r == nil || r.Kid != next || !slices.Equal(r.Replaces, []KeyID{active}) || r.Step != StepPromote {
		t.Errorf("its rotation is %+v", r)
	}
	g := s.Gone()
	if len(g) != 2 || g[0].ID != "imported-1" || g[0].Why != Revoked || g[1].Why != Removed || len(s.Policy().HeldUntil) != 2 || len(s.History()) != 9 {
		t.Errorf("gone %v, policy %+v, %d lines of history", g, s.Policy(), len(s.History()))
	}
	revoked, err := s.Revoke(because(s.latest(), "lost"), active, RevokeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	revoked.body.Generation++
	if back := must(Parse("prod-a", must(Encode(revoked)))); len(back.Gone()) != 3 || back.Digest() != revoked.Digest() {
		t.Errorf("changed and read again: gone %v", back.Gone())
	}
	tombstone := read("prod-b", "fa747eb-tombstone.yaml")
	if !tombstone.Withdrawn() || len(tombstone.Keys()) != 1 || len(tombstone.Remains()) != 1 {
		t.Errorf("withdrawn at %v, %d keys", tombstone.WithdrawnAt(), len(tombstone.Keys()))
	}
	if _, err := tombstone.Reopen(because(tombstone.latest(), "again"), Spec{Name: "prod-b", Issuers: tombstone.Issuers(), Keys: []VerificationKey{testKey(0)}}); err != nil {
		t.Errorf("reopened: %v", err)
	}
}

func TestDigestIsOfTheContentAlone(t *testing.T) {
	s := fullSet(t)
	doc := encode(t, s)
	same := map[string]string{
		"comments":       "# by hand\n---\n" + doc + "# the end\n",
		"CRLF":           strings.ReplaceAll(doc, "\n", "\r\n"),
		"another zone":   strings.Replace(doc, "2026-03-01T12:00:00Z", "2026-03-01T13:00:00+01:00", 1),
		"other labels":   strings.Replace(doc, "team: platform", "team: security", 1),
		"no annotations": strings.Replace(doc, "  annotations:\n    note: kept\n", "", 1),
		"another order":  strings.Replace(strings.Replace(doc, "kind: KeySet\n", "", 1), "apiVersion", "kind: KeySet\napiVersion", 1),
	}
	for name, text := range same {
		if text == doc {
			t.Fatalf("%s: the test changed nothing", name)
		}
		got, err := Parse("prod-a", []byte(text))
		if err != nil || got.Digest() != s.Digest() {
			t.Errorf("%s: error %v, or another digest", name, err)
		}
	}
	if got, err := Parse("prod-a", []byte(strings.Replace(doc, "the old laptop was lost", "the laptop was lost", 1))); err != nil || got.Digest() == s.Digest() {
		t.Errorf("another history: error %v, or the same digest", err)
	}
}

// edit changes the document of fullSet; both texts have to be in it.
type edit struct{ old, new string }

func TestParseRejects(t *testing.T) {
	doc := encode(t, fullSet(t))
	kid0, kid1 := string(testKey(0).ID()), string(testKey(1).ID())
	keyBlock := func(id string) string {
		from := strings.Index(doc, "    kid: "+id)
		return doc[from : from+strings.Index(doc[from:], "state:")]
	}
	publicKey := func(n string) string { return strings.ReplaceAll(strings.TrimSuffix(n, "\n"), "\n", "\n      ") }
	pub1 := pemOf("PUBLIC KEY", spki(testKey(1).Key()))
	private := pemOf("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(ecPrivate(elliptic.P256(), 1))))
	disguised := pemOf("PUBLIC KEY", must(x509.MarshalPKCS8PrivateKey(ecPrivate(elliptic.P256(), 1))))

	for _, tt := range []struct {
		name   string
		edits  []edit
		want   string
		reason Reason // ReasonBroken when empty
	}{
		{name: "another group", edits: []edit{{"keypost.dev/v1", "example.com/v1"}}, want: `it is apiVersion "example.com/v1", kind "KeySet", not "keypost.dev/v1", "KeySet"`},
		{name: "a newer major version", edits: []edit{{"keypost.dev/v1", "keypost.dev/v2"}}, want: `its version is "v2" and this program reads v1: upgrade this program`, reason: ReasonNewerVersion},
		{name: "another name", edits: []edit{{"name: prod-a", "name: prod-b"}}, want: `it is stored as "prod-a" but its metadata.name is "prod-b"`},
		{name: "a generation that nothing could follow", edits: []edit{{"generation: 2", "generation: 9223372036854775807"}}, want: "it counts from 1 to 2^53-1"},
		{name: "a generation with a fraction", edits: []edit{{"generation: 2", "generation: 1.5"}}, want: "it does not fit the form of a key set"},
		{name: "no issuers", edits: []edit{{"  - https://oidc.example.com/prod-a\n", ""}, {"  - https://prod-a.oidc.example.com\n", ""}}, want: "it has no issuer URL"},
		{name: "a bad issuer", edits: []edit{{"https://oidc.example.com/prod-a", "https://oidc.example.com/prod-a/"}}, want: "it ends in a slash"},
		{name: "a port outside development", edits: []edit{{"https://prod-a.oidc.example.com", "https://prod-a.oidc.example.com:8443"}}, want: "it has a port"},
		{name: "no keys member", edits: []edit{{"  keys:\n", "  kyes:\n"}}, want: "it has no spec.keys; write keys: [] for a key set without keys"},
		{name: "a kid twice", edits: []edit{{keyBlock(kid1), keyBlock(kid0)}}, want: "two of its keys have the kid"},
		{name: "a kid published and gone", edits: []edit{{"kid: 2024-01\n    promotedAt", "kid: " + kid0 + "\n    promotedAt"}},
			want: "key " + kid0 + " is published and gone (revoked at 2026-03-02T16:00:00Z) at once: a key that is gone never comes back", reason: ReasonGoneReturned},
		{name: "gone twice", edits: []edit{{"  gone:\n", "  gone:\n  - {at: \"2026-03-01T12:00:00Z\", kid: 2024-01, fingerprint: " + string(testKey(5).Fingerprint()) + ", why: removed}\n"}}, want: `its gone line for "2024-01" is a second one`},
		{name: "gone without a reason", edits: []edit{{"why: revoked", "why: lost"}}, want: "its gone line for \"2024-01\" is a second one or has no kid, at, or why (removed or revoked)"},
		{name: "a published key gone under another kid", edits: []edit{{"fingerprint: ", "fingerprint: " + kid0 + " # "}},
			want: "key " + kid0 + " is published and gone (revoked at 2026-03-02T16:00:00Z) at once: a key that is gone never comes back", reason: ReasonGoneReturned},
		{name: "a fingerprint with stray bits", edits: []edit{{"fingerprint: ", "fingerprint: " + strings.Repeat("A", 42) + "B # "}}, want: "which is not an unpadded base64url SHA-256"},
		{name: "a kid of another key", edits: []edit{{"kid: " + kid0 + "\n    promotedAt", "kid: x" + kid0[1:] + "\n    promotedAt"}}, want: "its kid does not belong to its publicKey, whose key ID is " + kid0},
		{name: "a bad imported kid", edits: []edit{{"    kid: " + kid0 + "\n    promotedAt", "    importedKid: true\n    kid: a b\n    promotedAt"}}, want: "its kid is not 1 to 1024 printable ASCII characters"},
		{name: "no alg", edits: []edit{{"  - alg: ES256\n    kid: " + kid0, "  - kid: " + kid0}}, want: "it has no alg"},
		{name: "an unknown state", edits: []edit{{"state: retired", "state: gone"}}, want: `its state "gone" is not next, active or retired`},
		{name: "no publishedAt", edits: []edit{{"    publishedAt: \"2026-03-01T13:00:00Z\"\n", ""}}, want: "it has no publishedAt"},
		{name: "active without promotedAt", edits: []edit{{"    promotedAt: \"2026-03-02T14:00:00Z\"\n", ""}}, want: "it is active and has no promotedAt"},
		{name: "a time that is year 10000 in UTC", edits: []edit{{"retiredAt: \"2026-03-02T15:00:00Z\"", "retiredAt: \"9999-12-31T23:59:59-01:00\""}}, want: "it records a time that RFC 3339 cannot write"},
		{name: "maxAge as a number", edits: []edit{{"maxAge: 5m\n    observeFrom", "maxAge: 300\n    observeFrom"}}, want: "a duration is a string with its unit, such as 5m"},
		{name: "maxAge of a second", edits: []edit{{"maxAge: 5m\n    observeFrom", "maxAge: 1s\n    observeFrom"}}, want: "policy: maxAge is 1s; it must be from 1m to 24h"},
		{name: "a hold of centuries", edits: []edit{{"tokenLifetime: 24h", "tokenLifetime: 2540400h"}}, want: "policy: heldUntil holds less than 0s or more than"},
		{name: "two keys in publicKey", edits: []edit{{publicKey(pub1), publicKey(pub1 + pub1)}}, want: "its publicKey is not one whole PEM block"},
		{name: "a member twice", edits: []edit{{"  generation: 2\n", "  generation: 2\n  generation: 2\n"}}, want: "it is not valid YAML"},
		{name: "two YAML documents", edits: []edit{{"kind: KeySet", "kind: KeySet\n---\nkind: KeySet"}}, want: "it holds more than one YAML document"},

		{name: "a private key in publicKey", edits: []edit{{publicKey(pub1), publicKey(private)}}, want: "it is a private key"},
		{name: "a private key under PUBLIC KEY", edits: []edit{{publicKey(pub1), publicKey(disguised)}}, want: "its publicKey (PUBLIC KEY): it is neither a public key"},
		{name: "a private key after the public one", edits: []edit{{publicKey(pub1), publicKey(pub1 + private)}}, want: "it is a private key"},
		{name: "a private key in an annotation", edits: []edit{{"note: kept", "note: |\n      " + publicKey(private)}}, want: "it is a private key"},
		{name: "a private key in a comment", edits: []edit{{"kind: KeySet", "# " + strings.ReplaceAll(private, "\n", "\n# ") + "\nkind: KeySet"}}, want: "it is a private key"},
		{name: "a private key in escapes", edits: []edit{{"note: kept", `note: "` + strings.ReplaceAll(strings.ReplaceAll(private, "\n", `\n`), "PRIVATE", `PRIV\x41TE`) + `"`}}, want: "it is a private key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := doc
			for _, e := range tt.edits {
				if !strings.Contains(text, e.old) {
					t.Fatalf("the document has no %q", e.old)
				}
				text = strings.Replace(text, e.old, e.new, 1)
			}
			rejected(t, []byte(text), tt.want, tt.reason)
		})
	}
}

func rejected(t *testing.T, data []byte, want string, reason Reason) {
	t.Helper()
	s, err := Parse("prod-a", data)
	var broken *BrokenError
	if !errors.As(err, &broken) {
		t.Fatalf("error %v; want a BrokenError", err)
	}
	if reason == "" {
		reason = ReasonBroken
	}
	if broken.Name != "prod-a" || broken.Reason != reason || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), `key set "prod-a" is broken: `) {
		t.Errorf("error %q (reason %s)\nwant %q (reason %s)", err, broken.Reason, want, reason)
	}
	if strings.Contains(want, "private key") != errors.Is(err, ErrPrivateKey) {
		t.Errorf("errors.Is(%q, ErrPrivateKey) is %v", err, errors.Is(err, ErrPrivateKey))
	}
	if strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 600 {
		t.Errorf("the error is not a short line: %q", err)
	}
	if s.Name() != "" || len(s.Keys()) > 0 {
		t.Errorf("a broken document gave key set %q", s.Name())
	}
}

func TestParseRejectsWhatIsNoManifest(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'l'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 10), ","))
	}
	for name, v := range map[string]struct{ in, want string }{
		"nothing":          {"", "it is empty"},
		"blank":            {" \n\r\n", "it is empty"},
		"null":             {"null", "it is empty"},
		"text":             {"hello", "it is not a manifest"},
		"binary":           {"\x7fELF\x02\x01\x01\x00\x00", "it is not valid YAML"},
		"invalid UTF-8":    {"apiVersion: \xc3\x28", "it is not UTF-8"},
		"oversize":         {"#" + strings.Repeat("x", MaxDocument), "it is larger than 1048576 bytes"},
		"deeply nested":    {strings.Repeat("[", 100_000), "exceeded max depth"},
		"itself in itself": {"a: &a [*a]", "it has a YAML anchor"},
		"nested aliases":   {bomb, "it "},
		"escapes in names": {"\"\\e[31m\": 1", "it is apiVersion"},
	} {
		t.Run(name, func(t *testing.T) { rejected(t, []byte(v.in), v.want, "") })
	}
}

// A newer minor version adds members. An older keypostd goes on serving such a document, an older mirror copies it as
// it is; an older command line does not change it, since it would lose them.
func TestUnknownMembersAreReadableAndNotChanged(t *testing.T) {
	doc := encode(t, fullSet(t))
	for name, e := range map[string]edit{
		"in the document": {"kind: KeySet\n", "kind: KeySet\nstatus: {}\n"},
		"in the spec":     {"\n  generation: 2\n", "\n  generation: 2\n  colour: red\n"},
		"in a key":        {"    state: retired\n", "    state: retired\n    hsm: true\n"},
		"in the policy":   {"    private: true\n", "    private: true\n    purgedAt: \"2026-03-01T12:00:00Z\"\n"},
		"another case":    {"\n  generation: 2\n", "\n  generation: 2\n  Generation: 2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			newer := strings.Replace(doc, e.old, e.new, 1)
			s, err := Parse("prod-a", []byte(newer))
			if err != nil {
				t.Fatal(err)
			}
			st := &shelf{}
			if _, err := writeDoc(t, st, "prod-a", "", []byte(newer)); err != nil || string(st.doc) != newer {
				t.Errorf("written as it is, error %v:\n%s", err, st.doc)
			}
			if data, err := Encode(s); err == nil || !strings.Contains(err.Error(), "was written by a newer version") {
				t.Errorf("encoded unchanged, error %v:\n%s", err, data)
			}
			if len(s.Unknown()) != 1 || len(s.Keys()) != 2 || s.Generation() != 2 {
				t.Errorf("unknown %q, %d keys, generation %d", s.Unknown(), len(s.Keys()), s.Generation())
			}
			changed := step(t)(s.Revoke(because(t0.Add(30*time.Hour), "lost"), testKey(0).ID(), RevokeOptions{}))
			if data, err := Encode(changed); err == nil || !strings.Contains(err.Error(), "was written by a newer version") {
				t.Errorf("encoded changed, error %v:\n%s", err, data)
			}
		})
	}
}

func TestDevelopmentDocumentsMayHavePortsAndShortLifetimes(t *testing.T) {
	spec := Spec{Name: "demo", Issuers: urls("https://localhost:8443/demo"), Keys: []VerificationKey{testKey(0)}, Policy: Policy{MaxAge: DurationPtr(time.Second)}}
	if _, err := New(change(t0), spec); err == nil {
		t.Error("a port is accepted outside development")
	}
	spec.Dev = true
	s := step(t)(New(change(t0), spec))
	back, err := Parse("demo", []byte(encode(t, s)))
	if err != nil || !back.Dev() {
		t.Errorf("dev %v, error %v", back.Dev(), err)
	}
	spec.Issuers = append(spec.Issuers, urls("https://localhost:9443/demo")...)
	if _, err := New(change(t0), spec); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("two URLs that requests cannot tell apart: error %v", err)
	}
}

// FuzzParseDocument: whatever is accepted and may be written reads back the same, and has no private key in it.
func FuzzParseDocument(f *testing.F) {
	full, small := encode(f, fullSet(f)), encode(f, newSet(f, Policy{}))
	for _, seed := range []string{
		full, string(must(json.Marshal(fullSet(f)))), "# c\n---\n" + full, full + "---\n",
		strings.Replace(full, "note: kept", "note: &n kept\n    other: *n", 1), strings.Replace(full, "kid:", "colour: red\n    kid:", 1),
		strings.Replace(full, "note: kept", "note: !!binary /w==", 1), strings.Replace(full, "note: kept", "1: a\n    \"1\": b", 1),
		strings.Replace(full, "Z\"", "+23:59\"", 3), strings.Replace(full, "2026", "9999", 5), strings.Replace(full, "1h", "1.0000001h", 2),
		small, strings.Replace(small, "generation: 1", "generation: 0x1_0", 1), strings.Replace(small, "generation: 1", "generation: 9007199254740991", 1),
		strings.Replace(small, "spec:", "spec: &s\n  <<: {dev: true}", 1), strings.Replace(small, "by: tester", "by: *s", 1),
		strings.Replace(small, "\n  keys:", "\n  policy: {maxAge: 1h2m3.4s, heldUntil: [{until: \"2026-03-01T12:00:00.000000001+01:00\", edge: 1h}]}\n  keys:", 1),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("prod-a", data)
		if err != nil {
			var broken *BrokenError
			if !errors.As(err, &broken) {
				t.Errorf("error %v is not a BrokenError", err)
			}
			return
		}
		if err := s.check(); err != nil {
			t.Fatalf("accepted although %v", err)
		}
		if len(s.Unknown()) > 0 {
			return
		}
		out, err := Encode(s)
		if err != nil {
			t.Fatalf("accepted and cannot be written: %v", err)
		}
		if bytes.Contains(out, []byte("PRIVATE KEY-----")) {
			t.Errorf("it has a private key in it")
		}
		back, err := Parse("prod-a", out)
		if err != nil || back.Digest() != s.Digest() || !bytes.Equal(must(Encode(back)), out) {
			t.Errorf("it does not read back the same (error %v)", err)
		}
	})
}

// keyEntry returns the entry of k in a document.
func keyEntry(k Key) keyDocument { return KeySet{keys: []Key{k}}.documentWith(Key.PEM).Spec.Keys[0] }
