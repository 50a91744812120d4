package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore/pubkey"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPublicKeys(t *testing.T) {
	p := newPlane(t, []string{wantedIssuer}, nil)
	for _, name := range []string{"", "good", "rancher"} {
		issuer, keys, _, err := PublicKeys(t.Context(), p.access.Kubeconfig, name)
		if err != nil || issuer != wantedIssuer || len(keys) != 1 || !keys[0].Equal(p.known[0]) {
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
		{"discovery document forbidden", "", "the cluster answers 403; bind the ClusterRole system:service-account-issuer-discovery", map[string]http.HandlerFunc{discoveryPath: status(403)}},
		{"JWKS forbidden", "", "/openid/v1/jwks: the cluster answers 403", map[string]http.HandlerFunc{jwksPath: status(403)}},
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
			p := newPlane(t, []string{wantedIssuer}, tt.replace)
			_, keys, _, err := PublicKeys(t.Context(), p.access.Kubeconfig, tt.context)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") || keys != nil {
				t.Errorf("PublicKeys: %v, %v, want %q", keys, err, tt.want)
			}
		})
	}
	if _, _, _, err := PublicKeys(t.Context(), filepath.Join(t.TempDir(), "missing"), ""); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing kubeconfig: %v", err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := PublicKeys(stopped, newPlane(t, []string{wantedIssuer}, nil).access.Kubeconfig, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

// Without a file, kubectl's rules hold; a pod's own cluster is meant only when it is named.
func TestWhichKubeconfig(t *testing.T) {
	p := newPlane(t, []string{wantedIssuer}, nil)
	file, other := p.access.Kubeconfig, newPlane(t, []string{wantedIssuer}, nil).access.Kubeconfig
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
			if tt.err == "" && (err != nil || len(keys) != 1 || !keys[0].Equal(p.known[0])) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
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
		p := newPlane(t, []string{wantedIssuer}, map[string]http.HandlerFunc{jwksPath: redirect, slicesPath: redirect})
		want := fmt.Sprintf("redirects (%d)", code)
		if _, _, _, err := PublicKeys(t.Context(), p.access.Kubeconfig, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("PublicKeys: %v", err)
		}
		if _, err := Signers(t.Context(), p.access, 0, "a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Signers: %v", err)
		}
	}
	if asked > 0 {
		t.Errorf("it was followed %d times", asked)
	}
}
