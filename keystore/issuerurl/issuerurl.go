// Package issuerurl reads issuer URLs: the ones that every relying party reads alike, and what requests for them are looked up by. It
// promises that the text of a URL stays as it was given, byte for byte.
package issuerurl

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/internal/text"
)

// maxLength is the longest URL that IAM takes for an OIDC provider, in characters.
//
// Source: https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateOpenIDConnectProvider.html
const maxLength = 255

// URL is an issuer's `iss`, with the host and path by which a server looks it up. Relying parties compare the
// string byte for byte (OpenID Connect Discovery 1.0, section 4.3), so it is never put together from parts.
type URL struct {
	raw   string
	route Route
}

// Route is what requests for an issuer URL are looked up by: its host in lower case, without the port that a development
// issuer may have, and its path, which is empty or begins with a slash and does not end in one.
type Route struct{ Host, Path string }

// RouteOf returns the Route of an issuer URL given as text, such as a pattern. It checks nothing: for any other text it
// returns some Route.
func RouteOf(url string) Route {
	rest := strings.TrimPrefix(url, "https://")
	end := strings.IndexByte(rest+"/", '/')
	host, _, _ := strings.Cut(rest[:end], ":")
	return Route{host, rest[end:]}
}

var pathSegment = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Parse parses a URL that every relying party reads alike: https, a lower-case DNS host, no port, query,
// fragment, user info, percent-encoding or trailing slash, at most 255 characters. A dev URL may have a port and a
// host that is not public (localhost, 127.0.0.1), since development listens where it can.
func Parse(raw string, dev bool) (URL, error) {
	u, err := split(raw, dev)
	if err != nil {
		if len(raw) > 300 {
			raw = raw[:300] + "…"
		}
		return URL{}, fmt.Errorf("issuer URL %q: %w", raw, err)
	}
	return u, nil
}

func split(raw string, dev bool) (URL, error) {
	rest, ok := strings.CutPrefix(raw, "https://")
	switch {
	case !ok:
		return URL{}, errors.New("it must begin with https:// in lower case")
	case len(raw) > maxLength:
		return URL{}, fmt.Errorf("it is %d characters long; AWS takes %d", len(raw), maxLength)
	case strings.HasSuffix(rest, "/"):
		return URL{}, errors.New("it ends in a slash; relying parties compare the string, so leave the slash out everywhere")
	case strings.ContainsAny(rest, "?#@%"):
		return URL{}, errors.New("it has a query, fragment, user name or percent-encoding; use host and plain path only")
	}
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	host, err := hostOf(authority, dev)
	if err != nil {
		return URL{}, err
	}
	if err := checkPublic(host); err != nil && !dev {
		return URL{}, err
	}
	return URL{raw: raw, route: Route{host, path}}, checkPath(path)
}

func hostOf(authority string, dev bool) (string, error) {
	if strings.HasPrefix(authority, "[") {
		return "", errors.New("its host is an IP address; use a DNS name")
	}
	host, port, hasPort := strings.Cut(authority, ":")
	if hasPort && !dev {
		return "", errors.New("it has a port; AWS takes none (serve on 443)")
	}
	if n, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || strconv.FormatUint(n, 10) != port || n == 0) {
		return "", errors.New("its port is not a number from 1 to 65535")
	}
	for l := range strings.SplitSeq(host, ".") {
		if !dnsname.IsLabel(l) {
			return "", errors.New("its host must be a DNS name in lower-case ASCII (punycode for other letters)")
		}
	}
	return host, nil
}

// checkPublic returns an error for a host that only a development issuer may have.
func checkPublic(host string) error {
	// No top-level domain begins with a digit, and many readers take 127.1 or 0x7f.1 for an address.
	labels := strings.Split(host, ".")
	if top := labels[len(labels)-1]; len(labels) < 2 || top[0] <= '9' {
		return errors.New("its host must be a public DNS name with a dot, not an address")
	}
	return nil
}

// checkPath returns an error for a path that contains a name under which documents are served: else the document of one
// issuer could have the URL of another issuer.
func checkPath(path string) error {
	if path == "" {
		return nil
	}
	for _, seg := range strings.Split(path[1:], "/") {
		switch {
		case seg == ".well-known" || seg == "openid" || seg == "keys.json":
			return fmt.Errorf("its path has the segment %q, under which documents are served", seg)
		case !pathSegment.MatchString(seg) || len(seg) > 63:
			return fmt.Errorf("its path segment %q must be 1 to 63 of letters, digits, '.', '_' and '-', and begin with a letter or digit", text.OneLine(seg, 64))
		}
	}
	return nil
}

// String returns the URL exactly as it was given: the `iss` of the tokens.
func (u URL) String() string { return u.raw }

// Route returns what requests for the URL are looked up by.
func (u URL) Route() Route { return u.route }

// Host returns the host of its [Route].
func (u URL) Host() string { return u.route.Host }

// Path returns the path of its [Route].
func (u URL) Path() string { return u.route.Path }
