package verify

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
)

func discoverySetups() []setup {
	set := func(name string, value any) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.discovery[name] = value }
	}
	return []setup{
		{"the discovery document's issuer is in another letter case", "issuer-other", "", set("issuer", "https://oidc.example.com/Prod-A"), nil},
		{"the discovery document of another issuer", "issuer-other", "", set("issuer", "https://oidc.example.com/prod-b"), nil},
		{"no jwks_uri", "document-members", "", set("jwks_uri", nil), nil},
		{"a jwks_uri of plain HTTP", "document-members", "", set("jwks_uri", "http://oidc.example.com/prod-a/keys.json"), nil},
		{"jwks_uri on another host", "jwks-uri-host", "", func(t *testing.T, w *world) {
			w.discovery["jwks_uri"], w.anyHost = "https://keys.example.com/prod-a/keys.json", true
			w.send(w.pki.issueLeaf(t, 80*24*time.Hour, "oidc.example.com", "keys.example.com"), w.pki.intermediate)
			w.options.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) { return to(w.at)(ctx, network, "") }
		}, nil},
		{"no response_types_supported", "document-members", "", set("response_types_supported", nil), nil},
		{"no algorithm that AWS takes", "document-members", "", set("id_token_signing_alg_values_supported", []string{"EdDSA"}), nil},
		{"the key's algorithm is not named", "document-members", finding.Warn, set("id_token_signing_alg_values_supported", []string{"RS256"}), nil},
		{"no claims_supported", "document-members", finding.Warn, set("claims_supported", nil), nil},
	}
}

func headerSetups() []setup {
	with := func(path, value string) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.alter(path, 0, func(h http.Header) { h.Set("Cache-Control", value) }) }
	}
	return []setup{
		{"a JWKS with no-store", "not-cacheable", "", with(fetch.KeysPath, "no-store"), nil},
		{"a discovery document with no-store", "not-cacheable", finding.Warn, with(fetch.DiscoveryPath, "no-store"), nil}, // it never changes, and AWS asked for the JWKS only
		{"a JWKS with max-age=0", "not-cacheable", "", with(fetch.KeysPath, "public, max-age=0, must-revalidate"), nil},
		{"a JWKS with no max-age", "not-cacheable", finding.Warn, with(fetch.KeysPath, "public"), nil},
		{"a JWKS with a max-age of 30 seconds", "not-cacheable", finding.Warn, with(fetch.KeysPath, "public, max-age=30"), nil},
		{"a JWKS with a max-age of a day", "max-age-long", finding.Warn, with(fetch.KeysPath, "public, max-age=86400"), nil},
	}
}

func keySetups() []setup {
	without := func(name string) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { delete(w.jwks[0], name) }
	}
	return []setup{
		{"a JWKS without keys", "jwks-empty", "", func(_ *testing.T, w *world) { w.jwks = []member{} }, nil},
		{"a private member in the JWKS", "key-private", "", func(t *testing.T, w *world) {
			d, err := w.signer.Bytes()
			check(t, err)
			w.jwks[0]["d"] = base64.RawURLEncoding.EncodeToString(d)
		}, nil},
		{"a symmetric key in the JWKS", "key-private", "", func(_ *testing.T, w *world) {
			w.jwks = append(w.jwks, member{"kty": "oct", "kid": "s", "k": "AAAA"})
		}, nil},
		{"a key without kid", "key-form", "", without("kid"), nil},
		{"two keys with one kid", "key-form", "", func(t *testing.T, w *world) {
			w.jwks = append(w.jwks, under(publicJWK(t, newECKey(t)), "kid", w.kid))
		}, nil},
		{"an ML-DSA key", "key-form", "", func(_ *testing.T, w *world) {
			w.jwks = append(w.jwks, member{"kty": "AKP", "kid": "pq", "alg": "ML-DSA-65", "use": "sig", "pub": "AAAA"})
		}, nil},
		{"the seed of an ML-DSA key", "key-private", "", func(_ *testing.T, w *world) {
			w.jwks = append(w.jwks, member{"kty": "AKP", "kid": "pq", "alg": "ML-DSA-65", "pub": "AAAA", "priv": strings.Repeat("A", 43)})
		}, nil},
		{"another key on /openid/v1/jwks, and no store to ask", "alias-differs", "", func(t *testing.T, w *world) {
			w.alias, w.options.Stored = []member{publicJWK(t, newECKey(t))}, nil
		}, nil},
	}
}

func parties(list ...string) func(*testing.T, *world) {
	return withPolicy(func(p *keystore.Policy) { p.RelyingParties = list })
}

// inStead lets the world's key set have only these keys, long since, and serves them.
func (w *world) inStead(t *testing.T, keys ...keystore.VerificationKey) {
	t.Helper()
	s, err := keystore.New(keystore.Change{At: longAgo()}, keystore.Spec{
		Name: "prod-a", Issuers: w.stored.Issuers(), Keys: keys, Policy: w.stored.Policy(),
	})
	check(t, err)
	w.stored = s
	w.heal(t)
}

