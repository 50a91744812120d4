package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
)

// openStore opens the store that --store or KEYPOST_STORE names.
func (a *app) openStore() (keystore.Store, error) {
	dir, err := storeDir(a.store)
	if err != nil {
		return nil, err
	}
	st, err := filestore.Open(dir)
	if err != nil {
		return nil, err
	}
	return st, nil
}

// createStore makes the store's directory if only that is missing.
func (a *app) createStore() (keystore.Store, error) {
	dir, err := storeDir(a.store)
	if err != nil {
		return nil, err
	}
	st, err := filestore.Create(dir)
	if err != nil {
		return nil, err
	}
	return st, nil
}

// storeDir reads a file store's URL. A plain path is refused although its meaning could be guessed: the same flag
// names other kinds of stores, and "s3:/bucket" must not become a directory.
func storeDir(raw string) (string, error) {
	rest, isFile := strings.CutPrefix(raw, "file://")
	scheme, _, hasScheme := strings.Cut(raw, "://")
	switch {
	case raw == "":
		return "", withHint(usagef("no store was given"), "use --store file:///DIR, or set KEYPOST_STORE")
	case hasScheme && (scheme == "s3" || scheme == "kubernetes"):
		return "", withHint(usagef("store %q: %s:// stores are not in this version", raw, scheme), "use a directory: --store file:///DIR")
	case hasScheme && !isFile:
		return "", withHint(usagef("store %q: its scheme %q is unknown", raw, scheme), "use --store file:///DIR")
	case !isFile:
		return "", withHint(usagef("store %q: it is a path, not a URL", raw), "use --store %s", fileURL(raw))
	case !strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, "./") && !strings.HasPrefix(rest, "../"):
		return "", withHint(usagef("store %q: after file:// comes /, ./ or ../", raw), "use --store file://./%s", rest)
	case strings.ContainsAny(rest, "?#"):
		return "", usagef("store %q: a file store takes no parameters", raw)
	}
	dir, err := url.PathUnescape(rest)
	if err != nil {
		return "", usagef("store %q: its percent-encoding is damaged", raw)
	}
	return dir, nil
}

func fileURL(path string) string {
	if strings.HasPrefix(path, "/") || strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../") {
		return "file://" + path
	}
	return "file://./" + path
}

// all loads every key set of a store, in order of their names; what could not be loaded stands in broken.
func all(ctx context.Context, st keystore.Reader) (sets []keystore.KeySet, broken map[keystore.Name]error, err error) {
	revisions, err := st.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	broken = map[keystore.Name]error{}
	for _, n := range slices.Sorted(maps.Keys(revisions)) {
		s, _, err := st.Load(ctx, n)
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case err != nil:
			broken[n] = err
		default:
			sets = append(sets, s)
		}
	}
	return sets, broken, nil
}

// find loads the key set that an ISSUER argument means: a name, or one of its issuer URLs.
func find(ctx context.Context, st keystore.Reader, issuer string) (keystore.KeySet, error) {
	if !strings.Contains(issuer, "://") {
		return load(ctx, st, keystore.Name(issuer))
	}
	sets, broken, err := all(ctx, st)
	if err != nil {
		return keystore.KeySet{}, err
	}
	var found []keystore.KeySet
	for _, s := range sets {
		if slices.ContainsFunc(s.Issuers(), func(u keystore.IssuerURL) bool { return u.String() == issuer }) {
			found = append(found, s)
		}
	}
	if inUse := slices.DeleteFunc(slices.Clone(found), keystore.KeySet.Withdrawn); len(inUse) > 0 {
		found = inUse
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return keystore.KeySet{}, withHint(fmt.Errorf("%d key sets have the issuer URL %s", len(found), issuer), "give the name: %s or %s", found[0].Name(), found[1].Name())
	case len(broken) > 0:
		return keystore.KeySet{}, withHint(fmt.Errorf("no readable key set has the issuer URL %s, and %d are broken", issuer, len(broken)), "keypost issuer list")
	}
	return keystore.KeySet{}, withHint(fmt.Errorf("no key set has the issuer URL %s", issuer), "keypost issuer list")
}

func load(ctx context.Context, st keystore.Reader, n keystore.Name) (keystore.KeySet, error) {
	if err := n.Check(); err != nil {
		return keystore.KeySet{}, &usageError{err}
	}
	s, _, err := st.Load(ctx, n)
	if errors.Is(err, keystore.ErrNotFound) {
		return s, withHint(fmt.Errorf("load key set %q: %w", n, err), "keypost issuer list")
	}
	if err != nil {
		return s, fmt.Errorf("load key set %q: %w", n, err)
	}
	return s, nil
}

// minPrefix is how much of a key ID must be typed: enough that nobody hits another key by accident.
const minPrefix = 8

// match returns the one of ids that a KID argument means: the whole of it, or a unique prefix.
func match(ids []keystore.KeyID, typed string) (keystore.KeyID, error) {
	if slices.Contains(ids, keystore.KeyID(typed)) {
		return keystore.KeyID(typed), nil
	}
	if len(typed) < minPrefix {
		return "", usagef("key %q: give the key ID or at least its first %d characters", typed, minPrefix)
	}
	var found []keystore.KeyID
	for _, id := range ids {
		if strings.HasPrefix(string(id), typed) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("no key ID begins with %q", typed)
	}
	return "", usagef("key %q: %d key IDs begin so; give more of it", typed, len(found))
}

// findKey returns the published key that a KID argument means.
func findKey(s keystore.KeySet, typed string) (keystore.Key, error) {
	var ids []keystore.KeyID
	for _, k := range s.Keys() {
		ids = append(ids, k.ID())
	}
	id, err := match(ids, typed)
	if err == nil {
		k, _ := s.Key(id)
		return k, nil
	}
	for _, g := range s.Gone() {
		if strings.HasPrefix(string(g.ID), typed) && len(typed) >= minPrefix {
			return keystore.Key{}, fmt.Errorf("key set %q: key %s is gone (%s at %s)", s.Name(), g.ID, g.Why, stamp(g.At))
		}
	}
	return keystore.Key{}, withHint(fmt.Errorf("key set %q: %w", s.Name(), err), "keypost key list %s", s.Name())
}
