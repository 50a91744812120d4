package verify

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

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
	if err := checkUnambiguous(a.Body, discoveryMembers()); err != nil {
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
		v.fail("discovery", advice{effect: awsNoKey}, "%v", err)
		return discovery{}
	}
	v.ok("discovery", "%s answers 200", a.URL)
	v.checkIssuer(d)
	v.checkJWKSURI(d)
	v.checkMembers(d)
	v.checkHeaders("discovery", a)
	return d
}

// document returns an answer, with a finding when it is not one with status 200.
func (v *visit) document(code string, r reply) (response, bool) {
	switch err := r.check200(); {
	case !r.Asked:
		return r.response, false
	case isTimeout(r.Err):
		v.fail(code, advice{effect: awsNoKey + "; it gives up after 5s"}, "%v", r.Err)
	case r.Err != nil:
		v.fail(code, advice{effect: awsNoKey}, "%v", r.Err)
	case err != nil && r.Status >= 300 && r.Status < 400:
		v.fail(code, advice{awsNoKey, "serve it there directly, relying parties need not follow a redirect"}, "%v", err)
	case err != nil:
		v.fail(code, advice{awsNoKey, "serve it with status 200"}, "%v", err)
	default:
		return r.response, true
	}
	return r.response, false
}

func (v *visit) checkIssuer(d discovery) {
	if d.Issuer == v.o.URL {
		v.ok("issuer", "the discovery document names the issuer %s, byte for byte", d.Issuer)
		return
	}
	v.fail("issuer", advice{"relying parties compare byte for byte and refuse every token", "host, path, case and a trailing slash must be equal"},
		"the discovery document names the issuer %q, not %q", printable(d.Issuer), v.o.URL)
}

func (v *visit) checkJWKSURI(d discovery) {
	u, err := url.Parse(d.JWKSURI)
	own, _ := url.Parse(v.o.URL) // checked at the beginning
	switch {
	case d.JWKSURI == "" || err != nil || u.Scheme != "https" || u.Host == "":
		v.fail("jwks-uri", advice{effect: awsNoKey}, "jwks_uri %q is no https URL", printable(d.JWKSURI))
	case u.Host != own.Host:
		v.fail("jwks-uri", advice{"the IAM console refuses a JWKS on another host", "keep both documents on one"}, "jwks_uri %s is on another host than the issuer", printable(d.JWKSURI))
	case !strings.HasPrefix(d.JWKSURI, v.o.URL+"/"):
		v.warn("jwks-uri", advice{repair: "keep the JWKS below the issuer, so that who serves one path cannot speak for another"}, "jwks_uri %s is not below the issuer URL", printable(d.JWKSURI))
	default:
		v.ok("jwks-uri", "jwks_uri is %s", printable(d.JWKSURI))
	}
}

func (v *visit) checkMembers(d discovery) {
	bad := false
	for _, m := range []struct {
		name      string
		have      []string
		need      []string
		severity  Severity
		otherwise string
	}{
		{"response_types_supported", d.ResponseTypes, []string{"id_token"}, Fail, awsNoKey},
		{"subject_types_supported", d.SubjectTypes, []string{"public"}, Fail, awsNoKey},
		{"claims_supported", d.Claims, []string{"aud", "iat", "iss", "sub"}, Warn, "AWS documents it as required; it works without at present"},
	} {
		for _, value := range m.need {
			if !slices.Contains(m.have, value) {
				v.add(m.severity, "discovery-members", advice{effect: m.otherwise}, fmt.Sprintf("the discovery document's %s lacks %q", m.name, value))
				bad = true
				break
			}
		}
	}
	if len(d.Algorithms) == 0 || !slices.ContainsFunc(d.Algorithms, awsAlgorithm) {
		v.fail("discovery-members", advice{effect: awsNoKey}, "the discovery document's id_token_signing_alg_values_supported has none of RS256, RS384, RS512, ES256, ES384, ES512")
		bad = true
	}
	if !bad {
		v.ok("discovery-members", "the discovery document has the members that AWS asks for")
	}
}

// awsAlgorithm reports whether AWS STS accepts an algorithm; Kubernetes signs with some of them.
func awsAlgorithm(alg string) bool {
	return slices.Contains([]string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"}, alg)
}

// checkHeaders looks at type, caching and validator of a document. AWS asks issuers to let the JWKS be cached.
//
// Source: GitLab merge request 138405, which quotes AWS support.
func (v *visit) checkHeaders(document string, a response) {
	media, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	if media = strings.TrimSpace(media); media != "application/json" && media != "application/jwk-set+json" {
		v.warn(document+"-headers", advice{repair: "serve it as application/json"}, "%s has the Content-Type %q", a.URL, printable(media))
	}
	v.checkCaching(document, a)
	if a.Header.Get("ETag") == "" {
		v.warn(document+"-headers", advice{effect: "without it caches fetch the whole document again and again"}, "%s has no ETag", a.URL)
	}
}

// Bounds of a sound max-age.
const (
	shortMaxAge = time.Minute
	longMaxAge  = time.Hour
)

func (v *visit) checkCaching(document string, a response) {
	code, load := document+"-headers", advice{effect: awsNoKey + " under load when it may not cache"}
	value := strings.Join(a.Header.Values("Cache-Control"), ", ")
	forbidden, age, hasAge := cacheControl(value)
	if forbidden == "" && strings.Contains(strings.ToLower(a.Header.Get("Pragma")), "no-cache") {
		forbidden = "Pragma: no-cache"
	}
	switch {
	case forbidden != "" && document == "jwks":
		v.fail(code, load, "%s may not be cached (%s)", a.URL, forbidden)
	case forbidden != "":
		v.warn(code, load, "%s may not be cached (%s)", a.URL, forbidden)
	case !hasAge:
		v.warn(code, advice{repair: "say how long copies may live, otherwise each cache decides for itself"}, "%s has no max-age in its Cache-Control", a.URL)
	case age < shortMaxAge:
		v.warn(code, load, "%s may be cached for %v only", a.URL, keystore.Duration(age))
	case age > longMaxAge:
		v.warn(code, advice{effect: "after a revocation relying parties may trust the key for that long"}, "%s may be cached for %v", a.URL, keystore.Duration(age))
	default:
		v.ok(code, "%s may be cached for %v", a.URL, keystore.Duration(age))
	}
}

// cacheControl reads a Cache-Control value (RFC 9111, section 5.2.2): the directive that forbids caching, if any, and
// max-age.
func cacheControl(value string) (forbidden string, maxAge time.Duration, hasAge bool) {
	for _, directive := range strings.Split(value, ",") {
		name, arg, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch name = strings.ToLower(name); name {
		case "no-store", "no-cache", "private":
			forbidden = name
		case "max-age":
			seconds, err := strconv.Atoi(strings.Trim(arg, `"`))
			if err != nil || seconds < 0 {
				seconds = 0 // RFC 9111, section 4.2.1: an invalid freshness is stale
			}
			if maxAge, hasAge = time.Duration(seconds)*time.Second, true; seconds == 0 {
				forbidden = "max-age=0"
			}
		}
	}
	return forbidden, maxAge, hasAge
}
