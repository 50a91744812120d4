package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
)

// IsURL reports whether an argument that may be a name or an issuer URL is meant as a URL.
func IsURL(issuer string) bool { return strings.Contains(issuer, "://") }

// CheckName returns a [BadName] error for what is not a name of a key set.
func CheckName(n keystore.Name) error {
	if err := n.Check(); err != nil {
		return errorf(BadName, n, "%v", err)
	}
	return nil
}

// Find loads the key set with that name or that issuer URL, compared byte for byte. Of several with the URL it prefers the
// ones in use to those that were withdrawn. The error has the kind [BadName], [NoKeySet], [MayBeOne] or [Ambiguous], or
// that of the store.
func Find(ctx context.Context, r keystore.Reader, issuer string) (keystore.KeySet, error) {
	if !IsURL(issuer) {
		return Load(ctx, r, keystore.Name(issuer))
	}
	c, err := ReadAll(ctx, r)
	if err != nil {
		return keystore.KeySet{}, fmt.Errorf("find the key set with the issuer URL %s: %w; by its NAME it is found without a list", issuer, err)
	}
	found := slices.DeleteFunc(slices.Clone(c.Sets), func(s keystore.KeySet) bool { return !hasURL(s, issuer) })
	if inUse := slices.DeleteFunc(slices.Clone(found), keystore.KeySet.Withdrawn); len(inUse) > 0 {
		found = inUse
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		e := &Error{Kind: Ambiguous, Message: fmt.Sprintf("%d key sets have the issuer URL %s", len(found), issuer)}
		for _, s := range found {
			e.Names = append(e.Names, s.Name())
		}
		return keystore.KeySet{}, e
	case len(c.Unread) > 0:
		return keystore.KeySet{}, errorf(MayBeOne, "", "no readable key set has the issuer URL %s, and %d cannot be read", issuer, len(c.Unread))
	}
	return keystore.KeySet{}, errorf(NoKeySet, "", "no key set has the issuer URL %s", issuer)
}

// Load loads the key set with that name. The error has the kind [BadName] or wraps that of the store.
func Load(ctx context.Context, r keystore.Reader, n keystore.Name) (keystore.KeySet, error) {
	if err := CheckName(n); err != nil {
		return keystore.KeySet{}, err
	}
	s, _, err := r.Load(ctx, n)
	if err != nil {
		return s, fmt.Errorf("load key set %q: %w", n, err)
	}
	return s, nil
}

// InUse returns the first key set that has that issuer URL, compared byte for byte, and was not withdrawn.
func (c Contents) InUse(url string) (keystore.KeySet, bool) {
	i := slices.IndexFunc(c.Sets, func(s keystore.KeySet) bool { return !s.Withdrawn() && hasURL(s, url) })
	if i < 0 {
		return keystore.KeySet{}, false
	}
	return c.Sets[i], true
}

func hasURL(s keystore.KeySet, url string) bool {
	return slices.ContainsFunc(s.Issuers(), func(u keystore.IssuerURL) bool { return u.String() == url })
}

// MinPrefix is how many characters of a key ID must be given: enough that nobody hits another key by accident.
const MinPrefix = 8

// match returns the one of ids that typed means: the whole of it, or a unique prefix. The error has the kind [BadPrefix]
// or [NoKey].
func match(ids []keystore.KeyID, typed string) (keystore.KeyID, error) {
	if slices.Contains(ids, keystore.KeyID(typed)) {
		return keystore.KeyID(typed), nil
	}
	if len(typed) < MinPrefix {
		return "", errorf(BadPrefix, "", "key %q: give the key ID or at least its first %d characters", typed, MinPrefix)
	}
	found := slices.DeleteFunc(slices.Clone(ids), func(id keystore.KeyID) bool { return !strings.HasPrefix(string(id), typed) })
	switch len(found) {
	case 0:
		return "", errorf(NoKey, "", "no key ID begins with %q", typed)
	case 1:
		return found[0], nil
	}
	return "", errorf(BadPrefix, "", "prefix %q matches %d key IDs; use a longer one", typed, len(found))
}

// Key returns the published key that a key ID or a unique prefix of it means. The error has the kind [NoKey], [KeyGone] or
// [BadPrefix].
func Key(s keystore.KeySet, typed string) (keystore.Key, error) {
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
		if string(g.ID) == typed || strings.HasPrefix(string(g.ID), typed) && len(typed) >= MinPrefix {
			return keystore.Key{}, errorf(KeyGone, s.Name(), "key set %q: key %s is gone (%s at %s)", s.Name(), g.ID, g.Why, g.At.UTC().Format(time.RFC3339))
		}
	}
	return keystore.Key{}, &Error{Kind: KindOf(err), Names: []keystore.Name{s.Name()}, Message: fmt.Sprintf("key set %q: %v", s.Name(), err)}
}
