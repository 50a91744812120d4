package catalog

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
)

// testStore is a backend in memory. trouble is what Get answers for a name instead; beforePut runs once.
type testStore struct {
	sets      map[keystore.Name]keystore.KeySet
	trouble   map[keystore.Name]error
	beforePut func()
}

func (s *testStore) List(context.Context) (map[keystore.Name]keystore.Revision, error) {
	list := map[keystore.Name]keystore.Revision{}
	for n := range s.sets {
		list[n] = "1"
	}
	for n := range s.trouble {
		list[n] = "1"
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
	return &testStore{sets: map[keystore.Name]keystore.KeySet{}, trouble: map[keystore.Name]error{}}
}

func testSpec(t *testing.T, name keystore.Name, urls ...string) keystore.Spec {
	t.Helper()
	return keystore.Spec{Name: name, Issuers: storetest.URLs(t, urls...), Keys: []keystore.VerificationKey{storetest.Key(t)}}
}

// A key set that cannot be read is in the way of a new one if it is known to have the URL. Others are told of.
func TestAddBesideUnread(t *testing.T) {
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
		trouble error
		want    string // in the error; empty for none
	}{
		"unknown issuers":        {trouble: brokenWith()},
		"other issuers":          {trouble: brokenWith(url("https://oidc.example.com/other"))},
		"the same issuer":        {trouble: brokenWith(url("https://oidc.example.com/x"), url("https://oidc.example.com/new")), want: "has that issuer URL already"},
		"an outage":              {trouble: errors.New("connection refused"), want: `load key set "other": connection refused`},
		"listed and never found": {trouble: keystore.ErrNotFound},
	} {
		st := newTestStore()
		st.trouble["other"] = tt.trouble
		added, err := Add(t.Context(), keystore.NewStore(st), testSpec(t, "new", "https://oidc.example.com/new"),
			AddOptions{Change: storetest.Change(0)})
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if _, stored := st.sets["new"]; stored != (tt.want == "") {
			t.Errorf("%s: stored %v", name, stored)
		}
		if told := slices.Contains(added.Unread, "other"); told != (tt.want == "") {
			t.Errorf("%s: Unread = %v", name, added.Unread)
		}
	}
}

// Two people add one URL under two names at one time: both find it free, and the later one is told.
func TestAddAtTheSameTime(t *testing.T) {
	for name, tt := range map[string]struct {
		theirs    []string
		withdrawn bool
		want      bool
	}{
		"one URL":              {theirs: []string{"https://oidc.example.com/other", "https://oidc.example.com/new"}, want: true},
		"one URL, and gave up": {theirs: []string{"https://oidc.example.com/new"}, withdrawn: true},
		"another URL":          {theirs: []string{"https://oidc.example.com/other"}},
		"nobody":               {},
		"host in time":         {theirs: []string{"https://new.oidc.example.com"}},
	} {
		st := newTestStore()
		if tt.theirs != nil {
			st.beforePut = func() {
				set, err := keystore.New(keystore.Change{At: time.Now(), By: "bob@laptop"}, testSpec(t, "theirs", tt.theirs...))
				if err != nil {
					t.Fatal(err)
				}
				if tt.withdrawn {
					set = withdrawn(t, set)
				}
				st.sets["theirs"] = set
			}
		}
		_, err := Add(t.Context(), keystore.NewStore(st), testSpec(t, "new", "https://oidc.example.com/new"), AddOptions{Change: storetest.Change(0)})
		if told := err != nil && strings.Contains(err.Error(), `and so is "theirs"`) && strings.Contains(err.Error(), "bob@laptop"); told != tt.want || err != nil != tt.want {
			t.Errorf("%s: %v", name, err)
		}
		if _, stored := st.sets["new"]; !stored {
			t.Errorf("%s: only %v stored", name, maps.Keys(st.sets))
		}
	}
}

// Another key set may have got the URL by a change of a document that was there already.
func TestRefreshReadsWhatHasChanged(t *testing.T) {
	c := Contents{Revisions: map[keystore.Name]keystore.Revision{"changed": "0", "same": "1"}}
	fresh, err := c.refresh(t.Context(), storeWith(t, false, storetest.KeySet(t, "changed"), storetest.KeySet(t, "new"), storetest.KeySet(t, "same")))
	check(t, err)
	var names []keystore.Name
	for _, s := range fresh {
		names = append(names, s.Name())
	}
	if !slices.Equal(names, []keystore.Name{"changed", "new"}) {
		t.Errorf("read %v, want changed and new", names)
	}
}

// In a directory, a file that cannot be opened leaves the others readable.
func TestReadAllOfDirectory(t *testing.T) {
	dir := t.TempDir()
	b, err := filestore.Create(dir)
	check(t, err)
	st := keystore.NewStore(b)
	check(t, keystore.Create(t.Context(), st, storetest.KeySet(t, "prod-a")))
	check(t, os.Symlink("loop.yaml", filepath.Join(dir, "loop.yaml")))
	got, err := ReadAll(t.Context(), st)
	if err != nil || len(got.Sets) != 1 || got.Unread["loop"] == nil {
		t.Fatalf("%v, %v", got, err)
	}
	spec := testSpec(t, "new", "https://new.example.com")
	if err := got.CheckFree(spec); err != nil {
		t.Errorf("CheckFree: %v", err)
	}
	if err := got.CheckFree(testSpec(t, "loop", "https://new.example.com")); !strings.Contains(err.Error(), `add key set "loop": it exists already, and`) {
		t.Errorf("CheckFree under the name of the loop: %v", err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
