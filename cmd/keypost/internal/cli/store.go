package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/open"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/keystore/replicate"
)

// OpenStore opens the store that --store or KEYPOST_STORE names.
func (f *Factory) OpenStore(ctx context.Context) (*keystore.Store, error) {
	u, err := ParseStore(f.Store)
	if err != nil {
		return nil, err
	}
	return Opened(u.Backend(ctx))
}

// Find returns the key set that an ISSUER argument names.
func (f *Factory) Find(ctx context.Context, issuer string) (keystore.KeySet, error) {
	st, err := f.OpenStore(ctx)
	if err != nil {
		return keystore.KeySet{}, err
	}
	return catalog.Find(ctx, st, issuer)
}

// WarnOthers warns of the other key sets of a store: those that could not be read, and those with the same keys.
func (f *Factory) WarnOthers(unread []keystore.Name, shared []catalog.Shared) {
	for _, n := range unread {
		f.Warn("key set %q cannot be read, and may have the same issuer URL or key; why: %s", n, Command{"issuer", "list"})
	}
	for _, s := range shared {
		f.Warn("key %s is also in key set %q: anyone who signs with it can speak for both issuers", s.Key, s.In)
	}
}

// OpenToWrite is OpenStore for a command that changes key sets.
func (f *Factory) OpenToWrite(ctx context.Context) (*keystore.Store, error) {
	return f.openToWrite(ctx, open.URL.Backend)
}

func (f *Factory) openToWrite(ctx context.Context, opened func(open.URL, context.Context) (keystore.Backend, error)) (*keystore.Store, error) {
	u, err := ParseStore(f.Store)
	if err != nil {
		return nil, err
	}
	if err := CheckWritable(u); err != nil {
		return nil, err
	}
	return Opened(opened(u, ctx))
}

