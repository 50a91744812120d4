package holder_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/upload"
	"github.com/keypost/keypost/issuer/upload/holder"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/keystore/storetest"
)

const secret = "s3cret-credential"

// vendor stands for one object of a vendor's API, as its documentation has it: GET answers with it, and a write is merged into it. It does not
// show what the vendor checks of a request, nor how long its servers go by the older keys.
type vendor struct {
	path, header, credential string // what a request has to have
	doc                      map[string]any
	replaced                 bool // a write replaces the object
	status                   int  // of every answer, if it is not zero
	said                     string
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != v.path || r.Header.Get(v.header) != v.credential {
		http.Error(w, "no such object, or no such caller", http.StatusForbidden)
		return
	}
	if v.status != 0 {
		w.Header().Set("Location", "https://elsewhere.example.com/")
		http.Error(w, v.said, v.status)
		return
	}
	if r.Method != http.MethodGet {
		var change map[string]any
		b, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(b, &change); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if v.replaced {
			v.doc["data"] = change
			return
		}
		merge(v.doc, change)
	}
	_ = json.NewEncoder(w).Encode(v.doc)
}

func merge(doc, change map[string]any) {
	for k, c := range change {
		was, both := doc[k].(map[string]any)
		now, object := c.(map[string]any)
		if both && object && k == "oidc_policy" { // Databricks' field mask; the others replace a member whole
			merge(was, now)
			continue
		}
		doc[k] = c
	}
}

type scene struct {
	kind, place string
	vendor      vendor
	env         map[string]string // %s is the server
	fetching    map[string]any    // the object, where it fetches by itself
}

const issuerURL = "https://oidc.example.com/prod-a"

func scenes(pem string) []scene {
	return []scene{
		{"openai", "wip_1", vendor{path: "/organization/workload_identity_providers/wip_1", header: "Authorization", credential: "Bearer " + secret,
			doc: map[string]any{"issuer": issuerURL, "name": "kept", "enabled": true, "verification": map[string]any{"type": "uploaded_jwks", "jwks": map[string]any{"keys": []any{}}}}},
			map[string]string{"OPENAI_BASE_URL": "%s", "OPENAI_ADMIN_KEY": secret},
			map[string]any{"issuer": issuerURL, "verification": map[string]any{"type": "discovery"}}},
		{"anthropic", "fdis_1", vendor{path: "/v1/organizations/federation_issuers/fdis_1", header: "Authorization", credential: "Bearer " + secret,
			doc: map[string]any{"issuer_url": issuerURL, "name": "kept", "archived_at": nil, "jwks": map[string]any{"type": "inline", "keys": []any{}}}},
			map[string]string{"ANTHROPIC_BASE_URL": "%s", "ANTHROPIC_AUTH_TOKEN": secret},
			map[string]any{"issuer_url": issuerURL, "jwks": map[string]any{"type": "discovery"}}},
		{"databricks", "HOST/accounts/a-1/servicePrincipals/7/federationPolicies/p", vendor{path: "/api/2.0/accounts/a-1/servicePrincipals/7/federationPolicies/p",
			header: "Authorization", credential: "Bearer " + secret,
			doc: map[string]any{"name": "kept", "oidc_policy": map[string]any{"issuer": issuerURL, "subject": "kept", "jwks_json": `{"keys":[]}`}}},
			map[string]string{"DATABRICKS_HOST": "%s", "DATABRICKS_TOKEN": secret},
			map[string]any{"oidc_policy": map[string]any{"issuer": issuerURL}}},
		{"vault", "HOST/auth/team/jwt", vendor{path: "/v1/auth/team/jwt/config", header: "X-Vault-Token", credential: secret, replaced: true,
			doc: map[string]any{"data": map[string]any{"bound_issuer": issuerURL, "default_role": "kept", "jwt_validation_pubkeys": []string{pem}}}},
			map[string]string{"VAULT_ADDR": "%s", "VAULT_TOKEN": secret},
			map[string]any{"data": map[string]any{"bound_issuer": issuerURL, "oidc_discovery_url": issuerURL}}},
	}
}

// world is a key set that names one upload, and who uploads it.
type world struct {
	t    *testing.T
	u    upload.Uploader
	st   *keystore.Store
	set  keystore.KeySet
	name string // of the upload
}

