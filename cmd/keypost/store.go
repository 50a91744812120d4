package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/kubestore"
	"github.com/keypost/keypost/keystore/s3store"
)

// openStore opens the store that --store or KEYPOST_STORE names.
func (a *app) openStore(ctx context.Context) (*keystore.Store, error) {
	p, err := parsePlace(a.store)
	if err != nil {
		return nil, err
	}
	return p.open(ctx, filestore.Open)
}

// openToWrite is openStore for a command that changes key sets, and remembers which.
func (a *app) openToWrite(ctx context.Context) (*keystore.Store, error) {
	st, err := a.openStore(ctx)
	if err != nil {
		return nil, err
	}
	return a.noted(st), nil
}

// createStore is openToWrite, and makes a file store's directory if only that is missing. A bucket or a namespace is
// somebody else's to make.
func (a *app) createStore(ctx context.Context) (*keystore.Store, error) {
	p, err := parsePlace(a.store)
	if err != nil {
		return nil, err
	}
	st, err := p.open(ctx, filestore.Create)
	if err != nil {
		return nil, err
	}
	return a.noted(st), nil
}

// openStore opens the store that an argument names.
func openStore(ctx context.Context, raw string, open func(dir string) (*filestore.Backend, error)) (*keystore.Store, error) {
	p, err := parseStoreURL(raw, "use")
	if err != nil {
		return nil, err
	}
	return p.open(ctx, open)
}

func (p place) open(ctx context.Context, open func(dir string) (*filestore.Backend, error)) (*keystore.Store, error) {
	switch p.scheme {
	case schemeS3:
		return opened(s3store.Open(ctx, p.s3))
	case schemeKubernetes:
		return opened(kubestore.Open(ctx, p.namespace, p.kubernetes))
	}
	st, err := open(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missingDir(p.dir)
	}
	return opened(st, err)
}

// missingDir says which directory is missing. One that stood there before may be a volume that is not mounted.
func missingDir(dir string) error {
	if parent := filepath.Dir(filepath.Clean(dir)); !isDir(parent) {
		return withHint(absentError(fmt.Sprintf("open key store %s: there is no directory %s", dir, parent)), "mkdir -p %s, or mount what holds it", quoted(parent))
	}
	return withHint(absentError(fmt.Sprintf("open key store %s: the directory does not exist", dir)), "mount what holds it; for a new store, keypost issuer add makes it")
}

// absentError is an fs.ErrNotExist that does not end in "file does not exist".
type absentError string

func (e absentError) Error() string        { return string(e) }
func (e absentError) Is(target error) bool { return target == fs.ErrNotExist }

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func opened[B keystore.Backend](b B, err error) (*keystore.Store, error) {
	if err != nil {
		return nil, err
	}
	return keystore.NewStore(b), nil
}

// place is where a store is and with whose rights it is opened: all that its URL says.
type place struct {
	scheme     string
	dir        string
	s3         s3store.Options
	namespace  string
	kubernetes kubestore.Options
}

// The schemes of store URLs.
const (
	schemeFile       = "file"
	schemeS3         = "s3"
	schemeKubernetes = "kubernetes"
)

const storeForms = "file:///DIR, s3://BUCKET/PREFIX?region=REGION or kubernetes://NAMESPACE"

// parsePlace reads the URL of --store; what is wrong with it is an error of usage.
func parsePlace(raw string) (place, error) { return parseStoreURL(raw, "use --store") }

