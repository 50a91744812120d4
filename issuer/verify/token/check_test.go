package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/keys"
)

const issuerURL = "https://oidc.example.com/prod-a"

type object = map[string]any

// scene is an issuer of one key, whose tokens have nothing wrong with them until a case changes one.
type scene struct {
	Issuer
	signer any
	alg    jose.SignatureAlgorithm
}

func newScene(t *testing.T, signer crypto.Signer, relyingParties ...string) scene {
	t.Helper()
	public, err := keystore.NewPublic(signer.Public())
	must(t, err)
	s, err := keystore.New(keystore.Change{At: storetest.Time(0)}, keystore.Spec{
		Name: "prod-a", Issuers: storetest.URLs(t, issuerURL), Keys: []keystore.VerificationKey{public},
		Policy: keystore.Policy{RelyingParties: relyingParties},
	})
	must(t, err)
	return scene{Issuer{issuerURL, []keystore.VerificationKey{public}, &s, storetest.Time(0)}, signer, jose.SignatureAlgorithm(public.Alg())}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// findings returns what is found in a token with other claims than a sound one, and is not as it should be.
func (s scene) findings(t *testing.T, claims object) []finding.Finding {
	t.Helper()
	now := s.Now.Unix()
	all := object{"iss": issuerURL, "sub": "system:serviceaccount:default:app", "aud": "sts.amazonaws.com", "iat": now, "exp": now + 3600}
	maps.Copy(all, claims)
	token := keys.JWS(s.signer, s.alg, string(s.Published[0].ID()), all)
	return slices.DeleteFunc(s.Check(token), func(f finding.Finding) bool { return f.Severity == finding.OK })
}

// codes returns the severities and codes of findings.
func (s scene) codes(t *testing.T, claims object) []string {
	t.Helper()
	var codes []string
	for _, f := range s.findings(t, claims) {
		codes = append(codes, string(f.Severity)+" "+f.Code)
	}
	return codes
}

// TestAudience: an audience that is nobody's is told no matter who else is declared.
func TestAudience(t *testing.T) {
	const unusual, clusters = "warn token-aud-unusual", "fail token-aud-cluster"
	signer := keys.NewEC()
	for _, c := range []struct {
		parties string
		aud     any
		want    string
	}{
		{"aws", "sts.amazonaws.com", ""},
		{"aws", "sts.amazonaws.com.cn", ""},
		{"aws", "openshift", ""},
		{"aws", "nonsense", unusual},
		{"aws vault", "nonsense", unusual},
		{"aws vault", "sts.amazonaws.com", ""},
		{"aws gcp", "//iam.googleapis.com/projects/1", ""},
		{"aws", "//iam.googleapis.com/projects/1", unusual},
		{"entra", "openshift", ""},
		{"entra", "api://AzureADTokenExchange", ""},
		{"entra", "api://AzureADTokenExchangeChina", ""},
		{"entra", "api://AzureADTokenExchangeOfMine", unusual},
		{"vault", "nonsense", ""},
		{"", "nonsense", ""},
		{"aws vault", issuerURL, clusters},
		{"vault", "https://kubernetes.default.svc", clusters},
		{"aws", []string{"sts.amazonaws.com", issuerURL}, clusters},
		{"aws", []string{"sts.amazonaws.com", "nonsense"}, ""},
		{"aws", []string{""}, "fail token-malformed"},
		{"aws", []string{}, "fail token-malformed"},
		{"aws", "", "fail token-malformed"},
		{"aws", 5, "fail token-malformed"},
	} {
		if got := newScene(t, signer, strings.Fields(c.parties)...).codes(t, object{"aud": c.aud}); strings.Join(got, ", ") != c.want {
			t.Errorf("[%s] and aud %q: %q, want %q", c.parties, c.aud, got, c.want)
		}
	}
	stored := newScene(t, signer, "aws")
	stored.Stored = nil
	if got := stored.codes(t, object{"aud": "nonsense"}); got != nil {
		t.Errorf("with nothing to compare with: %q", got)
	}
}

// TestTime: AWS gives five minutes at exp and iat and none at nbf, and a day is not too long. Each bound is met from both sides.
func TestTime(t *testing.T) {
	const skew = 5 * 60
	s := newScene(t, keys.NewEC(), "aws")
	now := s.Now.Unix()
	for _, c := range []struct {
		name   string
		claims object
		want   string
	}{
		{"expires now", object{"exp": now}, ""},
		{"expired a second ago", object{"exp": now - 1}, "warn token-expired"},
		{"expired for as long as AWS bears", object{"exp": now - skew}, "warn token-expired"},
		{"and a second more", object{"exp": now - skew - 1}, "fail token-expired"},
		{"issued ahead for as long as AWS bears", object{"iat": now + skew}, ""},
		{"and a second more", object{"iat": now + skew + 1}, "fail token-not-yet"},
		{"valid from now", object{"nbf": now}, ""},
		{"valid in a second", object{"nbf": now + 1}, "fail token-not-yet"},
		{"lives for a day", object{"exp": now + 24*3600}, ""},
		{"and a second more", object{"exp": now + 24*3600 + 1}, "warn token-lifetime"},
		{"no exp", object{"exp": nil}, "fail token-malformed"},
		{"no iat", object{"iat": nil}, "fail token-malformed"},
	} {
		if got := strings.Join(s.codes(t, c.claims), ", "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	gcp := newScene(t, keys.NewEC(), "gcp")
	if got := gcp.codes(t, object{"aud": "openshift", "exp": now + 24*3600 + 1}); !slices.Equal(got, []string{"fail token-lifetime"}) {
		t.Errorf("of more than a day, for GCP: %q", got)
	}
}

// TestIssuer: the iss is compared byte for byte.
func TestIssuer(t *testing.T) {
	s := newScene(t, keys.NewEC(), "aws")
	for iss, want := range map[string]string{
		issuerURL: "", issuerURL + "/": "fail token-issuer-other", issuerURL + "//": "fail token-issuer-other",
		strings.ToUpper(issuerURL): "fail token-issuer-other", legacyIssuer: "fail token-malformed", issuerURL + "x": "fail token-issuer-other", "": "fail token-issuer-other",
	} {
		if got := strings.Join(s.codes(t, object{"iss": iss}), ", "); got != want {
			t.Errorf("%q: %q, want %q", iss, got, want)
		}
	}
}

// TestAlgorithms: AWS takes what Kubernetes signs with, and nothing else.
func TestAlgorithms(t *testing.T) {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	s := newScene(t, k, "aws")
	for alg, want := range map[jose.SignatureAlgorithm]string{
		jose.RS256: "", jose.RS384: "fail token-signature-wrong", // which is not the key's algorithm
		jose.PS256: "fail token-alg", jose.PS384: "fail token-alg", jose.PS512: "fail token-alg",
	} {
		s.alg = alg
		if got := strings.Join(s.codes(t, nil), ", "); got != want {
			t.Errorf("%s: %q, want %q", alg, got, want)
		}
	}
	for _, alg := range []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"} {
		if !AWSTakes(alg) {
			t.Errorf("AWS does not take %s", alg)
		}
	}
	for _, alg := range []string{"", "none", "HS256", "PS256", "PS384", "PS512", "EdDSA", "rs256"} {
		if AWSTakes(alg) {
			t.Errorf("AWS takes %s", alg)
		}
	}
}

// TestEarlySigner: only a key that was never promoted may not sign yet. One that signs no more leaves tokens behind.
func TestEarlySigner(t *testing.T) {
	signer, other := keys.NewEC(), keys.NewEC()
	otherPublic, err := keystore.NewPublic(&other.PublicKey)
	must(t, err)
	s := newScene(t, signer, "aws")
	set, err := s.Stored.Add(storetest.Change(time.Hour), otherPublic)
	must(t, err)
	signs := func(k *ecdsa.PrivateKey) string {
		s.signer, s.Stored = k, &set
		public, err := keystore.NewPublic(&k.PublicKey)
		must(t, err)
		s.Published = []keystore.VerificationKey{public}
		return strings.Join(s.codes(t, nil), ", ")
	}
	if got := signs(other); got != "warn token-kid-next" {
		t.Errorf("by the next key: %q", got)
	}
	if got := signs(signer); got != "" {
		t.Errorf("by the active key: %q", got)
	}
	set, err = set.Promote(storetest.Change(2*time.Hour), otherPublic.ID(), keystore.Observed{})
	must(t, err)
	set, err = set.Retire(storetest.Change(3*time.Hour), s.Published[0].ID(), keystore.Evidence{})
	must(t, err)
	if got := signs(signer); got != "" {
		t.Errorf("by a retired key: %q", got)
	}
}
