package verify

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/caching"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/issuer/verify/token"
	"github.com/keypost/keypost/keystore"
)

// checkDiscovery returns what could be read; an empty JWKSURI when nothing could.
func (v *visit) checkDiscovery() fetch.Discovery {
	a, ok := v.document("discovery", v.look.Discovery)
	if !ok {
		return fetch.Discovery{}
	}
	d, err := fetch.ParseDiscovery(a)
	if err != nil {
		v.Fail("discovery-form", "%v", err)
		return fetch.Discovery{}
	}
	v.OK("discovery", "%s answers 200", a.URL)
	if d.Issuer == v.o.URL {
		v.OK("issuer", "the discovery document names the issuer %s, byte for byte", d.Issuer)
	} else {
		v.Fail("issuer-other", "the discovery document names the issuer %q, not %q", printable(d.Issuer), v.o.URL)
	}
	v.checkMembers(d)
	v.checkCaching(a, v.Warn) // it never changes, and AWS asks to cache the JWKS only
	return d
}

// document returns an answer, with a finding when it is not one with status 200.
func (v *visit) document(name string, r reply) (fetch.Answer, bool) {
	if !r.Asked {
		return r.Answer, false
	}
	err := r.Err
	if err == nil {
		err = r.Check200()
	}
	if err == nil {
		return r.Answer, true
	}
	report, code := v.Fail, v.trouble(name, r)
	switch {
	case r.Status == 0: // the error may not say where
		err = fmt.Errorf("at %s: %w", v.look.Address, err)
	case code == "cdn-refused":
		err = fmt.Errorf("%w, with keypostd's own words: its CDN shows it no secret, or a wrong one", err)
	}
	silent := v.look.reached && fetch.IsTimeout(r.Err)
	if code == "origin-unreachable" && !v.look.Shielded && !silent || code == "alias-differs" {
		report = v.Warn
	}
	report(code, "%v", err)
	return r.Answer, false
}

// trouble returns the code of the cause that a reply is not an answer with status 200.
func (v *visit) trouble(name string, r reply) string {
	bad, untrusted := errors.AsType[*tls.CertificateVerificationError](r.Err)
	forbidden := r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden
	shut := r.Status == http.StatusForbidden && string(r.Body) == finding.ShieldBody
	switch {
	case v.look.Origin, v.look.Shielded && shut: // it may let in its cache only, which may know its CA
		return "origin-unreachable"
	case untrusted:
		return finding.OfCertificate(bad)
	case shut:
		return "cdn-refused"
	case name == "alias":
		return "alias-differs"
	case fetch.IsTimeout(r.Err):
		return "connection-dropped"
	case name == "jwks":
		return "jwks-form"
	case r.Status == 0:
		return "connection-refused"
	case r.Status == http.StatusNotFound || r.Status == http.StatusGone:
		return "discovery-not-found"
	case forbidden:
		return "discovery-forbidden"
	}
	return "discovery-form"
}

// checkMembers looks for what AWS documents as required, and at where the JWKS is.
func (v *visit) checkMembers(d fetch.Discovery) {
	before := len(v.Findings)
	lacks := func(report func(code, format string, args ...any), what string) {
		report("document-members", "the discovery document does not have %s", what)
	}
	u, err := url.Parse(d.JWKSURI)
	own, _ := url.Parse(v.o.URL) // checked at the beginning
	switch {
	case d.JWKSURI == "" || err != nil || u.Scheme != "https" || u.Host == "":
		lacks(v.Fail, fmt.Sprintf("an https URL as jwks_uri: it has %q", printable(d.JWKSURI)))
	case u.Host != own.Host:
		v.Fail("jwks-uri-host", "jwks_uri %s is on another host than the issuer", printable(d.JWKSURI))
	default:
		v.OK("jwks-uri", "jwks_uri is %s", printable(d.JWKSURI))
		before++
	}
	if !slices.Contains(d.ResponseTypes, "id_token") {
		lacks(v.Fail, "id_token in response_types_supported")
	}
	if !slices.Contains(d.SubjectTypes, "public") {
		lacks(v.Fail, "public in subject_types_supported")
	}
	if !slices.ContainsFunc(d.Algorithms, token.AWSTakes) {
		lacks(v.Fail, "an algorithm that AWS accepts in id_token_signing_alg_values_supported")
	}
	for _, claim := range []string{"aud", "iat", "iss", "sub"} {
		if !slices.Contains(d.Claims, claim) { // AWS documents it as required; it works without at present
			lacks(v.Warn, claim+" in claims_supported")
			break
		}
	}
	if len(v.Findings) == before {
		v.OK("discovery-members", "the discovery document has the members that AWS asks for")
	}
}

// Bounds of a sound max-age.
const (
	shortMaxAge = time.Minute
	longMaxAge  = time.Hour
)

// checkCaching looks at how long a document may be cached. AWS asks issuers to let the JWKS be cached.
//
// Source: GitLab merge request 138405, which quotes AWS support.
func (v *visit) checkCaching(a fetch.Answer, report func(code, format string, args ...any)) {
	forbidden, age, hasAge := caching.Read(strings.Join(a.Header.Values("Cache-Control"), ", "))
	switch {
	case forbidden != "":
		report("not-cacheable", "%s may not be cached (%s)", a.URL, forbidden)
	case !hasAge:
		v.Warn("not-cacheable", "%s has no max-age in its Cache-Control", a.URL)
	case age < shortMaxAge && (v.stored == nil || !v.stored.Dev()): // a development key set has seconds, for its rotations
		v.Warn("not-cacheable", "%s may be cached for %v only", a.URL, keystore.Duration(age))
	case age > longMaxAge:
		v.Warn("max-age-long", "%s may be cached for %v", a.URL, keystore.Duration(age))
	default:
		v.OK("headers", "%s may be cached for %v", a.URL, keystore.Duration(age))
	}
}
