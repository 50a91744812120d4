// Package oracle compares what keypost publishes with what Kubernetes' own code publishes for the same keys: key IDs,
// algorithms, JWK members and discovery members, over many keys and both codes' readers.
package oracle

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	jwtv2 "gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

const issuerURL = "https://oidc.example.com/prod-a"

// kind makes keys of one sort.
type kind struct {
	name string
	key  func(*testing.T) crypto.PublicKey
}

var kinds = []kind{
	{"RSA 2048", modulus(2048)}, {"RSA 2056", modulus(2056)}, {"RSA 3072", modulus(3072)}, {"RSA 4096", modulus(4096)},
	{"P-256", curve(elliptic.P256(), anyPoint)}, {"P-384", curve(elliptic.P384(), anyPoint)}, {"P-521", curve(elliptic.P521(), anyPoint)},
	// A coordinate with leading zero bytes is where a JWK rendered without padding breaks, once in 128 keys.
	{"P-256, short coordinate", curve(elliptic.P256(), shortPoint)},
	{"P-384, short coordinate", curve(elliptic.P384(), shortPoint)},
	{"P-521, short coordinate", curve(elliptic.P521(), shortPoint)},
}

// TestKinds compares key sets of one kind each, so that every algorithm stands by itself in a discovery document.
func TestKinds(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			for range 10 {
				compare(t, pemOf(t, k.key(t), k.key(t), k.key(t)))
			}
		})
	}
}

// TestMixtures compares key sets that hold every kind at once.
func TestMixtures(t *testing.T) {
	for range 20 {
		var keys []crypto.PublicKey
		for range 10 {
			for _, k := range kinds {
				keys = append(keys, k.key(t))
			}
		}
		compare(t, pemOf(t, keys...))
	}
}

// TestTokens has Kubernetes sign tokens with real keys, which the JWKS that we publish must verify.
func TestTokens(t *testing.T) {
	for name, key := range map[string]crypto.Signer{
		"RSA 2048": rsaKey(t, 2048), "RSA 3072": rsaKey(t, 3072), "RSA 4096": rsaKey(t, 4096),
		"P-256": ecKey(t, elliptic.P256()), "P-384": ecKey(t, elliptic.P384()), "P-521": ecKey(t, elliptic.P521()),
	} {
		t.Run(name, func(t *testing.T) {
			data := pemOf(t, key.Public())
			compare(t, data)
			generator, err := serviceaccount.JWTTokenGenerator(issuerURL, key)
			must(t, err)
			token, err := generator.GenerateToken(context.Background(), &jwtv2.Claims{Subject: "system:serviceaccount:ns:sa"}, struct{}{})
			must(t, err)
			var published jose.JSONWebKeySet
			jwks, _ := ours(t, data)
			must(t, json.Unmarshal(jwks, &published))
			parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512})
			must(t, err)
			var claims jwt.Claims
			if err := parsed.Claims(published, &claims); err != nil || claims.Issuer != issuerURL {
				t.Errorf("claims %+v: %v", claims, err)
			}
		})
	}
}

// compare gives the same file to both and compares what they publish; then it takes Kubernetes' JWKS over as
// `issuer add --jwks` does, which must lead to the same keys.
func compare(t *testing.T, file []byte) {
	t.Helper()
	wantJWKS, wantDiscovery := theirs(t, file)
	gotJWKS, gotDiscovery := ours(t, file)
	equalKeys(t, file, gotJWKS, wantJWKS)
	discovery := object(t, gotDiscovery)
	maps.DeleteFunc(discovery, func(member string, _ any) bool { return member == "claims_supported" }) // only ours: AWS asks for it
	if want := object(t, wantDiscovery); !reflect.DeepEqual(discovery, want) {
		t.Fatalf("discovery document %v, Kubernetes has %v, for\n%s", discovery, want, file)
	}
	takenOver, _ := ours(t, wantJWKS)
	if !bytes.Equal(takenOver, gotJWKS) {
		t.Fatalf("the JWKS taken over from Kubernetes becomes\n%s\nwant\n%s", takenOver, gotJWKS)
	}
}

// equalKeys compares two JWKS member by member; their order is nobody's promise.
func equalKeys(t *testing.T, file, got, want []byte) {
	t.Helper()
	g, w := byKid(t, got), byKid(t, want)
	if len(g) != len(w) {
		t.Fatalf("%d keys, Kubernetes has %d, for\n%s", len(g), len(w), file)
	}
	for kid, jwk := range w {
		if !reflect.DeepEqual(g[kid], jwk) {
			t.Fatalf("key %s is %v, Kubernetes has %v, for\n%s", kid, g[kid], jwk, file)
		}
	}
}

