package catalog

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/keypost/keypost/keystore"
)

// IsURL reports whether an argument that may be a name or an issuer URL is meant as a URL.
func IsURL(issuer string) bool { return strings.Contains(issuer, "://") }

// NameError reports that an argument is no name of a key set.
type NameError struct {
	Name keystore.Name
	Err  error
}

func (e *NameError) Error() string { return e.Err.Error() }
func (e *NameError) Unwrap() error { return e.Err }

// CheckName returns a [*NameError] for what is no name of a key set.
func CheckName(n keystore.Name) error {
	if err := n.Check(); err != nil {
		return &NameError{n, err}
	}
	return nil
}

// NoKeySetError reports that no key set has an issuer URL. Unread counts the documents that could not be read: one of
// them may have it.
type NoKeySetError struct {
	URL    string
	Unread int
}

func (e *NoKeySetError) Error() string {
	if e.Unread > 0 {
		return fmt.Sprintf("no readable key set has the issuer URL %s, and %d cannot be read", e.URL, e.Unread)
	}
	return "no key set has the issuer URL " + e.URL
}

// AmbiguousError reports that several key sets have one issuer URL.
type AmbiguousError struct {
	URL   string
	Names []keystore.Name // at least two, in order
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%d key sets have the issuer URL %s", len(e.Names), e.URL)
}

// Find loads the key set with that name or that issuer URL. Of several with the URL it prefers the ones in use to
// those that were withdrawn. The error is a [*NameError], a [*NoKeySetError], an [*AmbiguousError], or that of the
// store.
func Find(ctx context.Context, r keystore.Reader, issuer string) (keystore.KeySet, error) {
	if !IsURL(issuer) {
		return Load(ctx, r, keystore.Name(issuer))
	}
	c, err := ReadAll(ctx, r)
	if err == nil {
		return c.withURL(issuer)
	}
	// Who may write single key sets may list none. The URL usually has the name in it (keypostd's issuerURLs), and a key set
	// that was loaded says itself whether it has the URL.
	for _, n := range namesIn(issuer) {
		if s, loadErr := Load(ctx, r, n); loadErr == nil && hasURL(s, issuer) {
			return s, nil
		}
	}
	if ctx.Err() != nil {
		return keystore.KeySet{}, err
	}
	return keystore.KeySet{}, fmt.Errorf("find the key set with the issuer URL %s: %w; by its NAME it is found without a list", issuer, err)
}

// namesIn returns what may be the name of the key set in an issuer URL: the last part of the path and the first of the host.
func namesIn(issuer string) (names []keystore.Name) {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil
	}
	first, _, _ := strings.Cut(u.Hostname(), ".")
	for _, part := range []string{path.Base(u.EscapedPath()), first} {
		if n := keystore.Name(part); CheckName(n) == nil {
			names = append(names, n)
		}
	}
	return names
}

// Load loads the key set with that name. The error is a [*NameError] or wraps that of the store.
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

// withURL returns the key set with that issuer URL, compared byte for byte, as [Find] chooses it.
func (c Contents) withURL(url string) (keystore.KeySet, error) {
	var found, inUse []keystore.KeySet
	for _, s := range c.Sets {
		if !hasURL(s, url) {
			continue
		}
		found = append(found, s)
		if !s.Withdrawn() {
			inUse = append(inUse, s)
		}
	}
	if len(inUse) > 0 {
		found = inUse
	}
	switch len(found) {
	case 0:
		return keystore.KeySet{}, &NoKeySetError{url, len(c.Unread)}
	case 1:
		return found[0], nil
	}
	e := &AmbiguousError{URL: url}
	for _, s := range found {
		e.Names = append(e.Names, s.Name())
	}
	return keystore.KeySet{}, e
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
