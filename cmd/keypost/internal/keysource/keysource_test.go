package keysource

import (
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/test/keys"
)

// lying are files that lie around beside the one that is meant.
func lying(t *testing.T) (certificates, others map[string]string) {
	t.Helper()
	now, ca, leaf := time.Now(), keys.EC(elliptic.P256(), 1), keys.EC(elliptic.P256(), 2)
	der := func(c x509.Certificate) []byte {
		c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), now, now.AddDate(1, 0, 0)
		parent := &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true}
		return must(x509.CreateCertificate(rand.Reader, &c, parent, leaf.Public(), ca))
	}
	certificate := func(c x509.Certificate) string { return keys.PEM("CERTIFICATE", der(c)) }
	authority := certificate(x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	server := certificate(x509.Certificate{DNSNames: []string{"oidc.example.com"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	private := keys.PEM("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(leaf)))
	return map[string]string{
			"ca.pem": authority, "tls.crt": server, "fullchain.pem": server + authority, "haproxy.pem": private + server,
			"client.crt": certificate(x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}),
			"plain.crt":  certificate(x509.Certificate{}),
		}, map[string]string{
			"tls.csr":        keys.PEM("CERTIFICATE REQUEST", must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, leaf))),
			"id_ecdsa.pub":   "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBA== me@laptop\n",
			"ssh2.pub":       "---- BEGIN SSH2 PUBLIC KEY ----\nAAAAE2VjZHNhLXNoYTItbmlzdHAyNTY=\n---- END SSH2 PUBLIC KEY ----\n",
			"id_ecdsa":       keys.PEM("OPENSSH PRIVATE KEY", []byte("openssh-key-v1\x00")),
			"private.jwk":    string(must((&jose.JSONWebKey{Key: leaf}).MarshalJSON())),
			"private.jwks":   `{"keys":[` + string(must((&jose.JSONWebKey{Key: leaf}).MarshalJSON())) + `]}`,
			"akp.jwk":        `{"kty":"AKP","alg":"ML-DSA-44","pub":"c2VjcmV0","priv":"c2VjcmV0LXNlY3JldA"}`,
			"kubeconfig":     "apiVersion: v1\nkind: Config\nusers:\n- user: {client-key-data: " + string(must(json.Marshal([]byte(private)))) + "}\n",
			"secret.json":    `{"kind":"Secret","data":{"sa.key":` + string(must(json.Marshal([]byte(private)))) + `}}`,
			"tls.p12":        "0\x82\x01\x00\x02\x01\x03",
			"tls.der":        string(der(x509.Certificate{})),
			"token":          "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJ4In0.c2ln",
			"encrypted.key":  keys.PEM("ENCRYPTED PRIVATE KEY", []byte("x")),
			"parameters.pem": keys.PEM("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}),
		}
}

func TestFilesThatLieAroundAreRefused(t *testing.T) {
	t.Parallel()
	read := func(content string, certificates bool) (int, error) {
		f := &cli.Factory{In: strings.NewReader(content), Err: io.Discard}
		found, err := readFile(f, "-", certificates)
		return len(found), err
	}
	certificates, others := lying(t)
	for name, content := range certificates {
		n, err := read(content, false)
		hinted, _ := errors.AsType[*cli.HintedError](err)
		if n != 0 || hinted == nil || !strings.Contains(hinted.Hint(&cli.Factory{}), "sa.pub") {
			t.Errorf("%s: %d keys, error %v", name, n, err)
		}
		if n, err := read(content, true); n == 0 || err != nil {
			t.Errorf("%s, where certificates are taken: %d keys, error %v", name, n, err)
		}
	}
	for name, content := range others {
		for _, taken := range []bool{false, true} {
			n, err := read(content, taken)
			if hinted, _ := errors.AsType[*cli.HintedError](err); n != 0 || hinted == nil {
				t.Errorf("%s: %d keys, error %v", name, n, err)
			}
		}
	}
	public := keys.PEM("PUBLIC KEY", keys.SPKI(keys.EC(elliptic.P256(), 1).Public()))
	if n, err := read(public, false); n != 1 || err != nil {
		t.Errorf("sa.pub: %d keys, error %v", n, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