// CheckWritable returns an error for the directory of a mirror: a version that was written there would keep the store's own out.
func CheckWritable(u open.URL) error {
	if u.Dir == "" {
		return nil
	}
	note, err := replicate.ReadHeartbeat(u.Dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	err = fmt.Errorf("the directory %s is the copy that keypost mirror keeps of %s, and nothing is written there", u.Dir, cmp.Or(OneLine(note.Store), "a store"))
	return WithHint(err, "write to the store itself; if the directory is to be the store from now on, end the mirror and remove %s", Quoted(filepath.Join(u.Dir, replicate.HeartbeatFile)))
}

// CreateStore opens the store for writing, as OpenToWrite does. If it is a directory that does not exist, and the parent
// does, the directory is made.
func (f *Factory) CreateStore(ctx context.Context) (*keystore.Store, error) {
	return f.openToWrite(ctx, open.URL.Create)
}

// Opened returns the store on a backend that was just opened, or its error with a hint.
func Opened(b keystore.Backend, err error) (*keystore.Store, error) {
	missing, is := errors.AsType[*open.MissingDirError](err)
	switch {
	case is && missing.Parent != "":
		return nil, WithHint(err, "mount what holds it; for a new store: mkdir -p %s", Quoted(missing.Parent))
	case is:
		return nil, WithHint(err, "mount what holds it; for a new store, keypost issuer add makes it")
	case err != nil:
		return nil, err
	}
	return keystore.NewStore(b), nil
}

// ParseStore reads the URL of --store; what is wrong with it is an error of usage.
func ParseStore(raw string) (open.URL, error) { return ParseStoreURL(raw, "use --store") }

// ParseStoreURL reads a store's URL; use is what a hint puts before a better one.
func ParseStoreURL(raw, use string) (open.URL, error) {
	u, err := open.Parse(raw)
	if err == nil {
		return u, nil
	}
	wrong, _ := errors.AsType[*open.URLError](err)
	err = &usageError{err}
	switch {
	case raw == "":
		err = WithHint(err, "%s %s, or set KEYPOST_STORE", use, open.Forms)
	case wrong != nil && wrong.Instead != "":
		err = WithHint(err, "%s %s", use, Quoted(wrong.Instead))
	case wrong != nil && wrong.Form:
		err = WithHint(err, "%s %s", use, open.Forms)
	}
	return open.URL{}, err
}

// Update changes the key set that an ISSUER argument names. The error of a closed gate gets a hint.
func (f *Factory) Update(ctx context.Context, issuer string, change func(keystore.KeySet) (keystore.KeySet, error)) (keystore.KeySet, error) {
	st, err := f.OpenToWrite(ctx)
	if err != nil {
		return keystore.KeySet{}, err
	}
	return f.UpdateIn(ctx, st, issuer, change)
}

// UpdateIn is Update in a store that was opened to write. A key set that is given by name is read once.
func (f *Factory) UpdateIn(ctx context.Context, st *keystore.Store, issuer string, change func(keystore.KeySet) (keystore.KeySet, error)) (keystore.KeySet, error) {
	n := keystore.Name(issuer)
	if catalog.IsURL(issuer) {
		s, err := catalog.Find(ctx, st, issuer)
		if err != nil {
			return s, err
		}
		n = s.Name()
	}
	if err := catalog.CheckName(n); err != nil {
		return keystore.KeySet{}, err
	}
	var was keystore.KeySet
	changed, err := keystore.Update(ctx, st, n, func(s keystore.KeySet) (keystore.KeySet, error) {
		was = s
		return change(s)
	})
	return changed, f.AtGate(err, was)
}

// InUse returns the key sets in use that the arguments name, each once, or with all every one of the store, and then also
// the names of those that cannot be read.
func (f *Factory) InUse(ctx context.Context, st *keystore.Store, args []string, all bool) (sets []keystore.KeySet, unread []keystore.Name, err error) {
	if err := CheckChoice(args, all); err != nil {
		return nil, nil, err
	}
	if all {
		c, err := f.ReadAll(ctx, st)
		if err != nil {
			return nil, nil, err
		}
		inUse := slices.DeleteFunc(c.Sets, keystore.KeySet.Withdrawn)
		if len(inUse)+len(c.Unread) == 0 {
			return nil, nil, errors.New("the store has no key set in use")
		}
		return inUse, slices.Sorted(maps.Keys(c.Unread)), nil
	}
	for _, arg := range args {
		s, err := catalog.Find(ctx, st, arg)
		switch {
		case err != nil:
			return nil, nil, err
		case s.Withdrawn():
			return nil, nil, fmt.Errorf("key set %q was withdrawn at %s", s.Name(), Stamp(s.WithdrawnAt()))
		case !slices.ContainsFunc(sets, func(have keystore.KeySet) bool { return have.Name() == s.Name() }):
			sets = append(sets, s)
		}
	}
	return sets, nil, nil
}

// Unread returns an error that names the key sets that could not be read; nil for none.
func Unread(names []keystore.Name) error {
	if len(names) == 0 {
		return nil
	}
	return WithHint(fmt.Errorf("%s cannot be read: %q", text.Count(len(names), "key set", "key sets"), names), "to see why: %s", Command{"issuer", "list"})
}

// CheckTaken returns an error for keys that are to be published and whose tokens a relying party of the policy refuses. With force it
// warns of each instead.
func (f *Factory) CheckTaken(p keystore.Policy, force bool, keys ...keystore.VerificationKey) error {
	var refused []error
	for _, k := range keys {
		refused = append(refused, party.Refusals(p.RelyingParties, string(k.ID()), k.Alg())...)
	}
	for _, err := range refused {
		if !force {
			return WithHint(err, "make one that every relying party takes: %s; or, if that relying party need not take its tokens, add it with --force --why REASON",
				Command{"key", "generate", "--type", "rsa3072", "--out", "DIR"})
		}
		f.Warn("%v", err)
	}
	return nil
}

// Others are the other key sets of a store, beside which a key is added.
type Others struct {
	*Factory
	Store *keystore.Store
	Force bool // add a key that another one has revoked
}

// Check returns an error for a key that another key set has revoked, unless Force is set, and warns of one that
// another has too. Somebody who may read one key set only is told that nothing was compared: else nobody could be given the
// right to rotate the keys of one issuer.
func (o Others) Check(ctx context.Context, n keystore.Name, keys ...keystore.VerificationKey) error {
	c, err := o.ReadAll(ctx, o.Store)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		o.Warn("whether another key set has the key, or has revoked it, is unknown: %v", err)
		return nil
	}
	shared, err := c.CheckKeys(n, keys, o.Force)
	if err != nil {
		return err
	}
	o.WarnOthers(slices.Sorted(maps.Keys(c.Unread)), shared)
	return nil
}
