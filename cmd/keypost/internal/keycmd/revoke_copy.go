package keycmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/replicate"
	"github.com/keypost/keypost/keystore/salvage"
)

// isUnreadable reports whether an error says that the key set which was asked for is broken or lost.
func isUnreadable(err error) bool {
	_, broken := errors.AsType[*keystore.BrokenError](err)
	_, unknown := errors.AsType[*catalog.NoKeySetError](err) // of a URL: the document that has it may be broken
	return broken || unknown || errors.Is(err, keystore.ErrNotFound)
}

// fromLastGood revokes a key in the copy of the last good version that --last-good names, and stores the result in place of
// the document that is broken or lost.
func (o *revokeOptions) fromLastGood(ctx context.Context, args []string, last keystore.RevokeOptions) (keyChange, error) {
	copied, noted, err := o.readCopy(args[0])
	if err != nil {
		return keyChange{}, err
	}
	st, err := o.OpenToWrite(ctx)
	if err != nil {
		return keyChange{}, err
	}
	remains, rev, err := o.remains(ctx, st, copied)
	if err != nil {
		return keyChange{}, err
	}
	base, err := salvage.Restore(o.Change(o.why+"; from a copy of generation "+fmt.Sprint(copied.Generation())+", since the stored document was broken or lost", true), copied, noted, remains)
	if err != nil {
		return keyChange{}, o.unproven(err)
	}
	for _, f := range remains.Missing(copied) {
		o.Warn("what is left of the stored document also has the key with the SHA-256 %s, which the copy lacks: it was not taken; a keypostd that serves it refuses this version, and keypost issuer accept settles that", f)
	}
	c := keyChange{before: copied, after: base}
	k, err := catalog.Key(base, args[1])
	gone, already := errors.AsType[*catalog.NoKeyError](err)
	switch already = already && gone.Gone; {
	case already: // what is left of the document says so
		k, err = catalog.Key(copied, args[1])
	case err == nil:
		c.after, err = base.Revoke(o.Change(o.why, o.force), k.ID(), last)
	}
	if err != nil {
		return c, err
	}
	c.id, c.after = k.ID(), c.after.Settled()
	if _, err := st.Replace(ctx, rev, c.after); err != nil {
		return c, fmt.Errorf("replace key set %q: %w", copied.Name(), err)
	}
	o.Notice("the key set was made anew from %s, with every line in gone that is left; a keypostd that serves a generation after %d refuses it: see keypost issuer accept --admin", o.lastGood, c.after.Generation())
	return c, nil
}

// readCopy reads the file of --last-good, and reports whether it is what a mirror beside it has read from this store.
func (o *revokeOptions) readCopy(issuer string) (s keystore.KeySet, noted bool, err error) {
	data, err := regular.Read(o.lastGood, keystore.MaxDocument)
	if err != nil {
		return s, false, fmt.Errorf("--last-good %s: %w", o.lastGood, cli.Reason(err))
	}
	base := filepath.Base(o.lastGood)
	name := keystore.Name(strings.TrimSuffix(base, filepath.Ext(base)))
	if !catalog.IsURL(issuer) {
		name = keystore.Name(issuer)
	}
	if s, err = keystore.Parse(name, data); err != nil {
		return s, false, fmt.Errorf("--last-good %s: %w", o.lastGood, err)
	}
	if catalog.IsURL(issuer) && !slices.ContainsFunc(s.Issuers(), func(u keystore.IssuerURL) bool { return u.String() == issuer }) {
		return s, false, fmt.Errorf("--last-good %s: key set %q does not have the issuer URL %s", o.lastGood, name, issuer)
	}
	store, is, err := replicate.WasCopied(filepath.Dir(o.lastGood), s)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, false, nil
	case err != nil:
		o.Warn("the notes of the mirror beside %s cannot be read: %v", o.lastGood, err)
		return s, false, nil
	case is && !samePlace(store, o.Store):
		o.Warn("the notes of the mirror beside %s are about the store %s, not %s, and show nothing of that", o.lastGood, place(store), place(o.Store))
		return s, false, nil
	}
	return s, is, nil
}

// place is a store's URL without parameters, which say how it is reached.
func place(store string) string {
	p, _, _ := strings.Cut(store, "?")
	return text.OneLine(strings.TrimSuffix(p, "/"), 200)
}

func samePlace(a, b string) bool { return place(a) == place(b) }

// remains reads what is left of the stored document, with the revision to replace: none if it is lost, and then no other key
// set may have its issuer URL by now.
func (o *revokeOptions) remains(ctx context.Context, st *keystore.Store, copied keystore.KeySet) (salvage.Remains, keystore.Revision, error) {
	doc, rev, err := st.Backend().Get(ctx, copied.Name())
	if err == nil {
		if _, err := keystore.Parse(copied.Name(), doc); err == nil {
			return salvage.Remains{}, "", fmt.Errorf("key set %q can be read by now; run this again", copied.Name())
		}
		return salvage.Read(doc), rev, nil
	}
	if !errors.Is(err, keystore.ErrNotFound) {
		return salvage.Remains{}, "", fmt.Errorf("read what is left of key set %q: %w", copied.Name(), err)
	}
	all, err := catalog.ReadAll(ctx, st)
	if err != nil {
		return salvage.Remains{}, "", err
	}
	err = all.CheckFree(keystore.Spec{Name: copied.Name(), Issuers: copied.Issuers()})
	if _, is := errors.AsType[*catalog.UnreadError](err); is { // else whoever can break one document keeps every other from being mended
		o.Warn("%v", err)
		err = nil
	}
	return salvage.Remains{}, "", err
}

// unproven says what to do about keys of the copy that are taken from no file without proof.
func (o *revokeOptions) unproven(err error) error {
	e, is := errors.AsType[*salvage.UnprovenError](err)
	if !is {
		return err
	}
	for _, k := range e.Keys {
		o.Notice("  %s %s, SHA-256 %s", k.ID(), k.Alg(), k.Fingerprint())
	}
	return cli.WithHint(err, "give the file in the mirror's own directory, whose notes (.keypost-mirror-marks.json) show what was stored; "+
		"if you know each of these keys, put the copy back where the document was, and run this again")
}