func newWorld(t *testing.T, kind, place string) *world {
	t.Helper()
	b, err := filestore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, st: storetest.NewMemStore(t).Store, name: kind + "-upload:" + place}
	if err := party.Check(w.name); err != nil {
		t.Fatal(err)
	}
	k, err := storetest.Key(t).WithID("a-kid-of-its-own", "ES256")
	if err != nil {
		t.Fatal(err)
	}
	u, err := keystore.ParseIssuerURL(issuerURL, false)
	if err != nil {
		t.Fatal(err)
	}
	s, err := keystore.New(storetest.Change(0), keystore.Spec{Name: "prod-a", Issuers: []keystore.IssuerURL{u}, Keys: []keystore.VerificationKey{k},
		Policy: keystore.Policy{RelyingParties: []string{w.name}}})
	w.set = s
	if err == nil {
		err = keystore.Create(t.Context(), w.st, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.u = upload.Uploader{Store: w.st, Records: observation.NewStore(b), By: "tester"}
	return w
}

func open(t *testing.T, kind, place, server string, env map[string]string) upload.Holder {
	t.Helper()
	h, err := kindOf(t, kind).Open(t.Context(), holder.Target{Place: place, Getenv: func(name string) string {
		return strings.ReplaceAll(env[name], "%s", server)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func kindOf(t *testing.T, name string) holder.Kind {
	t.Helper()
	kinds := holder.Kinds()
	i := slices.IndexFunc(kinds, func(k holder.Kind) bool { return k.Name == name })
	if i < 0 {
		t.Fatal("no kind ", name)
	}
	return kinds[i]
}

// Each vendor gets exactly the published keys, keeps whatever else it has, and is read back as having them; a second run changes nothing.
func TestUploadIsReadBack(t *testing.T) {
	t.Parallel()
	for _, s := range scenes(storetest.Key(t).PEM()) {
		t.Run(s.kind, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(&s.vendor)
			defer server.Close()
			s.place = strings.Replace(s.place, "HOST", strings.TrimPrefix(server.URL, "http://"), 1)
			if s.kind == "databricks" { // a real host has no port
				s.place = strings.Replace(s.place, ":", "-", 1)
			}
			w := newWorld(t, s.kind, s.place)
			place := s.place
			if s.kind == "databricks" {
				place = strings.TrimPrefix(server.URL, "http://") + s.place[strings.IndexByte(s.place, '/'):]
			}
			h := open(t, s.kind, place, server.URL, s.env)
			for _, uploaded := range []bool{true, false} {
				r, err := w.u.Sync(t.Context(), "prod-a", w.name, h)
				if err != nil || r.Uploaded != uploaded || r.ClockGap != "" {
					t.Fatalf("uploaded %t, %v, clock %s; want %t", r.Uploaded, err, r.ClockGap, uploaded)
				}
			}
			if b, _ := json.Marshal(s.vendor.doc); !bytes.Contains(b, []byte("kept")) {
				t.Errorf("what else stood there is gone: %s", b)
			}
			s.vendor.doc = s.fetching
			if _, err := w.u.Sync(t.Context(), "prod-a", w.name, h); err == nil || !strings.Contains(err.Error(), "fetches the keys by itself") {
				t.Errorf("where it fetches: %v", err)
			}
		})
	}
}

// After a refusal nothing is uploaded, one line says why, and no line has the credential.
func TestRefusalsShowNoCredential(t *testing.T) {
	t.Parallel()
	for _, s := range scenes(storetest.Key(t).PEM()) {
		for status, want := range map[int]string{403: "a text that repeats the credential", 404: "a text that repeats the credential", 302: "redirects are not followed", 500: "a text that repeats the credential"} {
			t.Run(fmt.Sprint(s.kind, status), func(t *testing.T) {
				t.Parallel()
				v := s.vendor
				v.status, v.said = status, "you sent "+secret+"\n\x1b[2J"
				server := httptest.NewServer(&v)
				defer server.Close()
				h := open(t, s.kind, strings.Replace(s.place, "HOST", strings.TrimPrefix(server.URL, "http://"), 1), server.URL, s.env)
				_, err := h.Read(t.Context())
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) || strings.ContainsAny(err.Error(), "\n\x1b") {
					t.Errorf("%q; want %q", err, want)
				}
			})
		}
	}
}

// An object with a member twice, or under another case, is refused: two readers would see two objects in it.
func TestAmbiguousAnswers(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		`{"data":{"bound_issuer":"https://a"},"data":null}`, `{"data":null}`, `{"DATA":{"bound_issuer":"https://a"}}`,
		`{"data":{"bound_issuer":"https://a","bound_issuer":"https://b"}}`, `{"data":{"BOUND_ISSUER":"https://a"}}`, `[]`, ``,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, doc) }))
		defer server.Close()
		h := open(t, "vault", strings.TrimPrefix(server.URL, "http://")+"/auth/jwt", server.URL, map[string]string{"VAULT_ADDR": "%s", "VAULT_TOKEN": secret})
		if held, err := h.Read(t.Context()); err == nil {
			t.Errorf("%s: %+v", doc, held)
		}
		if err := h.Upload(t.Context(), []byte(`{"keys":[]}`)); err == nil {
			t.Errorf("%s: uploaded", doc)
		}
	}
}

// What was read for one issuer is not written where another one stands by now.
func TestTheIssuerIsChangedMeanwhile(t *testing.T) {
	t.Parallel()
	const issuer = `{"data":{"bound_issuer":"https://%s","jwt_validation_pubkeys":[]}}`
	name := "a"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			t.Error("it is written")
		}
		_, _ = fmt.Fprintf(w, issuer, name)
	}))
	defer server.Close()
	h := open(t, "vault", strings.TrimPrefix(server.URL, "http://")+"/auth/jwt", server.URL, map[string]string{"VAULT_ADDR": "%s", "VAULT_TOKEN": secret})
	if _, err := h.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	name = "b"
	if err := h.Upload(t.Context(), []byte(`{"keys":[]}`)); err == nil || !strings.Contains(err.Error(), "its issuer was changed meanwhile") {
		t.Error(err)
	}
}

