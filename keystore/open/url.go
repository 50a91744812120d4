package open

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore/kubestore"
	"github.com/keypost/keypost/keystore/s3store"
)

// Forms lists the forms of store URLs, for messages.
const Forms = "file:///DIR, s3://BUCKET/PREFIX?region=REGION or kubernetes://NAMESPACE"

// URLError reports that a text is not a store URL.
type URLError struct {
	Err     error
	Instead string // the URL that was probably meant; empty if there is none to guess
	Form    bool   // the form is wrong, so that Forms may help
}

func (e *URLError) Error() string { return e.Err.Error() }
func (e *URLError) Unwrap() error { return e.Err }

// Parse reads a store URL. The error is a [*URLError].
//
// A plain path is refused although its meaning could be guessed: the same text names other kinds of stores, and
// "s3:/bucket" must not become a directory.
func Parse(raw string) (URL, error) {
	scheme, _, isURL := strings.Cut(raw, "://")
	bare, rest, _ := strings.Cut(raw, ":")
	switch {
	case raw == "":
		return URL{}, &URLError{Err: errors.New("no store was given"), Form: true}
	case strings.ContainsFunc(raw, func(r rune) bool { return !text.Printable(r) }):
		return URL{}, wrongForm(raw, "it holds a line break or another character that cannot be seen")
	case !isURL && bare == schemeFile && rest != "":
		return URL{}, path(wrongForm(raw, "after the scheme comes ://"), rest)
	case !isURL && slices.Contains([]string{schemeFile, schemeS3, schemeKubernetes}, bare):
		return URL{}, wrongForm(raw, "after the scheme comes ://")
	case !isURL:
		return URL{}, path(wrongForm(raw, "it is a path, not a URL"), raw)
	}
	u, err := URL{scheme: scheme}, error(nil)
	switch scheme {
	case schemeFile:
		u.Dir, err = parseFile(raw)
	case schemeS3:
		u.s3, err = parseS3(raw)
	case schemeKubernetes:
		u.namespace, u.kubernetes, err = parseKubernetes(raw)
	default:
		err = &URLError{Err: fmt.Errorf("store %q: its scheme is unknown", Redacted(scheme)+"://"), Form: true}
	}
	if _, is := errors.AsType[*URLError](err); err != nil && !is {
		err = &URLError{Err: err}
	}
	if err != nil {
		return URL{}, err
	}
	return u, nil
}

func wrongForm(raw, why string) *URLError {
	return &URLError{Err: fmt.Errorf("store %q: %s", Redacted(raw), why), Form: true}
}

// path adds the URL of a path that was given in place of a URL, unless it may hold a secret.
func path(e *URLError, path string) *URLError {
	if Redacted(path) == path {
		e.Instead = fileURL(path)
	}
	return e
}

// fileURL returns the store URL of a directory.
func fileURL(path string) string {
	path = strings.ReplaceAll(path, "%", "%25")
	if strings.HasPrefix(path, "/") || strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../") {
		return "file://" + path
	}
	return "file://./" + path
}

var schemeForm = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// Redacted returns what may be printed of a URL that cannot be read: no user name, password or parameter.
func Redacted(raw string) string {
	if !strings.ContainsAny(raw, "?#@") {
		return raw
	}
	if scheme, _, has := strings.Cut(raw, ":"); has && schemeForm.MatchString(scheme) {
		return scheme + ":…"
	}
	return "…"
}

// parseFile reads file:///DIR, file://./DIR or file://../DIR.
func parseFile(raw string) (dir string, err error) {
	rest := strings.TrimPrefix(raw, "file://")
	switch {
	case strings.ContainsAny(rest, "?#"):
		return "", fmt.Errorf("store %q: a file store takes no parameters", Redacted(raw))
	case !strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, "./") && !strings.HasPrefix(rest, "../"):
		return "", path(wrongForm(raw, "after file:// comes /, ./ or ../"), rest)
	}
	if dir, err = url.PathUnescape(rest); err != nil {
		return "", fmt.Errorf("store %q: its percent-encoding is damaged", Redacted(raw))
	}
	return dir, nil
}

// parseS3 reads s3://BUCKET[/PREFIX][?region=][&profile=][&endpoint=][&account=].
func parseS3(raw string) (s3store.Options, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != schemeS3 || u.Opaque != "" || u.User != nil || u.Port() != "" || u.Fragment != "" {
		// Never quoted: a password may be in it.
		return s3store.Options{}, errors.New("the key store's URL is not of the form s3://BUCKET/PREFIX?region=REGION")
	}
	o := s3store.Options{Bucket: u.Host, Prefix: u.Path}
	err = parseQuery(u, map[string]*string{
		"region": &o.Region, "profile": &o.Profile, "endpoint": &o.Endpoint, "account": &o.Account,
	})
	if err != nil {
		return s3store.Options{}, err
	}
	return o.Checked()
}

// parseKubernetes reads kubernetes://NAMESPACE[?kubeconfig=][&context=].
func parseKubernetes(raw string) (namespace string, o kubestore.Options, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.User != nil || u.Port() != "" || u.Fragment != "" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return "", o, errors.New("the key store's URL is not of the form kubernetes://NAMESPACE?kubeconfig=FILE&context=CONTEXT")
	}
	err = parseQuery(u, map[string]*string{"kubeconfig": &o.Kubeconfig, "context": &o.Context})
	return u.Host, o, err
}

// Parameters returns the names of the parameters that URLs of a scheme may have, the usual ones first.
func Parameters(scheme string) []string {
	return map[string][]string{
		schemeS3:         {"region", "profile", "endpoint", "account"},
		schemeKubernetes: {"kubeconfig", "context"},
	}[scheme]
}

// parseQuery sets the fields from the parameters of u, each of which may be given once.
func parseQuery(u *url.URL, fields map[string]*string) error {
	names := Parameters(u.Scheme)
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("the key store's URL has a query that cannot be read")
	}
	for name, values := range query {
		field := fields[name]
		switch {
		case field == nil:
			return fmt.Errorf("%s:// URLs have no parameter %q; they have %s and %s", u.Scheme, name, strings.Join(names[:len(names)-1], ", "), names[len(names)-1])
		case len(values) != 1 || values[0] == "":
			return fmt.Errorf("parameter %s of the key store's URL needs one value", name)
		}
		*field = values[0]
	}
	return nil
}
