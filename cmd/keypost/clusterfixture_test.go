package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keypost/keypost/keystore/pubkey"
)

// startCluster plays a cluster of one kube-apiserver that signs with the key of DIR/sa.key as ISSUER, and knows only that key:
// cluster DIR ISSUER AUDIENCE… The audiences are those of its --api-audiences. It writes the kubeconfig $KUBECONFIG_FILE, whose
// context forbidden is a user without rights. What real ones answer is shown by test/e2e.
func startCluster(ts *testscript.TestScript, args []string) {
	type m = map[string]any
	private := []byte(ts.ReadFile(args[0] + "/sa.key"))
	public, err := pubkey.Parse(args[0], []byte(ts.ReadFile(args[0]+"/sa.pub")))
	ts.Check(err)
	var server *httptest.Server
	mux := http.NewServeMux()
	answer := func(pattern string, body func(r *http.Request) any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer good" {
				w.WriteHeader(http.StatusForbidden)
				_ = json.NewEncoder(w).Encode(m{"kind": "Status", "message": `forbidden: User "jane" cannot do this`})
				return
			}
			_ = json.NewEncoder(w).Encode(body(r))
		})
	}
	answer("GET /.well-known/openid-configuration", func(*http.Request) any { return m{"issuer": args[1]} })
	answer("GET /openid/v1/jwks", func(*http.Request) any {
		return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public[0].Key(), KeyID: string(public[0].ID()), Algorithm: public[0].Alg(), Use: "sig"}}}
	})
	answer("GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices", func(*http.Request) any {
		return m{"items": []m{{"endpoints": []m{{"addresses": []string{"127.0.0.1"}}}, "ports": []m{{"port": json.Number(portOf(server))}}}}}
	})
	answer("POST /api/v1/namespaces/default/serviceaccounts/app/token", func(r *http.Request) any {
		var request struct{ Spec struct{ Audiences []string } }
		_ = json.NewDecoder(r.Body).Decode(&request)
		audiences := request.Spec.Audiences
		if len(audiences) == 0 {
			audiences = args[2:]
		}
		token, err := signToken(private, args[1], audiences)
		if err != nil {
			return m{}
		}
		return m{"status": m{"token": token}}
	})
	answer("GET /api/v1/namespaces/kube-system/pods", func(*http.Request) any { return m{"items": []m{}} })
	server = httptest.NewTLSServer(mux)
	ts.Defer(server.Close)
	writeKubeconfig(ts, server)
	ts.Setenv("KUBECONFIG_FILE", "kubeconfig")
	ts.Setenv("SERVER", strings.TrimPrefix(server.URL, "https://"))
}
