package storetest

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
)

// RunBackend holds backends to the contract of [keystore.Backend]: bytes, names and revisions.
func RunBackend(t *testing.T, newBackend func(t *testing.T) keystore.Backend) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, b keystore.Backend)
	}{
		{"a document comes back byte for byte", bytesComeBack},
		{"documents of other versions come back byte for byte", otherVersions},
		{"putting needs the stored revision", putStale},
		{"getting nothing is ErrNotFound", getNothing},
		{"no call does anything once the context is done", callsCancelled},
		{"one of many putters of different documents wins", onePutter},
		{"what a caller does to its bytes afterwards changes nothing", bytesAreCopied},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newBackend(t)) })
	}
}

func get(t *testing.T, b keystore.Backend, n keystore.Name) ([]byte, keystore.Revision) {
	t.Helper()
	doc, rev, err := b.Get(t.Context(), n)
	if err != nil {
		t.Fatalf("Get %s: %v", n, err)
	}
	return doc, rev
}

func put(t *testing.T, b keystore.Backend, n keystore.Name, old keystore.Revision, doc []byte) keystore.Revision {
	t.Helper()
	rev, err := b.Put(t.Context(), n, old, doc)
	if err != nil {
		t.Fatalf("Put %s: %v", n, err)
	}
	return rev
}

func wantDocument(t *testing.T, b keystore.Backend, n keystore.Name, rev keystore.Revision, doc []byte) {
	t.Helper()
	got, stored := get(t, b, n)
	if !bytes.Equal(got, doc) || stored != rev {
		t.Errorf("Get %s = revision %q,\n%s\nwant revision %q,\n%s", n, stored, got, rev, doc)
	}
	all, err := b.List(t.Context())
	if err != nil || all[n] != rev {
		t.Errorf("List = %v, %v; want %s at revision %q", all, err, n, rev)
	}
}

func bytesComeBack(t *testing.T, b keystore.Backend) {
	for _, s := range []keystore.KeySet{KeySet(t, "prod-a"), Full(t, "full"), large(t, "large")} {
		doc := []byte(Text(t, s))
		rev := put(t, b, s.Name(), "", doc)
		wantDocument(t, b, s.Name(), rev, doc)
		changed := []byte(Text(t, next(t, s, "x")))
		wantDocument(t, b, s.Name(), put(t, b, s.Name(), rev, changed), changed)
	}
}

// documents were written by the version before backends moved bytes: with everything in them, with keys revoked and
// withdrawn, with gone lines that have no fingerprint yet. v1-newer has members of a newer minor version.
//
//go:embed testdata/*.yaml
var documents embed.FS

const newer = "v1-newer"

