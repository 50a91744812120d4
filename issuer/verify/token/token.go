// Package token checks a service account token against the keys that its issuer publishes, as AWS STS does, and against what the
// relying parties of the issuer take. It makes no calls, and prints no token.
package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/audience"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/party"
)

// Bounds of a web identity token (sts:AssumeRoleWithWebIdentity).
const (
	maxSize = 20000           // characters
	maxGCP  = 127             // bytes of google.subject
	maxLife = 24 * time.Hour  // what GCP takes
	awsSkew = 5 * time.Minute // how long after exp AWS still accepts a token
)

// claims are those that AWS asks for. Times stay raw: AWS wants integers.
type claims struct {
	Issuer    string          `json:"iss"`
	Subject   string          `json:"sub"`
	Audience  json.RawMessage `json:"aud"`
	Party     string          `json:"azp"`
	Expires   *int64          `json:"exp"`
	IssuedAt  *int64          `json:"iat"`
	NotBefore *int64          `json:"nbf"`
}

// Issuer is what a token is checked against.
type Issuer struct {
	URL       string
	Published []keystore.VerificationKey
	Stored    *keystore.KeySet // nil where there is nothing to compare with
	Now       time.Time
}

// check collects what is found.
type check struct {
	finding.Report
	Issuer
}

// Check verifies a token as STS does, and goes on after a failure since one wrong flag causes several.
func (i Issuer) Check(token string) []finding.Finding {
	v := &check{Issuer: i}
	jws, c, err := parse(strings.TrimSpace(token))
	if err != nil {
		v.Fail("token-malformed", "%v", err)
		return v.Findings
	}
	v.checkIssuer(c)
	v.checkKey(jws)
	v.checkTime(c)
	v.checkClaims(c)
	return v.Findings
}

// Claims are what a token says of itself, unchecked.
type Claims struct {
	Issuer, Subject string
	Audiences       []string // only azp if there is one: AWS takes it in place of aud
}

// Read returns the claims of a token; empty ones if it cannot be read.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_iam-condition-keys.html (azp)
func Read(token string) Claims {
	_, c, err := parse(strings.TrimSpace(token))
	if err != nil {
		return Claims{}
	}
	read := Claims{Issuer: c.Issuer, Subject: c.Subject}
	read.Audiences, _ = audiences(c.Audience)
	if c.Party != "" {
		read.Audiences = []string{c.Party}
	}
	return read
}

// AWSTakes reports whether AWS STS accepts an algorithm; Kubernetes signs with some of them.
func AWSTakes(alg string) bool {
	return slices.Contains([]string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"}, alg)
}

// declared reports whether a relying party is declared.
func (v *check) declared(name string) bool {
	return v.Stored != nil && slices.Contains(party.Names(v.Stored.Policy().RelyingParties), name)
}

func printable(s string) string { return text.OneLine(s, 400) }

// parse admits every signature algorithm, so that a wrong one gets its own finding.
func parse(token string) (*jose.JSONWebSignature, claims, error) {
	if len(token) > maxSize {
		return nil, claims{}, fmt.Errorf("the token is longer than %d characters", maxSize)
	}
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512,
		jose.PS256, jose.PS384, jose.PS512, jose.EdDSA, jose.HS256, jose.HS384, jose.HS512,
	})
	if err != nil {
		return nil, claims{}, errors.New("the token is not a signed JWT in compact form") // go-jose's words may quote it
	}
	var c claims
	if err := json.Unmarshal(jws.UnsafePayloadWithoutVerification(), &c); err != nil {
		return nil, claims{}, errors.New("the token's claims are not of the form that AWS asks for (exp, iat and nbf are integers)")
	}
	return jws, c, nil
}

func (v *check) checkIssuer(c claims) {
	if c.Issuer == v.URL {
		v.OK("token-issuer", "the token's iss is the issuer URL, byte for byte")
		return
	}
	repair := ""
	switch {
	case c.Issuer == legacyIssuer:
		v.Fail("token-malformed", "the token is one of the old kind that lives in a Secret: its iss is %q", legacyIssuer)
		return
	case printable(c.Issuer) == c.Issuer:
		repair = "if it is a token of this cluster: " + finding.SignAs(v.URL, c.Issuer) + finding.InRounds + "; then make a new token"
	}
	v.FailWith("token-issuer-other", repair, "the token's iss is %q, not %q", printable(c.Issuer), v.URL)
}

// legacyIssuer is that of the tokens in Secrets (kubernetes pkg/serviceaccount/legacy.go).
const legacyIssuer = "kubernetes/serviceaccount"

