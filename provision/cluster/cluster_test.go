package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// apiserver answers as a kube-apiserver below a path, as behind Rancher, to the bearer of the token "good".
func apiserver(t *testing.T, replace map[string]http.HandlerFunc) (kubeconfig string, key keystore.VerificationKey) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	key, err = keystore.NewPublic(k.Public())
	check(t, err)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/k8s/clusters/c-1")
		h, replaced := replace[path]
		switch {
		case replaced:
			h(w, r)
		case r.Header.Get("Authorization") != "Bearer good":
			w.WriteHeader(http.StatusUnauthorized)
		case path == discoveryPath:
			_, _ = w.Write([]byte(`{"issuer":"https://oidc.example.com/prod-a"}`))
		case path == jwksPath && !accepts(r, "application/jwk-set+json"): // the only type in which a kube-apiserver has it
			w.WriteHeader(http.StatusNotAcceptable)
		case path == jwksPath:
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: k.Public(), KeyID: string(key.ID()), Algorithm: "ES256", Use: "sig"}}})
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig = filepath.Join(t.TempDir(), "config")
	check(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: good
clusters:
- {name: c, cluster: {server: "%s/k8s/clusters/c-1", certificate-authority-data: %s}}
- {name: untrusted, cluster: {server: %q}}
users: [{name: good, user: {token: good}}, {name: bad, user: {token: bad}}]
contexts:
- {name: good, context: {cluster: c, user: good}}
- {name: bad, context: {cluster: c, user: bad}}
- {name: untrusted, context: {cluster: untrusted, user: good}}
`, server.URL, base64.StdEncoding.EncodeToString(ca), server.URL), 0o600))
	return kubeconfig, key
}

// accepts reports whether the client takes an answer of that media type. No Accept header takes any (RFC 9110, 12.5.1).
func accepts(r *http.Request, mediaType string) bool {
	accept := r.Header.Get("Accept")
	return accept == "" || strings.Contains(accept, "*/*") || strings.Contains(accept, mediaType)
}

func TestPublicKeys(t *testing.T) {
	kubeconfig, key := apiserver(t, nil)
	for _, name := range []string{"", "good"} {
		issuer, keys, _, err := PublicKeys(t.Context(), kubeconfig, name)
		if err != nil || issuer != "https://oidc.example.com/prod-a" || len(keys) != 1 || !keys[0].Equal(key) {
			t.Errorf("PublicKeys(%q) = %s, %v, %v", name, issuer, keys, err)
		}
	}
}

func TestPublicKeysRefuses(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	body := func(data []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }
	}
	for _, tt := range []struct {
		name, context, want string
		replace             map[string]http.HandlerFunc
	}{
		{"discovery document forbidden", "", "may not read /.well-known/openid-configuration (403); bind the ClusterRole system:service-account-issuer-discovery", map[string]http.HandlerFunc{discoveryPath: status(403)}},
		{"JWKS forbidden", "", "may not read /openid/v1/jwks (403)", map[string]http.HandlerFunc{jwksPath: status(403)}},
		{"credentials refused", "bad", "does not accept the credentials", nil},
		{"no such documents", "", "--service-account-issuer is not an https URL", map[string]http.HandlerFunc{jwksPath: status(404)}},
		{"trouble", "", "answers 500", map[string]http.HandlerFunc{jwksPath: status(500)}},
		{"no discovery document", "", "not a discovery document", map[string]http.HandlerFunc{discoveryPath: body([]byte("<html>"))}},
		{"huge", "", "larger than", map[string]http.HandlerFunc{jwksPath: body(bytes.Repeat([]byte{' '}, pubkey.MaxSize+1))}},
		{"empty JWKS", "", "without a key", map[string]http.HandlerFunc{jwksPath: body([]byte(`{"keys":[]}`))}},
		{"untrusted certificate", "untrusted", "unknown authority", nil},
		{"no such context", "absent", `context "absent" does not exist`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kubeconfig, _ := apiserver(t, tt.replace)
			_, keys, _, err := PublicKeys(t.Context(), kubeconfig, tt.context)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") || keys != nil {
				t.Errorf("PublicKeys: %v, %v, want %q", keys, err, tt.want)
			}
		})
	}
	if _, _, _, err := PublicKeys(t.Context(), filepath.Join(t.TempDir(), "missing"), ""); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing kubeconfig: %v", err)
	}
	kubeconfig, _ := apiserver(t, nil)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := PublicKeys(stopped, kubeconfig, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

// Without a file, kubectl's rules hold; a pod's own cluster is meant only when it is named.
func TestWhichKubeconfig(t *testing.T) {
	file, key := apiserver(t, nil)
	other, _ := apiserver(t, nil)
	missing := filepath.Join(t.TempDir(), "missing")
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	for _, tt := range []struct{ name, given, env, err string }{
		{"$KUBECONFIG", "", file, ""},
		{"the first of two files in $KUBECONFIG", "", file + string(filepath.ListSeparator) + other, ""},
		{"a file before $KUBECONFIG", file, other, ""},
		{"nothing there", "", missing, "read kubeconfig ($KUBECONFIG or ~/.kube/config): there is none: " + missing + " name no cluster"},
		{"a file that is missing, and $KUBECONFIG", missing, file, "no such file"},
		{"the pod's own cluster, outside a pod", InCluster, file, "read kubeconfig in-cluster: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tt.env)
			_, keys, _, err := PublicKeys(t.Context(), tt.given, "")
			if tt.err == "" && (err != nil || len(keys) != 1 || !keys[0].Equal(key)) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("%v, %v, want %q", keys, err, tt.err)
			}
		})
	}
}

// A redirect would take the credentials along to wherever it leads.
func TestRedirectsAreNotFollowed(t *testing.T) {
	asked := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(elsewhere.Close)
	for _, code := range []int{301, 302, 303, 307, 308} {
		redirect := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL+r.URL.Path, code) }
		const slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
		kubeconfig, _ := apiserver(t, map[string]http.HandlerFunc{jwksPath: redirect, slices: redirect})
		want := fmt.Sprintf("redirects (%d)", code)
		if _, _, _, err := PublicKeys(t.Context(), kubeconfig, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("PublicKeys: %v", err)
		}
		if _, err := Signers(t.Context(), Access{Kubeconfig: kubeconfig}, "a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Signers: %v", err)
		}
	}
	if asked > 0 {
		t.Errorf("it was followed %d times", asked)
	}
}
