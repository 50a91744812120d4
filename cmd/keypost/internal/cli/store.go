package cli

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

// OpenStore opens the store that --store or KEYPOST_STORE names.
func (f *Factory) OpenStore(ctx context.Context) (*keystore.Store, error) {
	p, err := ParsePlace(f.Store)
	if err != nil {
		return nil, err
	}
	return p.open(ctx, filestore.Open)
}

// OpenToWrite is OpenStore for a command that changes key sets, and remembers which.
func (f *Factory) OpenToWrite(ctx context.Context) (*keystore.Store, error) {
	st, err := f.OpenStore(ctx)
	if err != nil {
		return nil, err
	}
	return f.noted(st), nil
}

// createStore is OpenToWrite, and makes a file store's directory if only that is missing. A bucket or a namespace is
// somebody else's to make.
func (f *Factory) CreateStore(ctx context.Context) (*keystore.Store, error) {
	p, err := ParsePlace(f.Store)
	if err != nil {
		return nil, err
	}
	st, err := p.open(ctx, filestore.Create)
	if err != nil {
		return nil, err
	}
	return f.noted(st), nil
}

// OpenStore opens the store that an argument names.
func OpenStore(ctx context.Context, raw string, open func(dir string) (*filestore.Backend, error)) (*keystore.Store, error) {
	p, err := parseStoreURL(raw, "use")
	if err != nil {
		return nil, err
	}
	return p.open(ctx, open)
}

func (p Place) open(ctx context.Context, open func(dir string) (*filestore.Backend, error)) (*keystore.Store, error) {
	switch p.Scheme {
	case SchemeS3:
		return opened(s3store.Open(ctx, p.s3))
	case SchemeKubernetes:
		return opened(kubestore.Open(ctx, p.namespace, p.kubernetes))
	}
	st, err := open(p.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missingDir(p.Dir)
	}
	return opened(st, err)
}

// missingDir says which directory is missing. One that stood there before may be a volume that is not mounted.
func missingDir(dir string) error {
	if parent := filepath.Dir(filepath.Clean(dir)); !IsDir(parent) {
		return WithHint(absentError(fmt.Sprintf("open key store %s: there is no directory %s", dir, parent)), "mkdir -p %s, or mount what holds it", Quoted(parent))
	}
	return WithHint(absentError(fmt.Sprintf("open key store %s: the directory does not exist", dir)), "mount what holds it; for a new store, keypost issuer add makes it")
}

// absentError is an fs.ErrNotExist that does not end in "file does not exist".
type absentError string

func (e absentError) Error() string        { return string(e) }
func (e absentError) Is(target error) bool { return target == fs.ErrNotExist }

// IsDir reports whether path is a directory, or a link to one.
func IsDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func opened[B keystore.Backend](b B, err error) (*keystore.Store, error) {
	if err != nil {
		return nil, err
	}
	return keystore.NewStore(b), nil
}

// Place is where a store is and with whose rights it is opened: all that its URL says.
type Place struct {
	Scheme     string
	Dir        string // of SchemeFile
	s3         s3store.Options
	namespace  string
	kubernetes kubestore.Options
}

// The schemes of store URLs.
const (
	SchemeFile       = "file"
	SchemeS3         = "s3"
	SchemeKubernetes = "kubernetes"
)

// StoreForms shows the URLs of stores.
const StoreForms = "file:///DIR, s3://BUCKET/PREFIX?region=REGION or kubernetes://NAMESPACE"

// ParsePlace reads the URL of --store; what is wrong with it is an error of usage.
func ParsePlace(raw string) (Place, error) { return parseStoreURL(raw, "use --store") }

// parseStoreURL reads a store's URL; use is what a hint puts before a better one.
func parseStoreURL(raw, use string) (Place, error) {
	scheme, _, isURL := strings.Cut(raw, "://")
	bare, rest, _ := strings.Cut(raw, ":")
	switch {
	case raw == "":
		return Place{}, WithHint(Usagef("no store was given"), "%s %s, or set KEYPOST_STORE", use, StoreForms)
	case strings.ContainsFunc(raw, func(r rune) bool { return !text.Printable(r) }):
		return Place{}, WithHint(Usagef("store %q: it holds a line break or another character that cannot be seen", Shown(raw)), "%s %s", use, StoreForms)
	case !isURL && bare == SchemeFile && strings.HasPrefix(rest, "/"):
		return Place{}, WithHint(Usagef("store %q: after the scheme comes ://", Shown(raw)), "%s", urlHint(use, rest))
	case !isURL && slices.Contains([]string{SchemeFile, SchemeS3, SchemeKubernetes}, bare):
		return Place{}, WithHint(Usagef("store %q: after the scheme comes ://", Shown(raw)), "%s %s", use, StoreForms)
	case !isURL:
		return Place{}, WithHint(Usagef("store %q: it is a path, not a URL", Shown(raw)), "%s", urlHint(use, raw))
	}
	p, err := Place{Scheme: scheme}, error(nil)
	switch scheme {
	case SchemeFile:
		p.Dir, err = parseDir(raw, use)
	case SchemeS3:
		p.s3, err = s3store.ParseURL(raw)
	case SchemeKubernetes:
		p.namespace, p.kubernetes, err = parseNamespace(raw)
	default:
		err = WithHint(fmt.Errorf("store %q: its scheme is unknown", Shown(scheme)+"://"), "%s %s", use, StoreForms)
	}
	if err != nil {
		return Place{}, &UsageError{err}
	}
	return p, nil
}

// Shown returns what may be printed of a store's URL that cannot be read: no user name, password or parameter. A path has
// none of these before its "?".
func Shown(raw string) string {
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
	if Shown(path) != path {
		return use + " " + StoreForms
	}
	return use + " " + Quoted(FileURL(path))
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
		return "", fmt.Errorf("store %q: a file store takes no parameters", Shown(raw))
	case !strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, "./") && !strings.HasPrefix(rest, "../"):
		return "", WithHint(fmt.Errorf("store %q: after file:// comes /, ./ or ../", Shown(raw)), "%s", urlHint(use, rest))
	}
	dir, err := url.PathUnescape(rest)
	if err != nil {
		return "", fmt.Errorf("store %q: its percent-encoding is damaged", Shown(raw))
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

// FileURL returns the store URL of a directory.
func FileURL(path string) string {
	path = strings.ReplaceAll(path, "%", "%25")
	if strings.HasPrefix(path, "/") || strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../") {
		return "file://" + path
	}
	return "file://./" + path
}