func (v *check) checkKey(jws *jose.JSONWebSignature) {
	h := jws.Signatures[0].Header
	if !AWSTakes(h.Algorithm) {
		v.Fail("token-alg", "the token is signed with %s", printable(h.Algorithm))
		return
	}
	i := slices.IndexFunc(v.Published, func(k keystore.VerificationKey) bool { return string(k.ID()) == h.KeyID })
	if i < 0 {
		v.Fail(v.unknownKid(h.KeyID), "the token's kid %q is not in the JWKS", printable(h.KeyID))
		v.About(string(h.KeyID))
		return
	}
	early := func(k keystore.Key) bool { return k.State == keystore.Next && k.Equal(v.Published[i]) }
	if v.Stored != nil && slices.ContainsFunc(v.Stored.Keys(), early) {
		v.Warn("token-kid-next", "the token is signed by key %s, which may not sign before it is promoted", v.Published[i].ID())
		v.About(string(v.Published[i].ID()))
	} else {
		v.OK("token-kid", "the token's kid %s is in the JWKS", v.Published[i].ID())
	}
	if _, err := jws.Verify(v.Published[i].Key()); err != nil || h.Algorithm != v.Published[i].Alg() {
		v.Fail("token-signature-wrong", "the token's signature does not verify with key %s (%s)", v.Published[i].ID(), v.Published[i].Alg())
		return
	}
	v.OK("token-signature", "the token's signature verifies (%s)", h.Algorithm)
}

// unknownKid returns why the JWKS does not have the key that a token names.
func (v *check) unknownKid(kid string) string {
	if v.Stored == nil {
		return "token-kid-unknown"
	}
	if _, stored := v.Stored.Key(keystore.KeyID(kid)); stored {
		return "token-kid-next"
	}
	if slices.ContainsFunc(v.Stored.Gone(), func(g keystore.Gone) bool { return string(g.ID) == kid }) {
		return "token-kid-gone"
	}
	return "token-kid-unknown"
}

func (v *check) checkTime(c claims) {
	if c.Expires == nil || c.IssuedAt == nil {
		v.Fail("token-malformed", "the token has no exp or no iat")
		return
	}
	at := func(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }
	expires := time.Unix(*c.Expires, 0)
	switch {
	case v.Now.After(expires.Add(awsSkew)):
		v.Fail("token-expired", "the token expired at %s", at(*c.Expires))
	case v.Now.After(expires):
		v.Warn("token-expired", "the token expired at %s, and AWS accepts it for 5 minutes more", at(*c.Expires))
	case c.NotBefore != nil && v.Now.Before(time.Unix(*c.NotBefore, 0)):
		v.Fail("token-not-yet", "the token is not valid before %s", at(*c.NotBefore))
	case v.Now.Add(awsSkew).Before(time.Unix(*c.IssuedAt, 0)):
		v.Fail("token-not-yet", "the token was issued in the future, at %s", at(*c.IssuedAt))
	case time.Duration(*c.Expires-*c.IssuedAt)*time.Second > maxLife:
		report := v.Warn
		if v.declared(finding.GCP) {
			report = v.Fail
		}
		report("token-lifetime", "the token lives for %v, until %s", keystore.Duration(time.Duration(*c.Expires-*c.IssuedAt)*time.Second), at(*c.Expires))
	default:
		v.OK("token-time", "the token is valid until %s", at(*c.Expires))
	}
}

func (v *check) checkClaims(c claims) {
	before := len(v.Findings)
	all, ok := audiences(c.Audience)
	switch {
	case !ok:
		v.Fail("token-malformed", "the token has no aud")
	case slices.ContainsFunc(all, func(a string) bool { return audience.IsClusters(a, v.URL) }):
		v.Fail("token-aud-cluster", "the token's aud is %s, which is the cluster itself", printable(strings.Join(all, ", ")))
	case len(all) == 1: // which of several AWS STS compares is not documented
		if is, usual := v.expected(all[0]); !is {
			v.Warn("token-aud-unusual", "the token's aud is %q; %s", printable(all[0]), usual)
		}
	}
	switch {
	case c.Subject == "":
		v.Fail("token-malformed", "the token has no sub")
	case len(c.Subject) > maxGCP && v.declared(finding.GCP):
		v.Fail("token-sub-gcp", "the token's sub has %d bytes; GCP takes %d", len(c.Subject), maxGCP)
	}
	if len(v.Findings) == before {
		v.OK("token-claims", "the token is for %s, as %s", printable(all[0]), printable(c.Subject))
	}
}

// expected compares an audience with what the declared relying parties ask for by default; usual says what that is. A party that has
// no default (Vault) makes no audience expected: else declaring it would switch the check off for all.
func (v *check) expected(aud string) (is bool, usual string) {
	if v.Stored == nil {
		return true, ""
	}
	var known []string
	for _, name := range party.Names(v.Stored.Policy().RelyingParties) {
		if audience.IsOf(name, aud) {
			return true, ""
		}
		known = append(known, audience.Of(name)...)
	}
	slices.Sort(known)
	return len(known) == 0, "the declared relying parties ask for " + strings.Join(slices.Compact(known), ", ") + " by default"
}

// audiences reads aud, a string or a list of strings (RFC 7519, section 4.1.3).
func audiences(raw json.RawMessage) ([]string, bool) {
	var many []string
	if json.Unmarshal(raw, &many) == nil {
		return many, len(many) > 0 && many[0] != ""
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, one != ""
	}
	return nil, false
}
