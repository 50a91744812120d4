package holder

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/strictjson"
	"github.com/keypost/keypost/issuer/upload"
	"github.com/keypost/keypost/keystore/pubkey"
)

// vault is the configuration of a JWT auth method of Vault or OpenBao. Its keys have no key IDs.
//
// Source: https://developer.hashicorp.com/vault/api-docs/auth/jwt
func vault() Kind {
	return Kind{Name: "vault", Title: "Vault and OpenBao",
		Needs: "$VAULT_ADDR and $VAULT_TOKEN; also $VAULT_NAMESPACE and $VAULT_CACERT (a file)",
		Open: func(_ context.Context, to Target) (upload.Holder, error) {
			a, err := vaultAPI(to)
			if err != nil {
				return nil, err
			}
			host, path, _ := strings.Cut(to.Place, "/")
			if host != a.host() {
				return nil, fmt.Errorf("$VAULT_ADDR is %s, and the upload is at %s", a.host(), host)
			}
			at := a.base + "/v1/" + path + "/config"
			return &remote{api: a, url: at, again: vaultLogin, parse: vaultHeld, body: func(doc, jwks []byte) (request, error) {
				config, err := vaultWith(doc, jwks)
				return request{"POST", at, config}, err
			}}, nil
		}}
}

// vaultLogin is longer than a login takes. One that has read the configuration before a write and checks its token after it leaves the
// old keys in use until the next write, revoked ones too.
//
// Source: pathLogin and jwtValidator in https://github.com/hashicorp/vault-plugin-auth-jwt/blob/v0.26.1/path_login.go
const vaultLogin = time.Second

func vaultAPI(to Target) (*api, error) {
	address, token := to.Getenv("VAULT_ADDR"), to.Getenv("VAULT_TOKEN")
	if address == "" || token == "" {
		return nil, errors.New("set VAULT_ADDR to the server's address and VAULT_TOKEN to a token that may read and write the auth method's config")
	}
	a, err := newAPI(address, "X-Vault-Token", token)
	if err != nil {
		return nil, fmt.Errorf("VAULT_ADDR and VAULT_TOKEN: %w", err)
	}
	if ns := to.Getenv("VAULT_NAMESPACE"); ns != "" {
		a.header.Set("X-Vault-Namespace", ns)
	}
	if name := to.Getenv("VAULT_CACERT"); name != "" {
		cas, err := os.ReadFile(name)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(cas) {
			err = fmt.Errorf("%s has no certificate", name)
		}
		if err != nil {
			return nil, fmt.Errorf("VAULT_CACERT: %w", err)
		}
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		a.client.Transport = t
	}
	return a, nil
}

// vaultConfig is what an answer has of interest.
type vaultConfig struct {
	Data struct {
		Issuer    string   `json:"bound_issuer"`
		Keys      []string `json:"jwt_validation_pubkeys"`
		Discovery string   `json:"oidc_discovery_url"`
		JWKS      string   `json:"jwks_url"`
		Pairs     []any    `json:"jwks_pairs"`
	} `json:"data"`
}

func vaultHeld(doc []byte) (held upload.Held, err error) {
	var c vaultConfig
	if err := strictjson.Decode(doc, &c); err != nil {
		return held, fmt.Errorf("the answer about the auth method: %w", err)
	}
	switch {
	case c.Data.Discovery != "":
		return held, fetches("oidc_discovery_url is set")
	case c.Data.JWKS != "" || len(c.Data.Pairs) > 0:
		return held, fetches("jwks_url or jwks_pairs is set")
	case c.Data.Issuer == "":
		return held, errors.New("bound_issuer is empty, so it does not check whose tokens it takes; set it to the issuer URL")
	}
	var keys bytes.Buffer
	for _, k := range c.Data.Keys {
		keys.WriteString(strings.TrimSpace(k) + "\n")
	}
	return upload.Held{JWKS: keys.Bytes(), Issuer: c.Data.Issuer}, nil
}

// vaultWith returns the configuration that was read with other keys. All of it is written, since a member that a request does not have
// is set to its default.
//
// Source: pathConfigWrite in https://github.com/hashicorp/vault-plugin-auth-jwt/blob/v0.26.1/path_config.go
func vaultWith(doc, jwks []byte) (map[string]json.RawMessage, error) {
	var c struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	if err := strictjson.Decode(doc, &c); err != nil {
		return nil, err
	}
	if c.Data == nil {
		return nil, errors.New("the answer about the auth method has no data")
	}
	keys, err := pubkey.Parse("the key set", jwks)
	if err != nil {
		return nil, err
	}
	var pems []string
	for _, k := range keys {
		pems = append(pems, k.PEM())
	}
	c.Data["jwt_validation_pubkeys"], err = json.Marshal(pems)
	return c.Data, err
}
