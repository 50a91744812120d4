package parties

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/test/keys"
)

const fulcioAudience = "sigstore"

// fulcio is the server's own program, with a CA that it makes at its start and without a log of certificates.
type fulcio struct {
	t    *testing.T
	url  string
	mu   sync.Mutex
	logs bytes.Buffer
}

func (f *fulcio) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.logs.Write(b)
}

func (f *fulcio) said() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.logs.String()
}

func newFulcio(t *testing.T, program string, of *fetching) *fulcio {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf("oidc-issuers:\n  %[1]s:\n    issuer-url: %[1]s\n    client-id: %s\n    type: kubernetes\n    ca-cert: %q\n",
		of.issuer, fulcioAudience, of.ca)
	check(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600))
	var ports []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
		check(t, l.Close())
	}
	f := &fulcio{t: t, url: "http://127.0.0.1:" + ports[0]}
	c := exec.Command(program, "serve", "--ca=ephemeralca", "--ct-log-url=", "--host=127.0.0.1", "--grpc-host=127.0.0.1", "--port="+ports[0],
		"--grpc-port="+ports[1], "--metrics-port="+ports[2], "--config-path="+filepath.Join(dir, "config.yaml"),
		"--legacy-unix-domain-socket="+filepath.Join(dir, "socket"))
	c.Stdout, c.Stderr = f, f
	check(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	for range 300 {
		if res, err := http.Get(f.url + "/healthz"); err == nil {
			_ = res.Body.Close()
			return f
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("it does not start: %s", f.said())
	return nil
}

// certify returns the URIs of the certificate that a token gives, or why it gives none.
func (f *fulcio) certify(token string) (uris, said string) {
	f.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(f.t, err)
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
	program := os.Getenv("KEYPOST_FULCIO")
	if program == "" {
		t.Skip("KEYPOST_FULCIO does not name the program: test/parties/run")
	}
	var rows []row
	for _, alg := range algorithms {
		old, next, stranger := newSigner(t, alg), newSigner(t, alg), newSigner(t, alg)
		f := newFetching(t, old)
		server := newFulcio(t, program, f)
		token := func(s signer, change object) string {
			claims := object{"kubernetes.io": object{"namespace": "default", "pod": object{"name": "app-0", "uid": "1"},
				"serviceaccount": object{"name": "app", "uid": "2"}}}
			maps.Copy(claims, change)
			return s.token(t, f.issuer, fulcioAudience, claims)
		}
		refused := func(s signer, change object) string {
			_, said := server.certify(token(s, change))
			if !strings.Contains(said, refusalOfFulcio(t)) {
				t.Errorf("%v: %q, and keystore/party has %q", change, said, refusalOfFulcio(t))
			}
			return said
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

// refusalOfFulcio is the text that keystore/party has.
func refusalOfFulcio(t *testing.T) string {
	t.Helper()
	i := slices.IndexFunc(party.All(), func(p party.Party) bool { return p.Name == "fulcio" })
	return party.All()[i].Refusals[0].Quote
}
