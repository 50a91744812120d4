package fakeaws

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/test/fakecloud/cluster"
)

const roleARN = "arn:aws:iam::123456789012:role/r"

// party is a whole stage: an issuer with one key, an account that knows it, a role that trusts it.
type party struct {
	*Server
	issuer *cluster.Issuer
	clock  *cluster.Clock
	key    cluster.Signer
}

func newSigner(t testing.TB, kid string, alg jose.SignatureAlgorithm) cluster.Signer {
	var key crypto.Signer
	switch alg {
	case jose.ES256:
		key = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	case jose.ES384:
		key = must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(t)
	case jose.ES512:
		key = must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))(t)
	default:
		key = must(rsa.GenerateKey(rand.Reader, 2048))(t)
	}
	return cluster.Signer{KID: kid, Alg: alg, Key: key}
}

func stage(t testing.TB, change func(*Options)) party {
	t.Helper()
	p := party{issuer: cluster.Start(t), clock: cluster.NewClock(), key: newSigner(t, "kid-a", jose.ES256)}
	p.issuer.Keys = []jose.JSONWebKey{p.key.Public()}
	o := Options{Dial: p.issuer.Dial, Roots: p.issuer.CA.Pool(), Now: p.clock.Now}
	if change != nil {
		change(&o)
	}
	p.Server = Start(t, o)
	c := iamOf(p.Server)
	must(c.CreateOpenIDConnectProvider(t.Context(), &makeProvider{
		Url: aws.String(issuerURL), ClientIDList: []string{"openshift", "sts.amazonaws.com"}}))(t)
	must(c.CreateRole(t.Context(), &makeRole{RoleName: aws.String("r"), AssumeRolePolicyDocument: aws.String(trustText)}))(t)
	return p
}

func (p party) assume(ctx context.Context, token string) error {
	_, err := stsOf(p.Server).AssumeRoleWithWebIdentity(ctx, &takeRole{
		RoleArn: aws.String(roleARN), RoleSessionName: aws.String("app"), WebIdentityToken: aws.String(token)})
	return err
}

const (
	noKey     = "Couldn't retrieve verification key from your identity provider"
	noRight   = "Not authorized to perform sts:AssumeRoleWithWebIdentity"
	notJWT    = "The ID Token provided is not a valid JWT"
	noClient  = "Incorrect token audience"
	badTokens = "InvalidIdentityToken"
)

func TestAWSsSentenceForEveryTokenThatItRefuses(t *testing.T) {
	t.Parallel()
	p := stage(t, nil)
	now := p.clock.Now()
	good := p.key.Sign(cluster.Workload(now))
	stranger := newSigner(t, "kid-a", jose.ES256)
	for name, c := range map[string]struct{ token, code, says string }{
		"garbage":                       {"garbage", badTokens, notJWT},
		"a token cut short":             {good[:len(good)-20], badTokens, notJWT},
		"another key under the kid":     {stranger.Sign(cluster.Workload(now)), badTokens, notJWT},
		"an unpublished key":            {newSigner(t, "kid-b", jose.ES256).Sign(cluster.Workload(now)), badTokens, noKey},
		"no kid":                        {cluster.Signer{Alg: p.key.Alg, Key: p.key.Key}.Sign(cluster.Workload(now)), badTokens, noKey},
		"another algorithm for the kid": {newSigner(t, "kid-a", jose.RS256).Sign(cluster.Workload(now)), badTokens, noKey},
		"another issuer": {p.key.Sign(cluster.Workload(now, "iss", issuerURL+"/")), badTokens,
			"No OpenIDConnect provider found in your account for " + issuerURL + "/"},
		"an audience not registered": {p.key.Sign(cluster.Workload(now, "aud", []string{"vault"})), badTokens, noClient},
		"two audiences":              {p.key.Sign(cluster.Workload(now, "aud", []string{"openshift", "vault"})), badTokens, noClient},
		"a party not registered":     {p.key.Sign(cluster.Workload(now, "azp", "vault")), badTokens, noClient},
		"expired": {p.key.Sign(cluster.Workload(now, "exp", now.Add(-5*time.Minute).Unix())),
			"ExpiredTokenException", "Token expired: current date/time"},
		"an audience not in the policy": {p.key.Sign(cluster.Workload(now, "aud", "sts.amazonaws.com")), "AccessDenied", noRight},
		"another namespace":             {p.key.Sign(cluster.Workload(now, "sub", "system:serviceaccount:other:sa")), "AccessDenied", noRight},
		"no aud":                        {p.key.Sign(cluster.Workload(now, "aud", nil)), badTokens, "Missing a required claim: aud"},
		"no sub":                        {p.key.Sign(cluster.Workload(now, "sub", nil)), badTokens, "Missing a required claim: sub"},
		"no iss":                        {p.key.Sign(cluster.Workload(now, "iss", nil)), badTokens, "Missing a required claim: iss"},
		"no exp":                        {p.key.Sign(cluster.Workload(now, "exp", nil)), badTokens, "Missing a required claim: exp"},
		"no iat":                        {p.key.Sign(cluster.Workload(now, "iat", nil)), badTokens, "Missing a required claim: iat"},
		"a fraction of a second":        {p.key.Sign(cluster.Workload(now, "exp", 1.5)), badTokens, notJWT},
		"a subject too long":            {p.key.Sign(cluster.Workload(now, "sub", strings.Repeat("s", 256))), badTokens, "subject"},
		"too short":                     {"abc", "ValidationError", "webIdentityToken"},
		"too long":                      {strings.Repeat("a", 20001), "ValidationError", "less than or equal to 20000"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, p.assume(t.Context(), c.token), c.code, c.says) })
	}
	for name, token := range map[string]string{
		"good": good, "within five minutes of its end": p.key.Sign(cluster.Workload(now, "exp", now.Add(-299*time.Second).Unix())),
		"a registered party beside a foreign audience": p.key.Sign(cluster.Workload(now, "azp", "openshift", "aud", "vault")),
	} {
		if err := p.assume(t.Context(), token); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnIssuerThatIsNotAsAWSAsksHasNoKeys(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*cluster.Issuer){
		"no response types": func(i *cluster.Issuer) { delete(i.Discovery, "response_types_supported") },
		"no subject types":  func(i *cluster.Issuer) { delete(i.Discovery, "subject_types_supported") },
		"no algorithms":     func(i *cluster.Issuer) { delete(i.Discovery, "id_token_signing_alg_values_supported") },
		"another issuer":    func(i *cluster.Issuer) { i.Discovery["issuer"] = issuerURL + "/" },
		"keys without TLS":  func(i *cluster.Issuer) { i.Discovery["jwks_uri"] = "http://oidc.example.com/prod-a/keys.json" },
		"a redirect":        func(i *cluster.Issuer) { i.Moved = true },
		"no keys":           func(i *cluster.Issuer) { i.Keys = nil },
		"the kid twice":     func(i *cluster.Issuer) { i.Keys = append(i.Keys, i.Keys[0]) },
		"more than 100 keys": func(i *cluster.Issuer) {
			for n := range 100 {
				more := i.Keys[0]
				more.KeyID = fmt.Sprint(n)
				i.Keys = append(i.Keys, more)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := stage(t, nil)
			p.issuer.Change(change)
			refused(t, p.assume(t.Context(), p.key.Sign(cluster.Workload(p.clock.Now()))), badTokens, noKey)
		})
	}
}
