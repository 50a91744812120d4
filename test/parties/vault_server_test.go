package parties

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	jwtauth "github.com/hashicorp/vault-plugin-auth-jwt"
	"github.com/hashicorp/vault/sdk/helper/jsonutil"
	"github.com/hashicorp/vault/sdk/logical"
)

const (
	vaultToken    = "s.root" // in X-Vault-Token
	vaultRole     = "app"
	vaultAudience = "https://vault.example.com"
)

// vault is a JWT auth method at auth/jwt. How it keeps its configuration and judges tokens is Vault's own code, which is OpenBao's too.
// The HTTP around it is ours, after Vault's http package. So it does not show what Vault's core does: policies, namespaces, leases, the
// tokens that a login gives out and how they are revoked, audit, and what a standby or a replica does after a change of the configuration.
type vault struct {
	*httptest.Server
	t       *testing.T
	backend logical.Backend
	storage *roleStorage
	wrote   chan struct{} // gets one after each write of the configuration, if it is empty
	broken  atomic.Int64  // how many requests ended in a panic of Vault's
}

// roleStorage is Vault's storage. A login reads its role after its configuration, and before it builds what checks its token.
type roleStorage struct {
	logical.Storage
	read atomic.Pointer[func()] // runs once in the next read of a role
}

func (s *roleStorage) Get(ctx context.Context, key string) (*logical.StorageEntry, error) {
	if strings.HasPrefix(key, "role/") {
		if once := s.read.Swap(nil); once != nil {
			(*once)()
		}
	}
	return s.Storage.Get(ctx, key)
}

func newVault(t *testing.T) *vault {
	t.Helper()
	v := &vault{t: t, storage: &roleStorage{Storage: &logical.InmemStorage{}}, wrote: make(chan struct{}, 1)}
	var err error
	v.backend, err = jwtauth.Factory(t.Context(), &logical.BackendConfig{StorageView: v.storage, System: logical.TestSystemView()})
	check(t, err)
	v.Server = httptest.NewServer(v)
	t.Cleanup(func() { v.Close(); v.backend.Cleanup(t.Context()) })
	v.write("role/"+vaultRole, object{"role_type": "jwt", "user_claim": "sub", "bound_audiences": vaultAudience})
	return v
}

func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, found := strings.CutPrefix(r.URL.Path, "/v1/auth/jwt/")
	q := &logical.Request{Path: path, Storage: v.storage, Connection: &logical.Connection{RemoteAddr: "127.0.0.1"}}
	switch {
	case !found:
		logical.RespondError(w, http.StatusNotFound, logical.ErrUnsupportedPath)
		return
	case path != "login" && r.Header.Get("X-Vault-Token") != vaultToken:
		logical.RespondError(w, http.StatusForbidden, logical.ErrPermissionDenied)
		return
	case r.Method == http.MethodGet:
		q.Operation = logical.ReadOperation
	case r.Method == http.MethodPost:
		q.Operation = logical.UpdateOperation
		if err := jsonutil.DecodeJSONFromReader(r.Body, &q.Data); err != nil {
			logical.RespondError(w, http.StatusBadRequest, err)
			return
		}
		if checked, exists, err := v.backend.HandleExistenceCheck(r.Context(), q); err == nil && checked && !exists {
			q.Operation = logical.CreateOperation
		}
	}
	// pathLogin reads its cached configuration without the lock, and a write may just have dropped that. Vault's server closes the
	// connection then, as this one does.
	defer func() {
		if recover() != nil {
			v.broken.Add(1)
			panic(http.ErrAbortHandler)
		}
	}()
	res, err := v.backend.HandleRequest(r.Context(), q)
	if path == "config" && r.Method == http.MethodPost {
		select {
		case v.wrote <- struct{}{}:
		default:
		}
	}
	status, err := logical.RespondErrorCommon(q, res, err)
	switch {
	case status != 0 || err != nil:
		logical.RespondError(w, status, err)
	case res == nil:
		w.WriteHeader(http.StatusNoContent)
	case res.Auth != nil:
		_ = json.NewEncoder(w).Encode(object{"auth": object{"metadata": res.Auth.Metadata, "display_name": res.Auth.DisplayName}})
	default:
		_ = json.NewEncoder(w).Encode(object{"data": res.Data})
	}
}

// write is `vault write auth/jwt/PATH`.
func (v *vault) write(path string, body object) {
	v.t.Helper()
	if _, said := v.post(path, body); said != "" {
		v.t.Fatalf("write %s: %s", path, said)
	}
}

// login returns why a token is refused; nothing if it is accepted.
func (v *vault) login(token string) string {
	v.t.Helper()
	answer, said := v.post("login", object{"role": vaultRole, "jwt": token})
	if said == "" && answer.Auth.Metadata["role"] != vaultRole {
		v.t.Errorf("a login without error gave out nothing: %+v", answer)
	}
	return said
}

type vaultAnswer struct {
	Auth   struct{ Metadata map[string]string }
	Errors []string
}

func (v *vault) post(path string, body object) (answer vaultAnswer, said string) {
	v.t.Helper()
	data, err := json.Marshal(body)
	check(v.t, err)
	var res *http.Response
	for range 3 { // as Vault's client does when a connection is closed
		q, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.URL+"/v1/auth/jwt/"+path, bytes.NewReader(data))
		check(v.t, err)
		q.Header.Set("X-Vault-Token", vaultToken)
		if res, err = v.Client().Do(q); err == nil {
			break
		}
	}
	if res == nil {
		return answer, "the connection was closed three times"
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		check(v.t, json.NewDecoder(res.Body).Decode(&answer))
	}
	if res.StatusCode/100 != 2 {
		said = res.Status + ": " + strings.Join(answer.Errors, "; ")
	}
	return answer, said
}