func partySetups() []setup {
	rsaInStead := func(t *testing.T, w *world) {
		p, err := keystore.NewPublic(newRSAKey(t).Public())
		check(t, err)
		w.inStead(t, p)
	}
	return []setup{
		{"an EC key, and Entra is declared", "key-refused", "", parties("aws", "entra"), rsaInStead},
		{"a P-384 key, and GCP is declared", "key-refused", "", func(t *testing.T, w *world) {
			parties("gcp")(t, w)
			k, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
			check(t, err)
			w.inStead(t, public(t, k))
		}, rsaInStead},
	}
}

func healthySetups() []setup {
	rsaKey := func(bits int) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			k, err := rsa.GenerateKey(rand.Reader, bits)
			check(t, err)
			p, err := keystore.NewPublic(k.Public())
			check(t, err)
			w.inStead(t, p)
		}
	}
	return []setup{
		{name: "one EC key", severity: finding.OK, build: nothing},
		{name: "one RSA key of 2048 bits, every cloud declared", severity: finding.OK, build: func(t *testing.T, w *world) {
			parties("aws", "gcp", "entra", "vault", "kube-apiserver")(t, w)
			rsaKey(2048)(t, w)
		}},
		{name: "behind a CDN that declares itself, 4 minutes old", severity: finding.OK, build: func(t *testing.T, w *world) {
			withPolicy(func(p *keystore.Policy) { p.EdgeHold = keystore.DurationPtr(5 * time.Minute) })(t, w)
			w.header.Set("Age", "240")
			w.header.Set("Date", date(-4*time.Minute))
		}},
		{name: "a development issuer with a port", severity: finding.OK, build: func(t *testing.T, w *world) {
			w.options.URL, w.options.Dev, w.options.Stored = "https://localhost:8443/prod-a", true, nil
			w.anyHost, w.options.Lookup = true, lookup("127.0.0.1")
			w.discovery["issuer"], w.discovery["jwks_uri"] = w.options.URL, w.options.URL+"/keys.json"
			w.options.Stored = func(context.Context) (keystore.KeySet, error) { return devSet(t, w), nil }
		}},
		{name: "one of two replicas half a minute behind", build: func(t *testing.T, w *world) {
			w.storeKey(t, settling, newECKey(t))
			before := w.jwks
			w.heal(t)
			w.inTurn(t, func(w *world) { w.jwks = before }, func(*world) {})
		}},
		{name: "origins behind the addresses", severity: finding.OK, build: func(t *testing.T, w *world) {
			w.anyHost = true
			withPolicy(func(p *keystore.Policy) { p.Origins = []string{"203.0.113.1", "203.0.113.2:8443"} })(t, w)
		}},
		{name: "an origin that has a certificate only for its own name", severity: finding.OK, build: behindItsOwnName},
		{name: "a replica of an origin that has a certificate only for its name, asked as that", severity: finding.OK, build: func(t *testing.T, w *world) {
			behindItsOwnName(t, w)
			w.options.Connect, w.options.Shield.Origins, w.options.Stored = "203.0.113.9:8443", []string{"origin.example.com"}, nil
			withPolicy(func(p *keystore.Policy) { p.Origins = nil })(t, w)
			w.options.Stored = w.readStored
		}},
		{name: "a token of kube-apiserver's form", severity: finding.OK, build: func(t *testing.T, w *world) { w.options.Token = w.token(t) }},
		{name: "an imported key whose kid the store has", severity: finding.OK, build: func(t *testing.T, w *world) {
			p, err := public(t, newECKey(t)).WithID("2026-01", "ES256")
			check(t, err)
			w.inStead(t, p)
		}},
	}
}

// behindItsOwnName has an origin that TLS reaches under the name in the policy and under no other, as a CDN asks it.
func behindItsOwnName(t *testing.T, w *world) {
	withPolicy(func(p *keystore.Policy) { p.Origins = []string{"Origin.example.com"} })(t, w)
	own := *w
	leaf := w.pki.issueLeaf(t, 80*24*time.Hour, "origin.example.com")
	own.tls = w.tls.Clone()
	own.send(leaf, w.pki.intermediate)
	certificate := own.tls.Certificates[0]
	own.tls.Certificates = nil
	own.tls.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h.ServerName != "origin.example.com" {
			return nil, errors.New("no certificate for that name")
		}
		return &certificate, nil
	}
	reach := own.listen(t)
	w.options.Lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		if strings.EqualFold(host, "origin.example.com") {
			return addrs("203.0.113.9"), nil
		}
		return addrs("192.0.2.1"), nil
	}
	w.options.Dial = func(ctx context.Context, network, asked string) (net.Conn, error) {
		if strings.HasPrefix(asked, "203.0.113.9:") {
			return reach(ctx, network, asked)
		}
		return to(w.at)(ctx, network, asked)
	}
}
