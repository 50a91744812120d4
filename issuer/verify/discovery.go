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
	"github.com/keypost/keypost/issuer/verify/servername"
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
	v.checkIssuer(d)
	v.checkJWKSURI(d)
	v.checkMembers(d)
	v.checkHeaders("discovery", a)
	return d
}

// document returns an answer, with a finding when it is not one with status 200. prefix is that of the causes' codes.
func (v *visit) document(prefix string, r reply) (response, bool) {
	if !r.Asked {
		return r.response, false
	}
	code, err := v.why(prefix, r)
	switch {
	case strings.HasPrefix(code, "origin-") && code != "origin-silent":
		v.shutOut(code, "the origin %s: %v", v.look.Address, err)
	case err != nil:
		v.FailWith(code, strings.ReplaceAll(finding.CauseOf(code).Repair, "/PATH/", v.url.Path()+"/"), "%v", err)
	}
	return r.response, err == nil
}

// why returns why a reply is no answer with status 200, with the code of the cause.
func (v *visit) why(prefix string, r reply) (code string, err error) {
	code, err = r.trouble()
	bad, untrusted := errors.AsType[*tls.CertificateVerificationError](r.Err)
	shut := r.Status == http.StatusForbidden && string(r.Body) == finding.ShieldBody
	switch {
	case err == nil:
		return "", nil
	case untrusted: // through a proxy; else the handshake failed before
		return finding.OfCertificate(bad, v.o.Now), err
	case v.look.Origin && code == "-silent":
		return "origin-silent", fmt.Errorf("the origin %s: %w", v.look.Address, err)
	case (v.look.Origin || v.look.Shielded) && refusesCertificate(r.Err):
		return v.shown().OfHandshake(err.Error()), err
	case v.look.Origin && (r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden), shut && v.look.Shielded:
		return v.shown().Refused(), fmt.Errorf("%w; it was shown %v", err, v.shown())
	case shut:
		return "cdn-refused", fmt.Errorf("%w, with keypostd's own words: its CDN shows it no secret, or a wrong one", err)
	case code == "-not-found" && prefix == "discovery" && v.stripped():
		return "proxy-path", fmt.Errorf("%w, and this issuer's document is at %s", err, v.look.Doubled.URL)
	case code == "-not-found" && caching.Hit(r.Header):
		return prefix + "-404-cached", fmt.Errorf("%w, from a cache (%s)", err, caching.Shared(r.Header))
	}
	if code == "-not-found" && prefix == "discovery" && fromKeypostd(r.response) && r.Header.Get("Server")+r.Header.Get("Via") != "" {
		return "proxy-host", fmt.Errorf("%w, as keypostd does for a host or path that is not one of its own, through %s", err, printable(cmp.Or(r.Header.Get("Via"), r.Header.Get("Server"))))
	}
	return prefix + code, err
}

// stripped reports whether the issuer's own document comes when its path is asked for twice: something takes it off once.
func (v *visit) stripped() bool {
	doubled := v.look.Doubled
	if _, err := doubled.trouble(); err != nil {
		return false
	}
	d, err := parseDiscovery(doubled.response)
	return err == nil && d.Issuer == v.o.URL
}

// fromKeypostd reports whether an answer 404 is what package issuer answers. A server in between adds a name or a Via.
func fromKeypostd(a response) bool {
	return string(a.Body) == "not found\n" && a.Header.Get("Cache-Control") == "public, max-age=60"
}

// refusesCertificate reports whether a server broke off because it got no client certificate, or that one. With TLS 1.3 that
// comes after the handshake.
func refusesCertificate(err error) bool {
	return slices.ContainsFunc(servername.ByName(err), func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "remote error: tls: ") && strings.Contains(err.Error(), "certificate")
	})
}

// trouble returns why a reply is no answer with status 200, with the end of the cause's code.
func (r reply) trouble() (code string, err error) {
	err = r.check200()
	switch {
	case isTimeout(r.Err):
		return "-silent", r.Err
	case r.Err != nil:
		return "-broken-off", r.Err
	case r.Status >= 300 && r.Status < 400:
		return "-redirect", err
	case r.Status == http.StatusNotFound || r.Status == http.StatusGone:
		return "-not-found", err
	case r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden:
		return "-forbidden", err
	}
	return "-status", err
}

func (v *visit) checkIssuer(d discovery) {
	code := "issuer-other"
	switch want := v.o.URL; {
	case d.Issuer == want:
		v.OK("issuer", "the discovery document names the issuer %s, byte for byte", d.Issuer)
		return
	case strings.TrimRight(d.Issuer, "/") == strings.TrimRight(want, "/"):
		code = "issuer-slash"
	case strings.EqualFold(d.Issuer, want):
		code = "issuer-case"
	}
	v.Fail(code, "the discovery document names the issuer %q, not %q", printable(d.Issuer), v.o.URL)
}

