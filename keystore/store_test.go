package keystore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// after returns the version that follows s, with key n added.
func after(t *testing.T, s KeySet, n int) KeySet {
	t.Helper()
	next := must(s.Add(change(t0), testKey(n)))
	next.body.Generation = s.body.Generation + 1
	return next
}

// Anyone who repairs a broken document has seen its revision.
func TestABrokenDocumentCanBeReplaced(t *testing.T) {
	st := stocked(t)
	first := st.load(t)
	st.doc = []byte("junk")
	if _, err := NewStore(st).Replace(t.Context(), "1", first); err != nil {
		t.Error(err)
	}
}

// writeDoc writes a document as it is, over what is stored at revision old.
func writeDoc(t *testing.T, b Backend, n Name, old Revision, data []byte) (Revision, error) {
	t.Helper()
	_, doc, err := ParseDocument(n, data)
	if err != nil {
		return "", err
	}
	return NewStore(b).Write(t.Context(), old, doc)
}

func TestWriteKeepsEveryByte(t *testing.T) {
	st := &shelf{}
	doc := bytes.Replace(must(Encode(newSet(t, awsPolicy()))), []byte("spec:\n"), []byte("# by hand\nspec:\n  fromTheFuture: 1\n"), 1)
	if _, err := writeDoc(t, st, "prod-a", "", doc); err != nil || !bytes.Equal(st.doc, doc) {
		t.Errorf("Write: %v, stored is\n%s", err, st.doc)
	}
	for name, doc := range map[string][]byte{
		"prod-b": doc, // another name's
		"prod-a": append(bytes.Clone(doc), bytes.Repeat([]byte("#\n"), MaxDocument/2)...),
		"../a":   doc,
		"x":      []byte("junk"),
	} {
		before := st.replaces
		if _, err := writeDoc(t, st, Name(name), "1", doc); err == nil || st.replaces != before {
			t.Errorf("Write of %d bytes under %q: %v", len(doc), name, err)
		}
	}
}

// What an answer of Put means is read from what is stored then.
func TestAWriteIsReadBack(t *testing.T) {
	annotated := func(doc []byte) []byte {
		return bytes.Replace(doc, []byte("metadata:\n"), []byte("metadata:\n  annotations:\n    by: webhook\n"), 1)
	}
	labelled := func(doc []byte) []byte {
		return bytes.Replace(doc, []byte("metadata:\n"), []byte("metadata:\n  labels:\n    by: webhook\n"), 1)
	}
	extended := func(doc []byte) []byte {
		return bytes.Replace(doc, []byte("spec:\n"), []byte("spec:\n  fromTheFuture: 1\n"), 1)
	}
	for _, tt := range []struct {
		name     string
		answer   error
		stored   func(ours []byte, ourSet KeySet) []byte // nil: nothing changed
		done     bool
		conflict bool
		part     string
	}{
		{name: "lost, stored", answer: errors.New("reset"), stored: func(ours []byte, _ KeySet) []byte { return ours }, done: true},
		{name: "lost, stored and annotated", answer: errors.New("reset"), stored: func(ours []byte, _ KeySet) []byte { return annotated(ours) }, done: true},
		{name: "lost, not stored", answer: errors.New("reset"), part: "reset"},
		{name: "lost, stored with what we did not write", answer: errors.New("reset"), stored: func(ours []byte, _ KeySet) []byte { return extended(ours) }, part: "reset"},
		{name: "conflict with our own write", answer: ErrConflict, stored: func(ours []byte, _ KeySet) []byte { return ours }, done: true},
		{name: "conflict with our own write, labelled", answer: ErrConflict, stored: func(ours []byte, _ KeySet) []byte { return labelled(ours) }, done: true},
		{name: "conflict", answer: ErrConflict, conflict: true},
		{name: "conflict, junk is stored", answer: ErrConflict, stored: func([]byte, KeySet) []byte { return []byte("junk") }, conflict: true},
		{name: "lost, then built upon", answer: errors.New("reset"), stored: func(_ []byte, s KeySet) []byte { return must(Encode(after(t, s, 5))) }, part: "whether this write took effect is unknown"},
		{name: "lost, another's of our generation", answer: errors.New("reset"), stored: func(_ []byte, s KeySet) []byte {
			s.body.Generation--
			return must(Encode(after(t, s, 5)))
		}, part: "reset"},
		{name: "conflict with one built upon ours", answer: ErrConflict, stored: func(_ []byte, s KeySet) []byte { return must(Encode(after(t, s, 5))) }, conflict: true},
		{name: "conflict with a later one of others", answer: ErrConflict, stored: func(_ []byte, s KeySet) []byte {
			s.body.History = s.body.History[:len(s.body.History)-1]
			return must(Encode(after(t, s, 5)))
		}, conflict: true},
		{name: "not durable", answer: ErrNotDurable, stored: func(ours []byte, _ KeySet) []byte { return ours }, part: ErrNotDurable.Error()},
		{name: "read-only", answer: ErrReadOnly, part: ErrReadOnly.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := stocked(t)
			ours := after(t, st.load(t), 1)
			st.fail = func(int, func()) error {
				if tt.stored != nil {
					st.doc, st.rev = tt.stored(must(Encode(ours)), ours), st.rev+1
				}
				return fmt.Errorf("put: %w", tt.answer)
			}
			rev, err := NewStore(st).Replace(t.Context(), "1", ours)
			if (err == nil) != tt.done || (rev != "") != tt.done || errors.Is(err, ErrConflict) != tt.conflict {
				t.Errorf("Replace = %q, %v", rev, err)
			}
			if err != nil && !strings.Contains(err.Error(), tt.part) {
				t.Errorf("the error is %v, want %q", err, tt.part)
			}
		})
	}
}

func TestAConflictThatCannotBeReadBackIsNoConflict(t *testing.T) {
	st := stocked(t)
	ours := after(t, st.load(t), 1)
	store := NewStore(unreadable{st})
	st.fail = func(int, func()) error { return ErrConflict }
	_, err := store.Write(t.Context(), "1", Document{ours.Name(), must(Encode(ours))})
	if err == nil || errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "etcd is down") {
		t.Errorf("put: %v", err)
	}
}

type unreadable struct{ *shelf }

func (unreadable) Get(context.Context, Name) ([]byte, Revision, error) {
	return nil, "", errors.New("etcd is down")
}
