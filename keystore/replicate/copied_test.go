package replicate_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/replicate"
	"github.com/keypost/keypost/keystore/storetest"
)

// That a version was copied is known for as long as no later one was, whatever becomes of it in the store: it is asked when the
// store's version is broken or gone.
func TestWasCopied(t *testing.T) {
	m := newMirrored(t)
	dir, root := noted(t)
	n := replicate.NewNotes(root, "s3://b/p")
	version := func() keystore.KeySet {
		doc, _, err := m.from.Get(t.Context(), "prod-a")
		must(t, err)
		s, err := keystore.Parse("prod-a", doc)
		must(t, err)
		return s
	}
	want := func(when string, s keystore.KeySet, copied bool) {
		t.Helper()
		must(t, n.Write(m.Status(), m.Checkpoints()))
		if store, is, err := replicate.WasCopied(dir, s); err != nil || is != copied || store != "s3://b/p" {
			t.Errorf("%s: %q, %t, %v; want %t", when, store, is, err, copied)
		}
	}
	if _, _, err := replicate.WasCopied(dir, version()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a mirror: %v", err)
	}
	first := version()
	want("before a pass", first, false)
	m.pass()
	want("copied", first, true)
	other, err := first.Add(storetest.Change(48*time.Hour), storetest.Key(t))
	must(t, err)
	want("one that never was in the store", other, false)

	m.from.Set("prod-a", []byte("broken"))
	_ = m.Pass(t.Context())
	want("broken in the store", first, true)
	n = replicate.NewNotes(root, "s3://b/p") // another run, with another configuration
	n.Admission = "another"
	if n.Checkpoints() != nil {
		t.Error("checkpoints of another configuration count")
	}
	want("in the next run", first, true)
	m.from.Delete("prod-a")
	_ = m.Pass(t.Context())
	want("gone from the store", first, true)

	m.from.Set("prod-a", []byte(m.current))
	later := m.update("prod-a", storetest.Mark("later"))
	m.pass()
	want("a later version was copied", first, false)
	want("and that is it", later, true)

	n = replicate.NewNotes(root, "s3://elsewhere")
	n.Checkpoints()
	must(t, n.Write(replicate.MirrorStatus{}, nil))
	if store, is, err := replicate.WasCopied(dir, later); err != nil || is || store != "s3://elsewhere" {
		t.Errorf("a mirror of another store: %q, %t, %v", store, is, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, ".keypost-mirror-marks.json"), []byte("{"), 0o600))
	if _, is, err := replicate.WasCopied(dir, later); err == nil || is {
		t.Errorf("notes that are cut off: %t, %v", is, err)
	}
}

// What is copied is noted at once. The next pass may be too late, or never complete: then nothing would show what the copy is.
func TestCopiedIsNotedAtOnce(t *testing.T) {
	m := newMirrored(t)
	dir, root := noted(t)
	n := replicate.NewNotes(root, "s3://b/p")
	m.config.OnPass = func(s replicate.MirrorStatus) error { return n.Write(s, m.Checkpoints()) }
	m.config.OnCopy = func() error { return n.WriteCheckpoints(m.Checkpoints()) }
	m.Mirror = replicate.NewMirror(m.config)
	m.pass()
	later := m.update("prod-a", storetest.Mark("later"))
	m.from.Inject(func(_ context.Context, op storetest.Op) (bool, error) { // so that no pass is complete
		if op.Kind == storetest.OpGet && op.Name == "prod-b" {
			return false, errors.New("forbidden")
		}
		return true, nil
	})
	m.from.Set("prod-b", []byte("changed"))
	if err := m.Pass(t.Context()); err == nil {
		t.Error("the pass is complete")
	}
	if _, is, err := replicate.WasCopied(dir, later); !is || err != nil {
		t.Errorf("the later version was copied: %t, %v", is, err)
	}
}
