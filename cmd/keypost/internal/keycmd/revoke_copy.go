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
	"github.com/keypost/keypost/keystore/open"
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
	copied, err := o.readCopy(ctx, args[0])
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
	why := fmt.Sprintf("%s; from a copy of generation %d, since the stored document was broken or lost", o.why, copied.Generation())
	base, err := salvage.Restore(o.Change(why, o.force), copied, remains)
	if _, is := errors.AsType[*salvage.OlderError](err); is {
		return keyChange{}, cli.WithHint(err, "with --force go on from the copy; then revoke each key that was revoked since, if it is published again: %s",
			cli.Command{"key", "revoke", string(copied.Name()), "KID", "--why", "REASON"})
	}
	if err != nil {
		return keyChange{}, err
	}
	for _, f := range remains.Missing(copied) {
		o.Warn("what is left of the stored document also has the key with the SHA-256 %s, which the copy lacks: it was not taken; a keypostd that serves it refuses this version, and this settles that: %s", f,
			cli.Command{"issuer", "accept", string(copied.Name()), "--admin", "URL", "--why", "REASON"})
	}
	c := keyChange{before: copied, after: base}
	k, err := catalog.Key(base, args[1])
	gone, already := errors.AsType[*catalog.NoKeyError](err)
	switch already = already && gone.Gone; {
	case already && len(base.Keys()) == 0 && !o.empty:
		return c, cli.WithHint(errors.New("what is left of the stored document says that every key of the copy is gone"), "--leave-empty")
	case already: // what is left of the document says so
		k, err = catalog.Key(copied, args[1])
	case err == nil:
		c.after, err = base.Revoke(o.Change(o.why, o.force), k.ID(), last)
	}
	if err != nil {
		return c, err
	}
	c.id, c.after = k.ID(), c.after.Settled().LinkedTo(copied)
	if _, err := st.Replace(ctx, rev, c.after); err != nil {
		return c, fmt.Errorf("replace key set %q: %w", copied.Name(), err)
	}
	o.Notice("the key set was made anew from %s, with every line in gone that is left; a keypostd that serves a generation after %d refuses it: %s", o.lastGood, c.after.Generation(),
		cli.Command{"issuer", "accept", string(c.after.Name()), "--admin", "URL", "--why", "REASON"})
	return c, nil
}

// readCopy reads the file of --last-good, with proof that the store held the whole of it: the notes of the store's mirror beside
// it have its digest. Its keys alone would not do: with another issuer URL, --wait would look where nothing is served.
func (o *revokeOptions) readCopy(ctx context.Context, issuer string) (s keystore.KeySet, err error) {
	data, err := regular.Read(o.lastGood, keystore.MaxDocument)
	if err != nil {
		return s, fmt.Errorf("--last-good %s: %w", o.lastGood, cli.Reason(err))
	}
	base := filepath.Base(o.lastGood)
	name := keystore.Name(strings.TrimSuffix(base, filepath.Ext(base)))
	if !catalog.IsURL(issuer) {
		name = keystore.Name(issuer)
	}
	if s, err = keystore.Parse(name, data); err != nil {
		return s, fmt.Errorf("--last-good %s: %w", o.lastGood, err)
	}
	if catalog.IsURL(issuer) && !slices.ContainsFunc(s.Issuers(), func(u keystore.IssuerURL) bool { return u.String() == issuer }) {
		return s, fmt.Errorf("--last-good %s: key set %q does not have the issuer URL %s", o.lastGood, name, issuer)
	}
	st, err := o.OpenStore(ctx)
	if err != nil {
		return s, err
	}
	here := open.Place(st.Backend())
	there, noted, err := replicate.WasCopied(filepath.Dir(o.lastGood), s)
	var why string
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "no mirror has left notes beside it"
	case err != nil:
		why = fmt.Sprintf("the notes of the mirror beside it cannot be read: %v", err)
	case here == "" || there != here:
		why = fmt.Sprintf("the notes of the mirror beside it are about the store %s, not %s", text.OneLine(there, 300), text.OneLine(here, 300))
	case !noted:
		why = "it is not the version that the mirror beside it has copied last"
	default:
		return s, nil
	}
	return s, cli.WithHint(fmt.Errorf("nothing shows that the store ever held --last-good %s: %s", o.lastGood, why), "give the file in the own directory of the store's mirror, "+
		"on this replica or another one; or write the document anew from Git or a backup, look at it, and run this again without --last-good")
}

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
	all, err := o.ReadAll(ctx, st)
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
