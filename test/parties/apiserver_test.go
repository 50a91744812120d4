package parties

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/keys"
)

const apiServerAudience = "https://kubernetes.example.com"

// apiServer is a kube-apiserver that takes tokens of an issuer which is not its own. It does not show which text of keystore/party a
// refusal has: that is in its log, and the answer is "Unauthorized".
type apiServer struct {
	*program
	url    string
	client *http.Client
}

func newAPIServer(t *testing.T, programs string, of *fetching) *apiServer {
	t.Helper()
	dir, ports := t.TempDir(), freePorts(t, 3)
	file := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		check(t, os.WriteFile(name, data, 0o600))
		return name
	}
	etcd := "http://127.0.0.1:" + ports[0]
	startProgram(t, answers(http.DefaultClient, etcd+"/health"), filepath.Join(programs, "etcd"), "--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", "http://127.0.0.1:"+ports[1])
	config, err := json.Marshal(object{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": []object{{
		"issuer":        object{"url": of.issuer, "audiences": []string{apiServerAudience}, "certificateAuthority": of.ca},
		"claimMappings": object{"username": object{"claim": "sub", "prefix": "keypost:"}},
	}}})
	check(t, err)
	own := newSigner(t, "ES256") // of the server's own tokens, which nobody asks for
	private, err := x509.MarshalPKCS8PrivateKey(own.private)
	check(t, err)
	a := &apiServer{url: "https://127.0.0.1:" + ports[2], client: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // its certificate is made at its start
	}}}
	a.program = startProgram(t, answers(a.client, a.url+"/readyz"), filepath.Join(programs, "kube-apiserver"),
		"--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+ports[2], "--cert-dir="+filepath.Join(dir, "certs"),
		"--service-cluster-ip-range=10.96.0.0/24", "--authorization-mode=RBAC", "--endpoint-reconciler-type=none",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+file("sa.pub", []byte(own.PEM())),
		"--service-account-signing-key-file="+file("sa.key", []byte(keys.PEM("PRIVATE KEY", private))),
		"--authentication-config="+file("authentication.json", config))
	return a
}

// who returns whom the server takes a token for, or why it does not.
func (a *apiServer) who(token string) (user, said string) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+"/apis/authentication.k8s.io/v1/selfsubjectreviews",
		bytes.NewReader([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)))
	check(a.t, err)
	r.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
	res, err := a.client.Do(r)
	check(a.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	check(a.t, err)
	if res.StatusCode != http.StatusCreated {
		return "", res.Status
	}
	var review struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	check(a.t, json.Unmarshal(b, &review))
	return review.Status.UserInfo.Username, ""
}

// Tokens are taken through a rotation. A revoked key is trusted until a token of a key comes that the server does not know.
func TestAPIServer(t *testing.T) {
	programs := named(t, "KEYPOST_KUBE")
	var rows []row
	for _, alg := range algorithms {
		old, next, stranger := newSigner(t, alg), newSigner(t, alg), newSigner(t, alg)
		f := newFetching(t, old, keystore.Duration(time.Second))
		a := newAPIServer(t, programs, f)
		token := func(s signer, change object) string { return s.token(t, f.issuer, apiServerAudience, change) }
		said := func(token string) string { _, said := a.who(token); return said }
		var user, why string
		for range 100 { // it fetches in the background
			if user, why = a.who(token(old, nil)); why == "" {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if user != "keypost:"+subject {
			t.Fatalf("%q, %s\n%s", user, why, a.said())
		}
		r := row{party: "kube-apiserver, " + alg, accepted: user}
		r.rotated = rotate(t, said, token(old, nil),
			func() string { f.add(next); f.publish(); return "" },
			func() string { f.promote(next); f.publish(); return token(next, nil) })
		for what, change := range map[string]object{"wrong audience": {"aud": "elsewhere"}, "expired": ended(10 * time.Minute)} {
			if said(token(next, change)) == "" {
				t.Error("accepted: ", what)
			}
			text, _, _ := strings.Cut(refusalOf(t, "kube-apiserver", what), " %q")
			a.awaitLog(text)
		}
		f.revoke(old)
		f.publish()
		taken := token(old, object{"jti": "taken"})
		if said := said(taken); said != "" {
			t.Errorf("a revoked key that it keeps: %s", said)
		}
		began := time.Now()
		r.broken = "unknown key: " + said(token(stranger, nil))
		r.revoked = "trusted until a stranger's token came: " + said(token(old, object{"jti": "new"}))
		for said(taken) == "" && time.Since(began) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		r.revoked += fmt.Sprintf("; the token that was taken last, %v later", time.Since(began).Round(time.Second))
		if said(token(old, nil)) == "" {
			t.Error("a revoked key is accepted after a fetch")
		}
		rows = append(rows, r)
	}
	show(t, rows)
}
