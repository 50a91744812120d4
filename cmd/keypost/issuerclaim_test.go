package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
)

// testStore is a backend in memory. trouble is what Get answers for a name instead; beforePut runs once.
type testStore struct {
	sets      map[keystore.Name]keystore.KeySet
	trouble   map[keystore.Name]error
	vanished  map[keystore.Name]bool // of trouble: no longer listed the second time
	listings  int
	beforePut func()
}

func (s *testStore) List(context.Context) (map[keystore.Name]keystore.Revision, error) {
	s.listings++
	list := map[keystore.Name]keystore.Revision{}
	for n := range s.sets {
		list[n] = "1"
	}
	for n := range s.trouble {
		if s.listings == 1 || !s.vanished[n] {
			list[n] = "1"
		}
	}
	return list, nil
}

func (s *testStore) Get(_ context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	if err, is := s.trouble[n]; is {
		return nil, "", err
	}
	set, is := s.sets[n]
	if !is {
		return nil, "", keystore.ErrNotFound
	}
	doc, err := keystore.Encode(set)
	return doc, "1", err
}

func (s *testStore) Put(_ context.Context, n keystore.Name, old keystore.Revision, doc []byte) (keystore.Revision, error) {
	if hook := s.beforePut; hook != nil {
		s.beforePut = nil
		hook()
	}
	if _, is := s.sets[n]; is != (old != "") {
		return "", keystore.ErrConflict
	}
	set, err := keystore.Parse(n, doc)
	s.sets[n] = set
	return "1", err
}

func newTestStore() *testStore {
	return &testStore{sets: map[keystore.Name]keystore.KeySet{}, trouble: map[keystore.Name]error{}, vanished: map[keystore.Name]bool{}}
}

func testSpec(t *testing.T, name keystore.Name, urls ...string) keystore.Spec {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := keystore.NewPublic(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return keystore.Spec{Name: name, Issuers: urls, Keys: []keystore.VerificationKey{public}, Policy: newPolicy()}
}

// A key set that cannot be read is in the way of a new one unless it cannot have the URL, or is gone.
func TestStoreNewBesideUnreadable(t *testing.T) {
	url := func(raw string) keystore.IssuerURL {
		u, err := keystore.ParseIssuerURL(raw, false)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	brokenWith := func(urls ...keystore.IssuerURL) error {
		return &keystore.BrokenError{Name: "other", Reason: keystore.ReasonBroken, Err: errors.New("it is damaged"), Issuers: urls}
	}
	for name, tt := range map[string]struct {
		trouble  error
		vanished bool
		force    bool
		want     string // in the error; empty for none
	}{
		"unknown issuers":        {trouble: brokenWith(), want: `key set "other" is broken, so that it is unknown whether`},
		"unknown, forced":        {trouble: brokenWith(), force: true},
		"other issuers":          {trouble: brokenWith(url("https://oidc.example.com/other"))},
		"the same issuer":        {trouble: brokenWith(url("https://oidc.example.com/x"), url("https://oidc.example.com/new")), want: "has that issuer URL already"},
		"the same, forced":       {trouble: brokenWith(url("https://oidc.example.com/new")), force: true, want: "has that issuer URL already"},
		"an outage":              {trouble: errors.New("connection refused"), want: `load key set "other": connection refused`},
		"an outage is not ours":  {trouble: errors.New("connection refused"), force: true, want: `load key set "other": connection refused`},
		"removed meanwhile":      {trouble: keystore.ErrNotFound, vanished: true},
		"listed and never found": {trouble: keystore.ErrNotFound, want: `key set "other" cannot be read`},
	} {
		st := newTestStore()
		st.trouble["other"], st.vanished["other"] = tt.trouble, tt.vanished
		a := &app{streams: streams{out: io.Discard, err: io.Discard}}
		_, err := a.storeNew(t.Context(), keystore.NewStore(st), testSpec(t, "new", "https://oidc.example.com/new"), &addFlags{force: tt.force, why: "I know it"})
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if _, stored := st.sets["new"]; stored != (tt.want == "") {
			t.Errorf("%s: stored %v", name, stored)
		}
	}
}

// Two people add one URL under two names at one time: both find it free, and the later one is told.
func TestStoreNewAtTheSameTime(t *testing.T) {
	for name, tt := range map[string]struct {
		theirs []string
		want   bool
	}{
		"one URL":      {[]string{"https://oidc.example.com/other", "https://oidc.example.com/new"}, true},
		"another URL":  {[]string{"https://oidc.example.com/other"}, false},
		"nobody":       {nil, false},
		"host in time": {[]string{"https://new.oidc.example.com"}, false},
	} {
		st := newTestStore()
		if tt.theirs != nil {
			st.beforePut = func() {
				set, err := keystore.New(keystore.Change{At: time.Now(), By: "bob@laptop"}, testSpec(t, "theirs", tt.theirs...))
				if err != nil {
					t.Fatal(err)
				}
				st.sets["theirs"] = set
			}
		}
		a := &app{streams: streams{out: io.Discard, err: io.Discard}}
		_, err := a.storeNew(t.Context(), keystore.NewStore(st), testSpec(t, "new", "https://oidc.example.com/new"), &addFlags{})
		if told := err != nil && strings.Contains(err.Error(), `and so is "theirs"`) && strings.Contains(err.Error(), "bob@laptop"); told != tt.want || err != nil != tt.want {
			t.Errorf("%s: %v", name, err)
		}
		if _, stored := st.sets["new"]; !stored {
			t.Errorf("%s: only %v stored", name, maps.Keys(st.sets))
		}
	}
}

func TestReadAllSkipsWhatIsKnown(t *testing.T) {
	st := newTestStore()
	st.trouble["broken"] = errors.New("it must not be read")
	c, err := readAll(t.Context(), keystore.NewStore(st), map[keystore.Name]keystore.Revision{"broken": "1"})
	if err != nil || len(c.sets)+len(c.broken) != 0 {
		t.Errorf("readAll = %v, %v", c, err)
	}
}

// In a directory, a file that cannot be opened leaves the others readable.
func TestReadAllOfDirectory(t *testing.T) {
	c, dir := checked{t}, t.TempDir()
	st, err := filestore.Create(dir)
	c.Check(err)
	set, err := keystore.New(keystore.Change{At: time.Now()}, testSpec(t, "prod-a", "https://oidc.example.com/prod-a"))
	c.Check(err)
	c.Check(keystore.Create(t.Context(), keystore.NewStore(st), set))
	c.Check(os.Symlink("loop.yaml", filepath.Join(dir, "loop.yaml")))
	for name, st := range map[string]keystore.Reader{"plain": keystore.NewStore(st), "noting": (&app{}).noted(keystore.NewStore(st))} {
		got, err := readAll(t.Context(), st, nil)
		if err != nil || len(got.sets) != 1 || got.broken["loop"] == nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if err := checkUnread(got.broken, []string{"https://new.example.com"}, false); err == nil || !strings.Contains(err.Error(), `key set "loop" cannot be read`) {
			t.Errorf("%s: checkUnread: %v", name, err)
		}
		if err := checkUnread(got.broken, []string{"https://new.example.com"}, true); err != nil {
			t.Errorf("%s: checkUnread with force: %v", name, err)
		}
	}
}
