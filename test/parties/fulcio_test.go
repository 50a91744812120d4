package parties

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keypost/keypost/test/keys"
)

const fulcioAudience = "sigstore"

// fulcio is the server's own program, with a CA that it makes at its start and without a log of certificates.
type fulcio struct {
	*program
	url string
}

func newFulcio(t *testing.T, name string, of *fetching) *fulcio {
	t.Helper()
	dir, ports := t.TempDir(), freePorts(t, 3)
	config := fmt.Sprintf("oidc-issuers:\n  %[1]s:\n    issuer-url: %[1]s\n    client-id: %s\n    type: kubernetes\n    ca-cert: %q\n",
		of.issuer, fulcioAudience, of.ca)
	check(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600))
	f := &fulcio{url: "http://127.0.0.1:" + ports[0]}
	f.program = startProgram(t, answers(http.DefaultClient, f.url+"/healthz"), name, "serve", "--ca=ephemeralca", "--ct-log-url=",
		"--host=127.0.0.1", "--grpc-host=127.0.0.1", "--port="+ports[0], "--grpc-port="+ports[1], "--metrics-port="+ports[2],
		"--config-path="+filepath.Join(dir, "config.yaml"), "--legacy-unix-domain-socket="+filepath.Join(dir, "socket"))
	return f
}

// certify returns the URIs of the certificate that a token gives, or why it gives none.
func (f *fulcio) certify(token string) (uris, said string) {
	f.t.Helper()
	key := keys.NewEC()
	sum := sha256.Sum256([]byte(subject)) // the proof that the caller has the key
	proof, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	check(f.t, err)
	body, err := json.Marshal(object{"credentials": object{"oidcIdentityToken": token}, "publicKeyRequest": object{"proofOfPossession": proof,
		"publicKey": object{"algorithm": "ECDSA", "content": keys.PEM("PUBLIC KEY", keys.SPKI(&key.PublicKey))}}})
	check(f.t, err)
	res, err := http.Post(f.url+"/api/v2/signingCert", "application/json", bytes.NewReader(body))
	check(f.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	check(f.t, err)
	if res.StatusCode != http.StatusOK {
		return "", res.Status + ": " + string(b)
	}
	var answer struct {
		Detached struct {
			Chain struct{ Certificates []string }
		} `json:"signedCertificateDetachedSct"`
	}
	check(f.t, json.Unmarshal(b, &answer))
	block, _ := pem.Decode([]byte(answer.Detached.Chain.Certificates[0]))
	cert, err := x509.ParseCertificate(block.Bytes)
	check(f.t, err)
	return fmt.Sprint(cert.URIs), ""
}

// A token gives a certificate for its service account, through a rotation too. A revoked key is trusted until a token comes that no kept
// key verifies.
func TestFulcio(t *testing.T) {
	name := named(t, "KEYPOST_FULCIO")
	var rows []row
	for _, alg := range algorithms {
		old, next, stranger := newSigner(t, alg), newSigner(t, alg), newSigner(t, alg)
		f := newFetching(t, old, usual)
		server := newFulcio(t, name, f)
		token := func(s signer, change object) string {
			claims := object{"kubernetes.io": object{"namespace": "default", "pod": object{"name": "app-0", "uid": "1"},
				"serviceaccount": object{"name": "app", "uid": "2"}}}
			maps.Copy(claims, change)
			return s.token(t, f.issuer, fulcioAudience, claims)
		}
		refused := func(s signer, change object) string {
			_, said := server.certify(token(s, change))
			return refusedWith(t, said, refusalOf(t, "fulcio", "whatever the cause; Fulcio's log has more"))
		}
		uris, said := server.certify(token(old, nil))
		if uris != "[https://kubernetes.io/namespaces/default/serviceaccounts/app]" {
			t.Fatalf("%q, %s\n%s", uris, said, server.said())
		}
		r := row{party: "fulcio, " + alg, accepted: uris}
		certify := func(token string) string { _, said := server.certify(token); return said }
		r.rotated = rotate(t, certify, token(old, nil),
			func() string { f.add(next); f.publish(); return "" },
			func() string { f.promote(next); f.publish(); return token(next, nil) })
		f.revoke(old)
		f.publish()
		if said := certify(token(old, nil)); said != "" {
			t.Errorf("a key that was revoked and that it keeps: %s", said)
		}
		r.broken = "unknown key, audience, issuer, expired: " + refused(stranger, nil)
		r.revoked = "trusted until a stranger's token came: " + refused(old, nil)
		for _, change := range []object{{"aud": "elsewhere"}, {"iss": f.issuer + "-b"}, ended(10 * time.Second)} {
			refused(next, change)
		}
		rows = append(rows, r)
	}
	show(t, rows)
}