// Each version that is read has to be permitted, not only the first.
func TestEachVersionIsPermitted(t *testing.T) {
	t.Parallel()
	dir, w := t.TempDir(), newWorld(t, "file", "prod-a.json")
	h, err := kindOf(t, "file").Open(t.Context(), holder.Target{Place: "prod-a.json", Set: w.set, Files: dir})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	w.u.Permit = func(s keystore.KeySet) error {
		if asked++; asked == 1 {
			if _, err := keystore.Update(t.Context(), w.st, "prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
				return s.Add(storetest.Change(0), storetest.Key(t))
			}); err != nil {
				t.Fatal(err)
			}
			return nil
		}
		return fmt.Errorf("generation %d is not permitted", s.Generation())
	}
	if _, err := w.u.Sync(t.Context(), "prod-a", w.name, h); err == nil || !strings.Contains(err.Error(), "generation 2 is not permitted") {
		t.Error(asked, err)
	}
}

// A key set chooses an object, never the server that gets the credential.
func TestTheEnvironmentChoosesTheServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, place string
		env         map[string]string
		want        string
	}{
		{"vault", "evil.example.com/auth/jwt", map[string]string{"VAULT_ADDR": "https://vault.example.com", "VAULT_TOKEN": secret}, "the upload is at evil.example.com"},
		{"vault", "vault.example.com/auth/jwt", nil, "set VAULT_ADDR"},
		{"vault", "vault.example.com/auth/jwt", map[string]string{"VAULT_ADDR": "http://vault.example.com", "VAULT_TOKEN": secret}, "is not https://HOST"},
		{"databricks", "evil.example.com/accounts/1/federationPolicies/p", map[string]string{"DATABRICKS_HOST": "accounts.cloud.databricks.com", "DATABRICKS_TOKEN": secret}, "the upload is at evil.example.com"},
		{"openai", "wip_1", nil, "set OPENAI_ADMIN_KEY"},
		{"anthropic", "fdis_1", map[string]string{"ANTHROPIC_AUTH_TOKEN": "two\nlines"}, "characters that a header cannot have"},
		{"file", "a.json", nil, "--files DIR"},
		{"vault", "vault.example.com/auth/jwt", map[string]string{"VAULT_ADDR": "https://me:" + secret + "@vault.example.com", "VAULT_TOKEN": secret}, "the address is not https://HOST"},
	} {
		_, err := kindOf(t, c.kind).Open(t.Context(), holder.Target{Place: c.place, Getenv: func(name string) string { return c.env[name] }})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s %s: %v; want %q", c.kind, c.place, err, c.want)
		}
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	dir, w := t.TempDir(), newWorld(t, "file", "prod-a.json")
	h, err := kindOf(t, "file").Open(t.Context(), holder.Target{Place: "prod-a.json", Set: w.set, Files: dir})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := w.u.Sync(t.Context(), "prod-a", w.name, h); err != nil || !r.Uploaded || r.Read.Before(time.Now().Add(-time.Minute)) {
		t.Fatal(r, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "prod-a.json"))
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := pubkey.Parse("the file", b); err != nil || len(keys) != 1 || keys[0].ID() != "a-kid-of-its-own" {
		t.Error(keys, err)
	}
	if _, err := kindOf(t, "file").Open(t.Context(), holder.Target{Place: "prod-b.json", Set: w.set, Files: dir}); err == nil {
		t.Error("a key set may write the file of another one")
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Symlink(outside, filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	h, _ = kindOf(t, "file").Open(t.Context(), holder.Target{Place: "link.json", Set: storetest.KeySet(t, "link"), Files: dir})
	if err := h.Upload(t.Context(), b); err != nil {
		t.Error(err) // the link is replaced, and what it leads to is not written
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("a link led out of the directory")
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, _ = kindOf(t, "file").Open(t.Context(), holder.Target{Place: "pipe.json", Set: storetest.KeySet(t, "pipe"), Files: dir})
	if _, err := h.Read(t.Context()); err == nil || err.Error() != "pipe.json is not a regular file" {
		t.Error(err)
	}
}

// The kinds here and those that a policy may name are the same, but for Google's.
func TestKindsHaveForms(t *testing.T) {
	t.Parallel()
	kinds := []string{"gcp"}
	for _, k := range holder.Kinds() {
		kinds = append(kinds, k.Name)
	}
	for _, kind := range kinds[1:] {
		if kind != "file" && !slices.ContainsFunc(scenes(""), func(s scene) bool { return s.kind == kind }) {
			t.Errorf("scenes in holder_test.go has none of the kind %s, so nothing here has uploaded to it", kind)
		}
	}
	slices.Sort(kinds)
	if !slices.Equal(kinds, party.UploadKinds()) {
		t.Errorf("%q and %q", kinds, party.UploadKinds())
	}
}
