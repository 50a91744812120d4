package verify_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
)

// An issuer is visited as a relying party would. fetch.Network leads the visit to a test server; without it, the visit goes to
// every address that the system's resolver has for the host.
func ExampleExamine() {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=300")
		switch r.URL.Path {
		case "/prod-a/.well-known/openid-configuration":
			fmt.Fprint(w, `{"issuer":"https://example.com/prod-b","jwks_uri":"https://example.com/prod-a/keys.json",`+
				`"response_types_supported":["id_token"],"subject_types_supported":["public"],`+
				`"id_token_signing_alg_values_supported":["ES256"],"claims_supported":["aud","iat","iss","sub"]}`)
		case "/prod-a/keys.json", "/prod-a/openid/v1/jwks":
			fmt.Fprint(w, `{"keys":[{"kty":"EC","alg":"ES256","use":"sig","kid":"2026-01","crv":"P-256",`+
				`"x":"f_y8hQ8ENy4CrS7gJB7I5BM4ScocQgDRZk1y4XtaJ_c","y":"-j9fW-TpXLeeHB3Bnl0JXRwtL9hi52RB8Y5CWXIieGg"}]}`)
		case "/prod-a":
			fmt.Fprintln(w, "an issuer")
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())

	examined := verify.Examine(context.Background(), verify.Options{
		URL: "https://example.com/prod-a",
		Network: fetch.Network{
			RootCAs: roots,
			Connect: server.Listener.Addr().String(),
		},
	})
	for _, f := range examined.Findings {
		if f.Severity == finding.Fail {
			fmt.Println(f.Code + ": " + f.Evidence)
			fmt.Println("  " + f.Answers[0].Party + ": " + f.Answers[0].Text)
			fmt.Println("  " + f.Repair)
		}
	}
	fmt.Println("failed:", finding.Failed(examined.Findings))
	// Output:
	// issuer-other: the discovery document names the issuer "https://example.com/prod-b", not "https://example.com/prod-a"
	//   aws: InvalidIdentityToken: Couldn't retrieve verification key from your identity provider
	//   serve this issuer's own document at this URL: host, path, case and a trailing slash must be equal
	// failed: true
}
