package observation

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
)

const issuer = "https://oidc.example.com/prod-a"

func open(t *testing.T) (st *Store, dir string) {
	t.Helper()
	dir = t.TempDir()
	b, err := filestore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return NewStore(b), dir
}

func TestAddAndLoad(t *testing.T) {
	st, dir := open(t)
	place := Subject{issuer, "eu"}
	if _, err := st.Load(t.Context(), "prod-a", place); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("before the first look: %v", err)
	}
	behind := Offset(-3 * time.Second)
	second := lookAt(2, []Key{a, b})
	second.ClockAhead = &behind
	for _, l := range []Look{lookAt(1, []Key{a}), second} {
		if _, err := st.Add(t.Context(), "prod-a", place, l); err != nil {
			t.Fatal(err)
		}
	}
	r, err := st.Load(t.Context(), "prod-a", place)
	if err != nil || len(r.Seen) != 2 || !r.Seen[0].Since.Equal(lookAt(1, nil).End) || r.Latest.Answers != 16 || *r.Latest.ClockAhead != behind {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := st.Load(t.Context(), "prod-a", Subject{issuer, "us"}); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("another vantage has the record: %v", err)
	}
	if _, err := st.Add(t.Context(), "prod-a", Subject{issuer, "../x"}, lookAt(1, nil)); err == nil {
		t.Error("a vantage that is not a name is recorded")
	}
	files, err := filepath.Glob(filepath.Join(dir, "prod-a-*.yaml"))
	if err != nil || len(files) != 1 {
		t.Errorf("files %q, %v", files, err)
	}
}

// A record that somebody damaged or put in another's place is an error: begun anew, it would hide that a key was missing.
func TestDamagedRecords(t *testing.T) {
	for what, edit := range map[string]func(string) string{
		"no YAML":         func(string) string { return "{" },
		"another kind":    func(s string) string { return strings.Replace(s, "kind: Observation", "kind: KeySet", 1) },
		"another issuer":  func(s string) string { return strings.Replace(s, "issuer: "+issuer, "issuer: "+issuer+"x", 1) },
		"another version": func(s string) string { return strings.Replace(s, "keypost.dev/v1", "keypost.dev/v2", 1) },
		"another vantage": func(s string) string { return strings.Replace(s, "vantage: \"\"", "vantage: eu", 1) },
		"a list":          func(string) string { return "[]" },
		"another key set": func(s string) string { return strings.Replace(s, "keySet: prod-a", "keySet: prod-b", 1) },
		"another form":    func(s string) string { return strings.Replace(s, "seen:", "seen: x\nwas:", 1) },
		"empty":           func(string) string { return "" },
	} {
		st, dir := open(t)
		place := Subject{Issuer: issuer}
		if _, err := st.Add(t.Context(), "prod-a", place, lookAt(1, []Key{a})); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, string(name("prod-a", place))+".yaml")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := edit(string(text))
		if changed == string(text) {
			t.Fatalf("%s: nothing was changed in\n%s", what, text)
		}
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := st.Load(t.Context(), "prod-a", place); err == nil || errors.Is(err, keystore.ErrNotFound) || !strings.Contains(err.Error(), "load observation of "+issuer) || len(r.Seen) > 0 {
			t.Errorf("%s: loaded %+v, error %v", what, r, err)
		}
		if _, err := st.Load(t.Context(), "prod-a", place); strings.Contains(err.Error(), "it is about") || strings.Contains(err.Error(), "is about key set \"\"") {
			t.Errorf("%s: %v says what an empty record would be about", what, err)
		}
		if _, err := st.Add(t.Context(), "prod-a", place, lookAt(2, []Key{a})); err == nil || errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("%s: a look was added, error %v", what, err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != changed {
			t.Errorf("%s: the document was written", what)
		}
	}
}

