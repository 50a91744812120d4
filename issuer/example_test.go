package issuer_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/pubkey"
)

const examplePEM = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf/y8hQ8ENy4CrS7gJB7I5BM4Scoc
QgDRZk1y4XtaJ/f6P19b5Olct54cHcGeXQldHC0v2GLnZEHxjkJZciJ4aA==
-----END PUBLIC KEY-----
`

// fill puts one key set into a directory.
func fill(ctx context.Context, dir string) (keystore.Reader, error) {
	backend, err := filestore.Open(dir)
	if err != nil {
		return nil, err
	}
	keys, err := pubkey.Parse("sa.pub", []byte(examplePEM))
	if err != nil {
		return nil, err
	}
	u, err := keystore.ParseIssuerURL("https://oidc.example.com/prod-a", false)
	if err != nil {
		return nil, err
	}
	s, err := keystore.New(keystore.Change{At: time.Now(), By: "alice"}, keystore.Spec{Name: "prod-a", Issuers: []keystore.IssuerURL{u}, Keys: keys})
	if err != nil {
		return nil, err
	}
	store := keystore.NewStore(backend)
	return store, keystore.Create(ctx, store, s)
}

// A directory of key sets is served by a handler, for whichever issuer a request is.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := fill(context.Background(), dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	pattern, err := issuer.ParsePattern("https://oidc.example.com/{name}", false)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := issuer.NewPublisher(issuer.Config{Source: store, Patterns: []issuer.Pattern{pattern}, Log: zap.NewNop()})
	if err := p.Refresh(context.Background()); err != nil { // Run repeats it
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(issuer.NewHandler(p, nil))
	defer server.Close()
	for _, path := range []string{issuer.DiscoveryPath, issuer.JWKSPath} {
		req, err := http.NewRequest(http.MethodGet, server.URL+"/prod-a"+path, http.NoBody)
		if err != nil {
			fmt.Println(err)
			return
		}
		req.Host = "oidc.example.com"
		resp, err := server.Client().Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(resp.Status, resp.Header.Get("Cache-Control"))
		fmt.Printf("%.64s…\n", body)
	}
	// Output:
	// 200 OK public, max-age=300, stale-while-revalidate=300, stale-if-error=86400
	// {"issuer":"https://oidc.example.com/prod-a","jwks_uri":"https://…
	// 200 OK public, max-age=300, stale-while-revalidate=300, stale-if-error=86400
	// {"keys":[{"kty":"EC","alg":"ES256","use":"sig","kid":"KR5wlhF6Ln…
}