func otherVersions(t *testing.T, b keystore.Backend) {
	files, err := documents.ReadDir("testdata")
	if err != nil || len(files) < 5 {
		t.Fatalf("testdata has %d documents, %v", len(files), err)
	}
	st := keystore.NewStore(b)
	for _, f := range files {
		n := keystore.Name(strings.TrimSuffix(f.Name(), ".yaml"))
		doc, err := documents.ReadFile("testdata/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		rev, err := write(t, st, n, doc)
		if err != nil && n == newer && !errors.Is(err, keystore.ErrConflict) { // a server may refuse members that it does not know
			wantAbsent(t, st, n)
			continue
		}
		if err != nil {
			t.Errorf("Write %s: %v", n, err)
			continue
		}
		wantDocument(t, b, n, rev, doc)
		s, _ := load(t, st, n)
		if unknown := len(s.Unknown()); (unknown > 0) != (n == newer) {
			t.Errorf("%s has unknown members: %v", n, s.Unknown())
		}
		if n != newer && Text(t, s) != string(doc) {
			t.Errorf("%s is encoded as\n%s\nwant\n%s", n, Text(t, s), doc)
		}
		if n == newer {
			if _, err := keystore.Update(t.Context(), st, n, Mark("x")); err == nil {
				t.Errorf("%s was changed without the members of the newer version", n)
			}
			wantDocument(t, b, n, rev, doc)
		}
	}
}

func putStale(t *testing.T, b keystore.Backend) {
	first := KeySet(t, "prod-a")
	doc, later := []byte(Text(t, first)), []byte(Text(t, next(t, first, "x")))
	wantRefused := func(n keystore.Name, old keystore.Revision, doc []byte) {
		t.Helper()
		if rev, err := b.Put(t.Context(), n, old, doc); !errors.Is(err, keystore.ErrConflict) || rev != "" {
			t.Errorf("Put %s at revision %q = %q, %v; want ErrConflict", n, old, rev, err)
		}
	}
	old := put(t, b, "prod-a", "", doc)
	wantRefused("prod-a", "", later)
	wantRefused("prod-a", old+"x", later)
	wantRefused("prod-b", old, []byte(Text(t, KeySet(t, "prod-b"))))
	wantDocument(t, b, "prod-a", old, doc)
	rev := put(t, b, "prod-a", old, later)
	wantRefused("prod-a", old, []byte(Text(t, next(t, first, "y"))))
	wantDocument(t, b, "prod-a", rev, later)
}

func getNothing(t *testing.T, b keystore.Backend) {
	put(t, b, "a", "", []byte(Text(t, KeySet(t, "a"))))
	for _, n := range []keystore.Name{"b", "aa", "", ".", "..", "../a", "a/", "/a", "A", "a.yaml", "a\x00", "*", "%61"} {
		if doc, rev, err := b.Get(t.Context(), n); !errors.Is(err, keystore.ErrNotFound) || rev != "" || doc != nil {
			t.Errorf("Get(%q) = %q, revision %q, %v; want ErrNotFound", n, doc, rev, err)
		}
	}
}

func callsCancelled(t *testing.T, b keystore.Backend) {
	doc := []byte(Text(t, KeySet(t, "prod-a")))
	rev := put(t, b, "prod-a", "", doc)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, errList := b.List(ctx)
	_, _, errGet := b.Get(ctx, "prod-a")
	_, errPut := b.Put(ctx, "prod-b", "", []byte(Text(t, KeySet(t, "prod-b"))))
	for call, err := range map[string]error{"List": errList, "Get": errGet, "Put": errPut} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s = %v, want context.Canceled", call, err)
		}
	}
	wantDocument(t, b, "prod-a", rev, doc)
	if all, err := b.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("List = %v, %v; want prod-a", all, err)
	}
}

func onePutter(t *testing.T, b keystore.Backend) {
	first := KeySet(t, "prod-a")
	old := put(t, b, "prod-a", "", []byte(Text(t, first)))
	docs := make([][]byte, writers)
	for i := range docs {
		docs[i] = []byte(Text(t, next(t, first, fmt.Sprintf("w%d", i))))
	}
	revs, errs := make([]keystore.Revision, writers), make([]error, writers)
	together(writers, func(i int) { revs[i], errs[i] = b.Put(t.Context(), "prod-a", old, docs[i]) })
	winner := slices.Index(errs, nil)
	if winner < 0 {
		t.Fatalf("nobody won: %v", errs)
	}
	wantDocument(t, b, "prod-a", revs[winner], docs[winner])
	for i, err := range errs {
		if i != winner && !errors.Is(err, keystore.ErrConflict) {
			t.Errorf("putter %d got %v, want ErrConflict since putter %d won", i, err, winner)
		}
	}
}

func bytesAreCopied(t *testing.T, b keystore.Backend) {
	doc := []byte(Text(t, KeySet(t, "prod-a")))
	given := bytes.Clone(doc)
	rev := put(t, b, "prod-a", "", given)
	clear(given)
	got, _ := get(t, b, "prod-a")
	clear(got)
	wantDocument(t, b, "prod-a", rev, doc)
}
