package storetest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/keypost/keypost/keystore"
)

// suite is one case on a store of its own, with a backend below that was empty at the start.
type suite struct {
	*testing.T
	*keystore.Store
}

// writer writes a key set if the stored revision is still old: [keystore.Store.Replace], or Put of the backend.
type writer func(ctx context.Context, old keystore.Revision, s keystore.KeySet) (keystore.Revision, error)

// withBothWriters makes a case of one that writes a key set named n through write.
func withBothWriters(test func(x *suite, n keystore.Name, write writer)) func(*suite) {
	return func(x *suite) {
		test(x, "put", func(ctx context.Context, old keystore.Revision, s keystore.KeySet) (keystore.Revision, error) {
			return x.Backend().Put(ctx, s.Name(), old, []byte(Text(x, s)))
		})
		test(x, "replace", x.Replace)
	}
}

func (x *suite) written(write writer, old keystore.Revision, s keystore.KeySet) keystore.Revision {
	x.Helper()
	rev, err := write(x.Context(), old, s)
	if err != nil {
		x.Fatalf("write %s: %v", s.Name(), err)
	}
	return rev
}

func (x *suite) replace(old keystore.Revision, s keystore.KeySet) keystore.Revision {
	x.Helper()
	return x.written(x.Replace, old, s)
}

// create writes a document as it is.
func (x *suite) create(n keystore.Name, data []byte) (keystore.Revision, error) {
	_, doc, err := keystore.ParseDocument(n, data)
	if err != nil {
		return "", err
	}
	return x.Write(x.Context(), "", doc)
}

func (x *suite) list() map[keystore.Name]keystore.Revision {
	x.Helper()
	all, err := x.List(x.Context())
	if err != nil {
		x.Fatalf("List: %v", err)
	}
	return all
}

func (x *suite) load(n keystore.Name) (keystore.KeySet, keystore.Revision) {
	x.Helper()
	s, rev, err := x.Load(x.Context(), n)
	if err != nil {
		x.Fatalf("Load %s: %v", n, err)
	}
	return s, rev
}

func (x *suite) update(n keystore.Name, change func(keystore.KeySet) (keystore.KeySet, error)) keystore.KeySet {
	x.Helper()
	s, err := keystore.Update(x.Context(), x.Store, n, change)
	if err != nil {
		x.Fatalf("Update %s: %v", n, err)
	}
	return s
}

// next returns s with a mark and with the next generation, for a direct write. Only keystore.Update counts generations,
// so it goes through a store of its own.
func (x *suite) next(s keystore.KeySet, mark string) keystore.KeySet {
	x.Helper()
	memory := &suite{x.T, NewMemStore(x).Store}
	memory.replace("", s)
	return memory.update(s.Name(), Mark(mark))
}

func (x *suite) wantStored(rev keystore.Revision, s keystore.KeySet) {
	x.Helper()
	x.wantDocument(s.Name(), rev, []byte(Text(x, s)))
	if got, stored := x.load(s.Name()); Text(x, got) != Text(x, s) || stored != rev {
		x.Errorf("Load %s = revision %q,\n%s\nwant revision %q,\n%s", s.Name(), stored, Text(x, got), rev, Text(x, s))
	}
}

func (x *suite) wantDocument(n keystore.Name, rev keystore.Revision, doc []byte) {
	x.Helper()
	got, stored, err := x.Backend().Get(x.Context(), n)
	if err != nil || !bytes.Equal(got, doc) || stored != rev {
		x.Errorf("Get %s = revision %q, %v,\n%s\nwant revision %q,\n%s", n, stored, err, got, rev, doc)
	}
	if listed := x.list()[n]; listed != rev {
		x.Errorf("List has %s at revision %q, want %q", n, listed, rev)
	}
}

func (x *suite) wantAbsent(n keystore.Name) {
	x.Helper()
	if _, rev, err := x.Load(x.Context(), n); !errors.Is(err, keystore.ErrNotFound) || rev != "" {
		x.Errorf("Load %s = revision %q, %v; want none and ErrNotFound", n, rev, err)
	}
	if rev, ok := x.list()[n]; ok {
		x.Errorf("List has %s at revision %q", n, rev)
	}
}