// parseStoreURL reads a store's URL; use is what a hint puts before a better one.
func parseStoreURL(raw, use string) (place, error) {
	scheme, _, isURL := strings.Cut(raw, "://")
	bare, rest, _ := strings.Cut(raw, ":")
	switch {
	case raw == "":
		return place{}, withHint(usagef("no store was given"), "%s %s, or set KEYPOST_STORE", use, storeForms)
	case strings.ContainsFunc(raw, func(r rune) bool { return !text.Printable(r) }):
		return place{}, withHint(usagef("store %q: it holds a line break or another character that cannot be seen", shown(raw)), "%s %s", use, storeForms)
	case !isURL && bare == schemeFile && strings.HasPrefix(rest, "/"):
		return place{}, withHint(usagef("store %q: after the scheme comes ://", shown(raw)), "%s", urlHint(use, rest))
	case !isURL && slices.Contains([]string{schemeFile, schemeS3, schemeKubernetes}, bare):
		return place{}, withHint(usagef("store %q: after the scheme comes ://", shown(raw)), "%s %s", use, storeForms)
	case !isURL:
		return place{}, withHint(usagef("store %q: it is a path, not a URL", shown(raw)), "%s", urlHint(use, raw))
	}
	p, err := place{scheme: scheme}, error(nil)
	switch scheme {
	case schemeFile:
		p.dir, err = parseDir(raw, use)
	case schemeS3:
		p.s3, err = s3store.ParseURL(raw)
	case schemeKubernetes:
		p.namespace, p.kubernetes, err = parseNamespace(raw)
	default:
		err = withHint(fmt.Errorf("store %q: its scheme is unknown", shown(scheme)+"://"), "%s %s", use, storeForms)
	}
	if err != nil {
		return place{}, &usageError{err}
	}
	return p, nil
}

// shown is what may be printed of a store's URL that cannot be read: no user name, password or parameter. A path has
// none of these before its "?".
func shown(raw string) string {
	end := strings.IndexAny(raw, "?#")
	if pathForm.MatchString(raw) {
		if end < 0 {
			return raw
		}
		return raw[:end] + "…"
	}
	if end < 0 && !strings.Contains(raw, "@") {
		return raw
	}
	if scheme, _, has := strings.Cut(raw, ":"); has && schemeForm.MatchString(scheme) {
		return scheme + ":…"
	}
	return "…"
}

// urlHint is the hint for somebody who gave a path where a URL is needed.
func urlHint(use, path string) string {
	if shown(path) != path {
		return use + " " + storeForms
	}
	return use + " " + quoted(fileURL(path))
}

var (
	schemeForm = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)
	pathForm   = regexp.MustCompile(`^(file:/?/?)?(/|\./|\.\./)[^/]`)
)

// parseDir reads a file store's URL. A plain path is refused although its meaning could be guessed: the same flag names
// other kinds of stores, and "s3:/bucket" must not become a directory.
func parseDir(raw, use string) (string, error) {
	rest := strings.TrimPrefix(raw, "file://")
	switch {
	case strings.ContainsAny(rest, "?#"):
		return "", fmt.Errorf("store %q: a file store takes no parameters", shown(raw))
	case !strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, "./") && !strings.HasPrefix(rest, "../"):
		return "", withHint(fmt.Errorf("store %q: after file:// comes /, ./ or ../", shown(raw)), "%s", urlHint(use, rest))
	}
	dir, err := url.PathUnescape(rest)
	if err != nil {
		return "", fmt.Errorf("store %q: its percent-encoding is damaged", shown(raw))
	}
	return dir, nil
}

// parseNamespace reads kubernetes://NAMESPACE[?kubeconfig=][&context=].
func parseNamespace(raw string) (namespace string, o kubestore.Options, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.User != nil || u.Port() != "" || u.Fragment != "" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		// never quoted: a password may be in it
		return "", o, errors.New("the key store's URL is not of the form kubernetes://NAMESPACE?kubeconfig=FILE&context=CONTEXT")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", o, errors.New("the key store's URL has a query that cannot be read")
	}
	for name, values := range query {
		field := map[string]*string{"kubeconfig": &o.Kubeconfig, "context": &o.Context}[name]
		switch {
		case field == nil:
			return "", o, fmt.Errorf("kubernetes:// URLs have no parameter %q; they have kubeconfig and context", name)
		case len(values) != 1 || values[0] == "":
			return "", o, fmt.Errorf("parameter %s of the key store's URL needs one value", name)
		}
		*field = values[0]
	}
	return u.Host, o, nil
}

func fileURL(path string) string {
	path = strings.ReplaceAll(path, "%", "%25")
	if strings.HasPrefix(path, "/") || strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../") {
		return "file://" + path
	}
	return "file://./" + path
}

