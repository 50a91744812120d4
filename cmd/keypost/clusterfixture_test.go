package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keypost/keypost/keystore/pubkey"
)

// startCluster plays a cluster of one kube-apiserver that signs with the key of DIR/sa.key as ISSUER, and knows only that key:
// cluster DIR ISSUER AUDIENCE… The audiences are those of its --api-audiences. It writes the kubeconfig $KUBECONFIG_FILE, whose
// context forbidden is a user without rights. What real ones answer is shown by test/e2e.
func startCluster(ts *testscript.TestScript, args []string) {
	private := ts.ReadFile(args[0] + "/sa.key")
	public, err := pubkey.Parse(args[0], []byte(ts.ReadFile(args[0]+"/sa.pub")))
	ts.Check(err)
	var server *httptest.Server
	server = playAPI(ts, map[string]func(*http.Request) any{
		"GET /.well-known/openid-configuration":                           func(*http.Request) any { return member{"issuer": args[1]} },
		"GET /openid/v1/jwks":                                             func(*http.Request) any { return jwksOf(public[0]) },
		"GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices": func(*http.Request) any { return slicesOf(server) },
		"GET /api/v1/namespaces/kube-system/pods":                         func(*http.Request) any { return member{"items": []member{}} },
		"POST /api/v1/namespaces/default/serviceaccounts/app/token": func(r *http.Request) any {
			var request struct{ Spec struct{ Audiences []string } }
			_ = json.NewDecoder(r.Body).Decode(&request)
			audiences := request.Spec.Audiences
			if len(audiences) == 0 {
				audiences = args[2:]
			}
			token, err := signToken(private, args[1], audiences, "default:app")
			if err != nil {
				return member{}
			}
			return member{"status": member{"token": token}}
		},
	})
	writeKubeconfig(ts, server)
	ts.Setenv("KUBECONFIG_FILE", "kubeconfig")
	ts.Setenv("SERVER", strings.TrimPrefix(server.URL, "https://"))
}