// Several observers of one vantage lose nothing of each other's.
func TestObserversAtOnce(t *testing.T) {
	st, _ := open(t)
	place := Subject{Issuer: issuer}
	var wait sync.WaitGroup
	for n := range 4 {
		wait.Go(func() {
			l := lookAt(n, []Key{a, b})
			l.SharedCache = string(rune('a' + n))
			if n == 2 {
				l.Keys = []Key{a}
			}
			if _, err := st.Add(t.Context(), "prod-a", place, l); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	r, err := st.Load(t.Context(), "prod-a", place)
	if err != nil || len(r.SharedCaches) != 4 || len(r.Seen) == 0 || r.Seen[0].Key != a {
		t.Errorf("%+v, %v", r, err)
	}
}

// What is known of a key set is in all its records, and in no other's.
func TestRecordsOfAKeySet(t *testing.T) {
	st, dir := open(t)
	long := keystore.Name(strings.Repeat("a", 63))
	twin := long[:62] + "b" // whose records have names that begin alike
	for n, vantages := range map[keystore.Name][]string{"prod": {""}, "prod-a": {"", "eu", "us"}, "prod-a-b": {"eu"}, long: {"eu"}, twin: {"", "eu"}} {
		for _, v := range vantages {
			if _, err := st.Add(t.Context(), n, Subject{issuer, v}, lookAt(1, []Key{a})); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n, want := range map[keystore.Name]int{"prod": 1, "prod-a": 3, "prod-a-b": 1, long: 1, twin: 2, "absent": 0} {
		all, err := st.Of(t.Context(), n)
		if err != nil || len(all) != want || slices.ContainsFunc(all, func(r Record) bool { return r.KeySet != n }) {
			t.Errorf("%s: %d records, %v; want %d", n, len(all), err, want)
		}
	}
	eu := filepath.Join(dir, string(name("prod-a", Subject{issuer, "eu"}))+".yaml")
	text, err := os.ReadFile(eu)
	if err != nil {
		t.Fatal(err)
	}
	for what, damaged := range map[string]string{"broken": "{", "another's": strings.Replace(string(text), "keySet: prod-a", "keySet: prod-c", 1)} {
		if err := os.WriteFile(eu, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Of(t.Context(), "prod-a"); err == nil || !strings.Contains(err.Error(), "load observation prod-a-") || strings.Contains(err.Error(), "is about key set \"\"") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := st.Of(t.Context(), "prod"); err != nil {
			t.Errorf("%s, of another key set: %v", what, err)
		}
	}
}

func TestRequired(t *testing.T) {
	var urls []keystore.IssuerURL
	for _, raw := range []string{issuer, "https://prod-a.oidc.example.com"} {
		u, err := keystore.ParseIssuerURL(raw, false)
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, u)
	}
	for _, tt := range []struct {
		from []string
		want []Subject
	}{
		{nil, []Subject{{issuer, ""}, {"https://prod-a.oidc.example.com", ""}}},
		{[]string{"eu", "us"}, []Subject{{issuer, "eu"}, {issuer, "us"}, {"https://prod-a.oidc.example.com", "eu"}, {"https://prod-a.oidc.example.com", "us"}}},
	} {
		s, err := keystore.New(keystore.Change{At: t0}, keystore.Spec{Name: "prod-a", Issuers: urls, Keys: []keystore.VerificationKey{storetest.Key(t)}, Policy: keystore.Policy{ObserveFrom: tt.from}})
		if err != nil {
			t.Fatal(err)
		}
		if got := Required(s); !slices.Equal(got, tt.want) {
			t.Errorf("from %q: %v, want %v", tt.from, got, tt.want)
		}
	}
}

// A conflict is tried again, eight times in all; any other failure ends the attempt, and both are told.
func TestAddTriesAgain(t *testing.T) {
	boom := errors.New("it fails")
	for name, tt := range map[string]struct {
		kind  string
		err   error // of every call
		calls int
	}{
		"somebody else is faster, always": {storetest.OpPut, keystore.ErrConflict, 8},
		"it cannot be stored":             {storetest.OpPut, boom, 1},
		"it cannot be read":               {storetest.OpGet, boom, 1},
	} {
		m := storetest.NewMemory(t)
		calls := 0
		m.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
			if op.Kind != tt.kind {
				return true, nil
			}
			calls++
			return false, tt.err
		})
		r, err := NewStore(m).Add(t.Context(), "prod-a", Subject{Issuer: issuer}, lookAt(1, []Key{a}))
		if !errors.Is(err, tt.err) || calls != tt.calls || len(r.Seen) > 0 {
			t.Errorf("%s: %d calls, error %v", name, calls, err)
		}
	}
}

// A document that has the name of a record of another key set, only by its length or its beginning, is not read.
func TestDocumentsOfOthers(t *testing.T) {
	of := name("prod-a", Subject{issuer, "eu"})
	if want := len("prod-a-") + 16; len(of) != want {
		t.Errorf("%s has %d characters, want %d", of, len(of), want)
	}
	long := name(keystore.Name(strings.Repeat("a", 63)), Subject{Issuer: issuer})
	if len(long) != 63 {
		t.Errorf("%s has %d characters, want 63", long, len(long))
	}
	for document, want := range map[keystore.Name]bool{of: true, of + "0": false, of[:len(of)-1]: false, "prod-b" + of[6:]: false, "prod-a0" + of[7:]: false, "prod-a": false, "": false} {
		if got := mayBeOf("prod-a", document); got != want {
			t.Errorf("%s: %t", document, got)
		}
	}
}
