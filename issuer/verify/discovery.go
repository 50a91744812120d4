package verify

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/caching"
	"github.com/keypost/keypost/internal/strictjson"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/issuer/verify/token"
	"github.com/keypost/keypost/keystore"
)

// discovery holds the members of a discovery document that AWS asks for.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html (prerequisites)
type discovery struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	Claims        []string `json:"claims_supported"`
}

// discoveryMembers are the names that a reader looks for.
func discoveryMembers() []string {
	return []string{"issuer", "jwks_uri", "response_types_supported", "subject_types_supported", "id_token_signing_alg_values_supported", "claims_supported"}
}

func parseDiscovery(a response) (discovery, error) {
	var d discovery
	if err := json.Unmarshal(a.Body, &d); err != nil {
		return discovery{}, fmt.Errorf("%s is no discovery document: it is not valid JSON of that form", a.URL)
	}
	if err := strictjson.Check(a.Body, discoveryMembers()); err != nil {
		return discovery{}, fmt.Errorf("%s is no sound discovery document: %w", a.URL, err)
	}
	return d, nil
}

// checkDiscovery returns what could be read; an empty JWKSURI when nothing could.
func (v *visit) checkDiscovery() discovery {
	a, ok := v.document("discovery", v.look.Discovery)
	if !ok {
		return discovery{}
	}
	d, err := parseDiscovery(a)
	if err != nil {
		v.Fail("discovery-form", "%v", err)
		return discovery{}
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
func (v *visit) document(name string, r reply) (response, bool) {
	if !r.Asked {
		return r.response, false
	}
	code, err := v.trouble(name, r)
	switch {
	case err == nil:
	case strings.HasPrefix(code, "origin-"):
		v.shutOut(code, "the origin %s: %v", v.look.Address, err)
	case code == "alias-not-found":
		v.Warn(code, "%v", err)
	default:
		v.FailWith(code, strings.ReplaceAll(finding.CauseOf(code).Repair, "/PATH/", v.url.Path()+"/"), "%v", err)
	}
	return r.response, err == nil
}

// trouble returns why a reply is no answer with status 200, with the code of the cause.
func (v *visit) trouble(name string, r reply) (code string, err error) {
	if err = r.Err; err == nil {
		err = r.check200()
	}
	bad, untrusted := errors.AsType[*tls.CertificateVerificationError](r.Err)
	forbidden := r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden
	shut := r.Status == http.StatusForbidden && string(r.Body) == finding.ShieldBody
	missing := r.Status == http.StatusNotFound || r.Status == http.StatusGone
	switch {
	case err == nil:
		return "", nil
	case untrusted: // through a proxy; else the handshake failed before
		return finding.OfCertificate(bad), err
	case (v.look.Origin || v.look.Shielded) && (refusesCertificate(r.Err) || shut), v.look.Origin && forbidden:
		return "origin-shielded", err
	case v.look.Origin && r.Err != nil:
		return "origin-unreachable", err
	case shut:
		return "cdn-refused", fmt.Errorf("%w, with keypostd's own words: its CDN shows it no secret, or a wrong one", err)
	case name == "alias":
		return "alias-not-found", err
	case isTimeout(r.Err):
		return "connection-dropped", err
	case name == "jwks":
		return "jwks-status", fromCache(r, err)
	case missing && fromKeypostd(r.response) && r.Header.Get("Server")+r.Header.Get("Via") != "":
		return "discovery-not-found", fmt.Errorf("%w, as keypostd does for a host or path that is not one of its own, through %s", err, printable(cmp.Or(r.Header.Get("Via"), r.Header.Get("Server"))))
	case missing:
		return "discovery-not-found", fromCache(r, err)
	case forbidden:
		return "discovery-forbidden", err
	}
	return "discovery-status", err
}

// fromCache returns err, and which cache gave the answer.
func fromCache(r reply, err error) error {
	if r.Header == nil || !caching.Hit(r.Header) {
		return err
	}
	return fmt.Errorf("%w, from a cache (%s)", err, caching.Shared(r.Header))
}

// fromKeypostd reports whether an answer 404 is what package issuer answers. A server in between adds a name or a Via.
func fromKeypostd(a response) bool {
	return string(a.Body) == "not found\n" && a.Header.Get("Cache-Control") == "public, max-age=60"
}

// refusesCertificate reports whether a server broke off because it got no client certificate, or that one. With TLS 1.3 that
// comes after the handshake.
func refusesCertificate(err error) bool {
	return err != nil && strings.Contains(err.Error(), "remote error: tls: ") && strings.Contains(err.Error(), "certificate")
}

// checkMembers looks for what AWS documents as required, and at where the JWKS is.
func (v *visit) checkMembers(d discovery) {
	before := len(v.Findings)
	lacks := func(report func(code, format string, args ...any), what string) {
		report("document-members", "the discovery document lacks %s", what)
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
func (v *visit) checkCaching(a response, report func(code, format string, args ...any)) {
	forbidden, age, hasAge := caching.Read(strings.Join(a.Header.Values("Cache-Control"), ", "))
	if forbidden == "" && strings.Contains(strings.ToLower(a.Header.Get("Pragma")), "no-cache") {
		forbidden = "Pragma: no-cache"
	}
	switch {
	case forbidden != "":
		report("not-cacheable", "%s may not be cached (%s)", a.URL, forbidden)
	case !hasAge:
		v.Warn("not-cacheable", "%s has no max-age in its Cache-Control", a.URL)
	case age < shortMaxAge && (v.stored == nil || !v.stored.Dev()): // a development key set has seconds, for its rotations
		v.Warn("not-cacheable", "%s may be cached for %v only", a.URL, keystore.Duration(age))
	case age > longMaxAge:
		repair := ""
		if v.stored != nil && v.stored.Policy().Cache(keystore.Cache{MaxAge: age}).MaxAge < age {
			repair = "the policy of the key set has less: have the proxy or CDN before keypostd pass Cache-Control on as it came (in nginx, no expires and no add_header Cache-Control), or purge its old copies"
		}
		v.WarnWith("max-age-long", repair, "%s may be cached for %v", a.URL, keystore.Duration(age))
	default:
		v.OK("headers", "%s may be cached for %v", a.URL, keystore.Duration(age))
	}
}
