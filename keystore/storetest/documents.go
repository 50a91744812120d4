package storetest

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
)

// comesBack holds a store to what was written, byte for byte.
func comesBack(x *suite, n keystore.Name, write writer) {
	for _, s := range []keystore.KeySet{KeySet(x, n), Full(x, "full-"+n)} {
		rev := x.written(write, "", s)
		x.wantStored(rev, s)
		changed := x.next(s, "x")
		x.wantStored(x.written(write, rev, changed), changed)
	}
}

func largeComesBack(x *suite) {
	s := large(x, "large")
	x.wantStored(x.replace("", s), s)
}

func everyField(x *suite) {
	x.replace("", Full(x, "full"))
	back, _ := x.load("full")
	if !back.Gone()[0].At.Equal(time.Date(2025, 12, 31, 23, 59, 59, 999999999, time.UTC)) {
		x.Errorf("a time lost its precision: %v", back.Gone()[0].At)
	}
	withdrawn := x.update("full", func(s keystore.KeySet) (keystore.KeySet, error) { return s.Withdraw(Change(365 * 24 * time.Hour)) })
	if back, _ := x.load("full"); !back.Withdrawn() || !back.WithdrawnAt().Equal(withdrawn.WithdrawnAt()) {
		x.Errorf("the tombstone is %v, want %v", back.WithdrawnAt(), withdrawn.WithdrawnAt())
	}
}

func bytesAreCopied(x *suite) {
	doc := []byte(Text(x, KeySet(x, "prod-a")))
	given := bytes.Clone(doc)
	rev, err := x.Backend().Put(x.Context(), "prod-a", "", given)
	if err != nil {
		x.Fatal(err)
	}
	clear(given)
	got, _, err := x.Backend().Get(x.Context(), "prod-a")
	if err != nil {
		x.Fatal(err)
	}
	clear(got)
	x.wantDocument("prod-a", rev, doc)
}

// documents were written by an earlier version: with everything in them, with keys revoked and withdrawn. v1-newer has
// members of a newer minor version.
//
//go:embed testdata/*.yaml
var documents embed.FS

const newer = "v1-newer"

func otherVersions(x *suite) {
	files, err := documents.ReadDir("testdata")
	if err != nil || len(files) < 4 {
		x.Fatalf("testdata has %d documents, %v", len(files), err)
	}
	for _, f := range files {
		n := keystore.Name(strings.TrimSuffix(f.Name(), ".yaml"))
		doc, err := documents.ReadFile("testdata/" + f.Name())
		if err != nil {
			x.Fatal(err)
		}
		rev, err := x.create(n, doc)
		if err != nil && n == newer && !errors.Is(err, keystore.ErrConflict) { // a server may refuse members that it does not know
			x.wantAbsent(n)
			continue
		}
		if err != nil {
			x.Errorf("Write %s: %v", n, err)
			continue
		}
		x.wantDocument(n, rev, doc)
		s, _ := x.load(n)
		if unknown := len(s.Unknown()); (unknown > 0) != (n == newer) {
			x.Errorf("%s has unknown members: %v", n, s.Unknown())
		}
		if n != newer && Text(x, s) != string(doc) {
			x.Errorf("%s is encoded as\n%s\nwant\n%s", n, Text(x, s), doc)
		}
		if n == newer {
			if _, err := keystore.Update(x.Context(), x.Store, n, Mark("x")); err == nil {
				x.Errorf("%s was changed without the members of the newer version", n)
			}
			x.wantDocument(n, rev, doc)
		}
	}
}

func staleRefused(x *suite, n keystore.Name, write writer) {
	first := KeySet(x, n)
	second := x.next(first, "second")
	third := x.next(second, "third")
	absent := KeySet(x, "absent")
	wantRefused := func(old keystore.Revision, s keystore.KeySet) {
		x.Helper()
		if rev, err := write(x.Context(), old, s); !errors.Is(err, keystore.ErrConflict) || rev != "" {
			x.Errorf("write %s at revision %q = %q, %v; want ErrConflict", s.Name(), old, rev, err)
		}
	}
	wantRefused("nonsense", absent)
	old := x.written(write, "", first)
	wantRefused("", KeySet(x, n))
	wantRefused("", second)
	wantRefused(old+"x", second)
	wantRefused(old, absent)
	x.wantAbsent("absent")
	x.wantStored(old, first)
	rev := x.written(write, old, second)
	if rev == old {
		x.Fatalf("the revision is still %q after a change", rev)
	}
	wantRefused(old, third)
	wantRefused("", third)
	wantRefused(rev+"x", third)
	x.wantStored(rev, second)
	x.wantStored(x.written(write, rev, third), third)
}

func cancelled(x *suite) {
	s := KeySet(x, "prod-a")
	rev, other := x.replace("", s), KeySet(x, "prod-b")
	ctx, cancel := context.WithCancel(x.Context())
	cancel()
	b := x.Backend()
	for call, f := range map[string]func() error{
		"List":        func() error { _, err := b.List(ctx); return err },
		"Get":         func() error { _, _, err := b.Get(ctx, "prod-a"); return err },
		"Put":         func() error { _, err := b.Put(ctx, "prod-b", "", []byte(Text(x, other))); return err },
		"List, store": func() error { _, err := x.List(ctx); return err },
		"Load":        func() error { _, _, err := x.Load(ctx, "prod-a"); return err },
		"Replace":     func() error { _, err := x.Replace(ctx, "", other); return err },
		"Update":      func() error { _, err := keystore.Update(ctx, x.Store, "prod-a", Mark("x")); return err },
	} {
		if err := f(); !errors.Is(err, context.Canceled) {
			x.Errorf("%s = %v, want context.Canceled", call, err)
		}
	}
	x.wantStored(rev, s)
	x.wantListed(map[keystore.Name]keystore.Revision{"prod-a": rev})
}
