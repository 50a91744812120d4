package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