// all loads every key set of a store, in order of their names. What is wrong with one document or its file stands in
// broken; trouble of the store is an error.
func all(ctx context.Context, st keystore.Reader) (sets []keystore.KeySet, broken map[keystore.Name]error, err error) {
	c, err := readAll(ctx, st, nil)
	return c.sets, c.broken, err
}

// contents are the key sets of a store at one moment.
type contents struct {
	revisions map[keystore.Name]keystore.Revision
	sets      []keystore.KeySet // in order of their names
	broken    map[keystore.Name]error
}

// readAll loads every key set whose revision is not the one in known.
func readAll(ctx context.Context, st keystore.Reader, known map[keystore.Name]keystore.Revision) (contents, error) {
	revisions, err := st.List(ctx)
	if err != nil {
		return contents{}, err
	}
	c := contents{revisions: revisions, broken: map[keystore.Name]error{}}
	absent := map[keystore.Name]error{}
	for _, n := range slices.Sorted(maps.Keys(revisions)) {
		if was, is := known[n]; is && was == revisions[n] {
			continue
		}
		s, _, err := st.Load(ctx, n)
		switch {
		case ctx.Err() != nil:
			return contents{}, ctx.Err()
		case err == nil:
			c.sets = append(c.sets, s)
		case errors.Is(err, keystore.ErrNotFound):
			absent[n] = err
		case itsOwn(st, err):
			c.broken[n] = err
		default: // an outage, which the next one would meet as well
			return contents{}, fmt.Errorf("load key set %q: %w", n, err)
		}
	}
	return c, c.settle(ctx, st, absent)
}

// settle takes out what was removed after it was listed. What is still listed, such as a link that leads nowhere, is
// broken.
func (c contents) settle(ctx context.Context, st keystore.Reader, absent map[keystore.Name]error) error {
	if len(absent) == 0 {
		return nil
	}
	now, err := st.List(ctx)
	if err != nil {
		return err
	}
	for n, err := range absent {
		if _, listed := now[n]; listed {
			c.broken[n] = err
		} else {
			delete(c.revisions, n)
		}
	}
	return nil
}

// itsOwn reports whether an error of Load is about one document or its file, so that the others may be readable. In a
// directory that could be listed every file has its own permissions, links and mounts; a server that fails for one key
// set fails for all.
func itsOwn(st keystore.Reader, err error) bool {
	directory := false
	if st, is := st.(*keystore.Store); is {
		b := st.Backend()
		if n, is := b.(noting); is {
			b = n.Backend
		}
		_, directory = b.(*filestore.Backend)
	}
	_, broken := errors.AsType[*keystore.BrokenError](err)
	return directory || broken
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
		return keystore.KeySet{}, withHint(fmt.Errorf("no readable key set has the issuer URL %s, and %d are broken", issuer, len(broken)), "%s", command{"issuer", "list"})
	}
	return keystore.KeySet{}, withHint(fmt.Errorf("no key set has the issuer URL %s", issuer), "%s", command{"issuer", "list"})
}

// checkName refuses what is no name of a key set, such as an issuer URL without its scheme.
func checkName(n keystore.Name) error {
	err := n.Check()
	switch {
	case err == nil:
		return nil
	case strings.ContainsAny(string(n), "./"):
		return withHint(&usageError{err}, "an issuer URL begins with https://: write https://%s", strings.TrimLeft(string(n), "/"))
	}
	return &usageError{err}
}

func load(ctx context.Context, st keystore.Reader, n keystore.Name) (keystore.KeySet, error) {
	if err := checkName(n); err != nil {
		return keystore.KeySet{}, err
	}
	s, _, err := st.Load(ctx, n)
	if errors.Is(err, keystore.ErrNotFound) {
		return s, withHint(fmt.Errorf("load key set %q: %w", n, err), "%s", command{"issuer", "list"})
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
	return keystore.Key{}, withHint(fmt.Errorf("key set %q: %w", s.Name(), err), "%s", command{"key", "list", string(s.Name())})
}