func byKid(t *testing.T, jwks []byte) map[string]any {
	t.Helper()
	var set struct{ Keys []map[string]any }
	must(t, json.Unmarshal(jwks, &set))
	keys := map[string]any{}
	for _, k := range set.Keys {
		kid, _ := k["kid"].(string)
		if _, twice := keys[kid]; twice {
			t.Fatalf("the kid %q stands twice in %s", kid, jwks)
		}
		keys[kid] = k
	}
	return keys
}

func ours(t *testing.T, file []byte) (jwks, discovery []byte) {
	t.Helper()
	keys, err := pubkey.Parse("file", file)
	must(t, err)
	for _, k := range keys {
		if k.Imported() {
			t.Fatalf("the kid %q counts as a foreign one, in\n%s", k.ID(), file)
		}
	}
	set := stored(t, keys)
	jwks, err = issuer.RenderJWKS(set)
	must(t, err)
	discovery, err = issuer.RenderDiscovery(set, set.Issuers()[0])
	must(t, err)
	return jwks, discovery
}

// stored returns a key set that was stored with these keys. keystore.New would refuse the moduli that nobody has factored:
// what it makes has to be strong, what is read has to be served.
func stored(t *testing.T, keys []keystore.VerificationKey) keystore.KeySet {
	t.Helper()
	list := []map[string]any{}
	for _, k := range keys {
		list = append(list, map[string]any{"kid": k.ID(), "alg": k.Alg(), "state": "active", "publicKey": string(pemOf(t, k.Key())),
			"publishedAt": "2026-01-02T03:00:00Z", "promotedAt": "2026-01-02T03:00:00Z"})
	}
	document, err := json.Marshal(map[string]any{"apiVersion": keystore.APIVersion, "kind": keystore.Kind, "metadata": map[string]any{"name": "prod-a"},
		"spec": map[string]any{"generation": 1, "issuers": []string{issuerURL}, "keys": list}})
	must(t, err)
	set, err := keystore.Parse("prod-a", document)
	must(t, err)
	return set
}

func theirs(t *testing.T, file []byte) (jwks, discovery []byte) {
	t.Helper()
	keys, err := keyutil.ParsePublicKeysPEM(file)
	must(t, err)
	getter, err := serviceaccount.StaticPublicKeysGetter(keys)
	must(t, err)
	provider, err := serviceaccount.NewOpenIDMetadataProvider(issuerURL, issuerURL+issuer.JWKSPath, "", getter)
	must(t, err)
	jwks, _ = provider.GetKeysetJSON()
	discovery, _ = provider.GetConfigJSON()
	return jwks, discovery
}

// modulus makes RSA public keys of a size with the exponents in use. No factors are known, which nobody can tell.
func modulus(bits int) func(*testing.T) crypto.PublicKey {
	exponents := []int{65537, 3, 17, 257, 1<<31 - 1}
	return func(t *testing.T) crypto.PublicKey {
		n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits)))
		must(t, err)
		n.SetBit(n, bits-1, 1).SetBit(n, 0, 1)
		return &rsa.PublicKey{N: n, E: exponents[n.Bit(1)+2*n.Bit(2)+n.Bit(3)]}
	}
}

func curve(c elliptic.Curve, wanted func(x, y []byte) bool) func(*testing.T) crypto.PublicKey {
	return func(t *testing.T) crypto.PublicKey {
		for {
			key := &ecKey(t, c).PublicKey
			point, err := key.Bytes()
			must(t, err)
			size := len(point) / 2
			if wanted(point[1:1+size], point[1+size:]) {
				return key
			}
		}
	}
}

func anyPoint(_, _ []byte) bool   { return true }
func shortPoint(x, y []byte) bool { return x[0] == 0 || y[0] == 0 }

func object(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var o map[string]any
	must(t, json.Unmarshal(data, &o))
	return o
}

// pemOf writes keys as clusters have them in files: PKIX under its own label and, as OpenShift does, under PKCS#1's.
func pemOf(t *testing.T, keys ...crypto.PublicKey) []byte {
	t.Helper()
	var file bytes.Buffer
	for i, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key)
		must(t, err)
		label := []string{"PUBLIC KEY", "RSA PUBLIC KEY"}[i%2]
		must(t, pem.Encode(&file, &pem.Block{Type: label, Bytes: der}))
		fmt.Fprintln(&file, "a remark between two keys")
	}
	return file.Bytes()
}

func rsaKey(t *testing.T, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	must(t, err)
	return key
}

func ecKey(t *testing.T, c elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	must(t, err)
	return key
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
