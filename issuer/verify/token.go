package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/keystore"
)

// Bounds of a web identity token (sts:AssumeRoleWithWebIdentity).
const (
	maxToken   = 20000
	maxSubject = 255
	awsSkew    = 5 * time.Minute // how long after exp AWS still accepts a token
)

// claims are those that AWS asks for. Times stay raw: AWS wants integers.
type claims struct {
	Issuer    string          `json:"iss"`
	Subject   string          `json:"sub"`
	Audience  json.RawMessage `json:"aud"`
	Expires   *int64          `json:"exp"`
	IssuedAt  *int64          `json:"iat"`
	NotBefore *int64          `json:"nbf"`
}

// checkToken verifies the token as STS does, and goes on after a failure since one wrong flag causes several.
func (v *visit) checkToken(keys []keystore.VerificationKey) {
	jws, c, err := parseToken(strings.TrimSpace(v.o.Token))
	if err != nil {
		v.fail("token-form", advice{`AWS STS says "The ID Token provided is not a valid JWT"`, "make one with kubectl create token"}, "%v", err)
		return
	}
	v.checkTokenIssuer(c)
	v.checkTokenKey(jws, keys)
	v.checkTokenTime(c)
	v.checkTokenClaims(c)
}

// TokenIssuer returns what a token names as its issuer, unchecked; empty when it cannot be read.
func TokenIssuer(token string) string {
	_, c, err := parseToken(strings.TrimSpace(token))
	if err != nil {
		return ""
	}
	return c.Issuer
}

// parseToken admits every signature algorithm, so that a wrong one gets its own finding.
func parseToken(token string) (*jose.JSONWebSignature, claims, error) {
	if len(token) > maxToken {
		return nil, claims{}, fmt.Errorf("the token is longer than %d characters", maxToken)
	}
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512,
		jose.PS256, jose.PS384, jose.PS512, jose.EdDSA, jose.HS256, jose.HS384, jose.HS512,
	})
	if err != nil {
		return nil, claims{}, errors.New("the token is no signed JWT in compact form") // go-jose's words may quote it
	}
	var c claims
	if err := json.Unmarshal(jws.UnsafePayloadWithoutVerification(), &c); err != nil {
		return nil, claims{}, errors.New("the token's claims are not of the form that AWS asks for (exp, iat and nbf are integers)")
	}
	return jws, c, nil
}

func (v *visit) checkTokenIssuer(c claims) {
	if c.Issuer == v.o.URL {
		v.ok("token-issuer", "the token's iss is the issuer URL, byte for byte")
		return
	}
	v.fail("token-issuer", advice{awsNoProvider, "set kube-apiserver --service-account-issuer=" + v.o.URL + " as the first one"},
		"the token's iss is %q, not %q", printable(c.Issuer), v.o.URL)
}

func (v *visit) checkTokenKey(jws *jose.JSONWebSignature, keys []keystore.VerificationKey) {
	h := jws.Signatures[0].Header
	if !awsAlgorithm(h.Algorithm) {
		v.fail("token-signature", advice{effect: "AWS STS refuses the token; it accepts RS256 to RS512 and ES256 to ES512"}, "the token is signed with %s", printable(h.Algorithm))
		return
	}
	i := slices.IndexFunc(keys, func(k keystore.VerificationKey) bool { return string(k.ID()) == h.KeyID })
	if i < 0 {
		v.fail("token-kid", advice{awsNoKey, "publish the key that the cluster signs with (keypost key add ISSUER --kubeconfig FILE) before it signs"},
			"the token's kid %q is not in the JWKS", printable(h.KeyID))
		return
	}
	v.ok("token-kid", "the token's kid %s is in the JWKS", keys[i].ID())
	if _, err := jws.Verify(keys[i].Key()); err != nil || h.Algorithm != keys[i].Alg() {
		v.fail("token-signature", advice{awsNoKey, "the kid names another key than the one that signed"}, "the token's signature does not verify with key %s (%s)", keys[i].ID(), keys[i].Alg())
		return
	}
	v.ok("token-signature", "the token's signature verifies (%s)", h.Algorithm)
}

func (v *visit) checkTokenTime(c claims) {
	if c.Expires == nil || c.IssuedAt == nil {
		v.fail("token-time", advice{"AWS STS refuses it", "legacy secret-based tokens have none, use kubectl create token"}, "the token lacks exp or iat")
		return
	}
	at := func(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }
	expires := time.Unix(*c.Expires, 0)
	switch {
	case v.o.Now.After(expires.Add(awsSkew)):
		v.fail("token-time", advice{`AWS STS says "ExpiredTokenException"`, "make a new token"}, "the token expired at %s", at(*c.Expires))
	case v.o.Now.After(expires):
		v.warn("token-time", advice{effect: "AWS STS accepts a token for 5 minutes more, others do not"}, "the token expired at %s", at(*c.Expires))
	case c.NotBefore != nil && v.o.Now.Before(time.Unix(*c.NotBefore, 0)):
		v.fail("token-time", advice{repair: "check the clocks of the kube-apiserver and of this machine"}, "the token is not valid before %s", at(*c.NotBefore))
	case v.o.Now.Add(awsSkew).Before(time.Unix(*c.IssuedAt, 0)):
		v.fail("token-time", advice{repair: "check the clocks of the kube-apiserver and of this machine"}, "the token was issued in the future, at %s", at(*c.IssuedAt))
	default:
		v.ok("token-time", "the token is valid until %s", at(*c.Expires))
	}
}

func (v *visit) checkTokenClaims(c claims) {
	audience, ok := audiences(c.Audience)
	switch {
	case !ok:
		v.fail("token-claims", advice{`AWS STS says "Missing a required claim: aud"`, "ask for one with kubectl create token --audience"}, "the token has no aud")
	case c.Subject == "":
		v.fail("token-claims", advice{effect: `AWS STS says "Missing a required claim: sub"`}, "the token has no sub")
	case len(c.Subject) > maxSubject:
		v.warn("token-claims", advice{"AWS STS returns at most 255 characters", "shorten the namespace or service account name"}, "the token's sub has %d characters", len(c.Subject))
	case len(audience) > 1:
		v.warn("token-claims", advice{"which one AWS STS compares is not documented", "ask for one audience per token"}, "the token has %d audiences", len(audience))
	default:
		v.ok("token-claims", "the token is for %s, as %s", printable(audience[0]), printable(c.Subject))
	}
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