func (v *visit) checkJWKSURI(d discovery) {
	u, err := url.Parse(d.JWKSURI)
	own, _ := url.Parse(v.o.URL) // checked at the beginning
	switch {
	case d.JWKSURI == "" || err != nil || u.Scheme != "https" || u.Host == "":
		v.Fail("jwks-uri-form", "jwks_uri %q is no https URL", printable(d.JWKSURI))
	case u.Host != own.Host:
		v.Fail("jwks-uri-host", "jwks_uri %s is on another host than the issuer", printable(d.JWKSURI))
	case !strings.HasPrefix(d.JWKSURI, v.o.URL+"/"):
		v.Warn("jwks-uri-beside", "jwks_uri %s is not below the issuer URL", printable(d.JWKSURI))
	default:
		v.OK("jwks-uri", "jwks_uri is %s", printable(d.JWKSURI))
	}
}

func (v *visit) checkMembers(d discovery) {
	bad := false
	for _, m := range []struct {
		name, code string
		have, need []string
		report     func(code, format string, args ...any)
	}{
		{"response_types_supported", "response-types-missing", d.ResponseTypes, []string{"id_token"}, v.Fail},
		{"subject_types_supported", "subject-types-missing", d.SubjectTypes, []string{"public"}, v.Fail},
		{"claims_supported", "claims-missing", d.Claims, []string{"aud", "iat", "iss", "sub"}, v.Warn},
	} {
		for _, value := range m.need {
			if !slices.Contains(m.have, value) {
				m.report(m.code, "the discovery document's %s lacks %q", m.name, value)
				bad = true
				break
			}
		}
	}
	if len(d.Algorithms) == 0 || !slices.ContainsFunc(d.Algorithms, token.AWSTakes) {
		v.Fail("algorithms-missing", "the discovery document's id_token_signing_alg_values_supported has none of RS256, RS384, RS512, ES256, ES384, ES512")
		bad = true
	}
	if !bad {
		v.OK("discovery-members", "the discovery document has the members that AWS asks for")
	}
}

// checkHeaders looks at type, caching and validator of a document. AWS asks issuers to let the JWKS be cached.
//
// Source: GitLab merge request 138405, which quotes AWS support.
func (v *visit) checkHeaders(document string, a response) {
	media, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	if media = strings.TrimSpace(media); media != "application/json" && media != "application/jwk-set+json" {
		v.Warn(document+"-type", "%s has the Content-Type %q", a.URL, printable(media))
	}
	v.checkCaching(document, a)
	if a.Header.Get("ETag") == "" {
		v.Warn(document+"-no-etag", "%s has no ETag", a.URL)
	}
}

// Bounds of a sound max-age.
const (
	shortMaxAge = time.Minute
	longMaxAge  = time.Hour
)

func (v *visit) checkCaching(document string, a response) {
	value := strings.Join(a.Header.Values("Cache-Control"), ", ")
	forbidden, age, hasAge := caching.Read(value)
	if forbidden == "" && strings.Contains(strings.ToLower(a.Header.Get("Pragma")), "no-cache") {
		forbidden = "Pragma: no-cache"
	}
	switch {
	case forbidden != "":
		report, code := v.Warn, "-no-store"
		if document == "jwks" {
			report = v.Fail
		}
		if forbidden == "max-age=0" {
			code = "-max-age-0"
		}
		report(document+code, "%s may not be cached (%s)", a.URL, forbidden)
	case !hasAge:
		v.Warn(document+"-no-max-age", "%s has no max-age in its Cache-Control", a.URL)
	case age < shortMaxAge && (v.stored == nil || !v.stored.Dev()): // a development key set has seconds, for its rotations
		v.Warn(document+"-max-age-short", "%s may be cached for %v only", a.URL, keystore.Duration(age))
	case age > longMaxAge:
		repair := ""
		if v.stored != nil && v.stored.Policy().Cache(keystore.Cache{MaxAge: age}).MaxAge < age {
			repair = "the policy of the key set has less: have the proxy or CDN before keypostd pass Cache-Control on as it came (in nginx, no expires and no add_header Cache-Control), or purge its old copies"
		}
		v.WarnWith(document+"-max-age-long", repair, "%s may be cached for %v", a.URL, keystore.Duration(age))
	default:
		v.OK(document+"-headers", "%s may be cached for %v", a.URL, keystore.Duration(age))
	}
}
