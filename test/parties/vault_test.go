package parties

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/upload"
	"github.com/keypost/keypost/issuer/upload/holder"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/party"
)

// uploading is a Vault that holds an upload of a key set.
type uploading struct {
	*world
	*vault
	upload.Uploader
	upload.Holder
	party string
}

func newUploading(t *testing.T, first signer) *uploading {
	t.Helper()
	v := newVault(t)
	place := strings.TrimPrefix(v.URL, "http://") + "/auth/jwt"
	u := &uploading{vault: v, party: "vault-upload:" + place}
	check(t, party.Check(u.party))
	u.world = newWorld(t, "https://oidc.example.com/prod-a", false, first, keystore.Policy{RelyingParties: []string{u.party}})
	records, err := filestore.Open(t.TempDir())
	check(t, err)
	u.Uploader = upload.Uploader{Store: u.store, Records: observation.NewStore(records), By: "tester"}
	kinds := holder.Kinds()
	i := slices.IndexFunc(kinds, func(k holder.Kind) bool { return k.Name == "vault" })
	env := map[string]string{"VAULT_ADDR": v.URL, "VAULT_TOKEN": vaultToken}
	u.Holder, err = kinds[i].Open(t.Context(), holder.Target{Place: place, Getenv: func(name string) string { return env[name] }})
	check(t, err)
	v.write("config", object{"jwt_validation_pubkeys": []string{first.PEM()}, "bound_issuer": u.issuer})
	return u
}

// sync is `keypost sync-keys`. It has to change something or not.
func (u *uploading) sync(changes bool) {
	u.world.t.Helper()
	r, err := u.Sync(u.world.t.Context(), name, u.party, u.Holder)
	if err != nil || r.Uploaded != changes || r.ClockGap != "" || r.Refused != nil {
		u.world.t.Fatalf("uploaded %t, %v, clock %q, refused %v; want uploaded %t", r.Uploaded, err, r.ClockGap, r.Refused, changes)
	}
}

func (u *uploading) token(s signer) string { return s.token(u.world.t, u.issuer, vaultAudience, nil) }

// Through a rotation that is uploaded no login fails, and a key that was revoked and uploaded is refused at once.
func TestVaultUpload(t *testing.T) {
	var rows []row
	for _, alg := range algorithms {
		old, next := newSigner(t, alg), newSigner(t, alg)
		u := newUploading(t, old)
		r := row{party: "vault, uploaded keys, " + alg, broken: "see TestVaultRefusals"}
		u.sync(false)
		accepted(t, u.vault, u.token(old))
		r.accepted = "yes"
		r.rotated = rotate(t, u.login, u.token(old),
			func() string { u.add(next); u.sync(true); return "" },
			func() string { u.promote(next); u.sync(false); return u.token(next) })
		r.rotated += fmt.Sprintf(", %d broken off by a panic of Vault's and repeated", u.broken.Load())
		u.revoke(old)
		u.sync(true)
		r.revoked = "at once: " + refused(t, u.vault, u.token(old))
		accepted(t, u.vault, u.token(next))
		rows = append(rows, r)
	}
	show(t, rows)
}

// A login that has read the configuration before it is written leaves the old keys in use for good, a revoked one too. A second
// write ends that, so an upload writes twice.
func TestVaultLoginKeepsOldKeys(t *testing.T) {
	old, next := newSigner(t, "ES256"), newSigner(t, "ES256")
	u := newUploading(t, old)
	// during writes while a login has read the configuration; it goes on after the first write.
	during := func(write func()) {
		select {
		case <-u.wrote:
		default:
		}
		reached, done := make(chan struct{}), make(chan struct{})
		hold := func() { close(reached); <-u.wrote }
		u.storage.read.Store(&hold)
		go func() { defer close(done); u.login(u.token(old)) }()
		<-reached
		write()
		<-done
	}
	by := func(k signer) func() {
		return func() {
			u.write("config", object{"jwt_validation_pubkeys": []string{k.PEM()}, "bound_issuer": u.issuer})
		}
	}
	during(by(next))
	accepted(t, u.vault, u.token(old)) // although the configuration does not have it
	refused(t, u.vault, u.token(next))
	by(next)()
	accepted(t, u.vault, u.token(next))
	refused(t, u.vault, u.token(old))

	by(old)()
	u.add(next)
	u.promote(next)
	during(func() { u.sync(true) })
	accepted(t, u.vault, u.token(next))
	u.revoke(old)
	during(func() { u.sync(true) })
	refused(t, u.vault, u.token(old))
	accepted(t, u.vault, u.token(next))
}

// fetching is an issuer that a Vault fetches keys of.
type fetching struct {
	*world
	*issuer.Publisher
	ca      string
	fetched atomic.Int64 // how often the JWKS was
}

// newFetching returns one whose copies are fresh for maxAge.
func newFetching(t *testing.T, first signer, maxAge keystore.Duration) *fetching {
	t.Helper()
	f := &fetching{}
	var h http.Handler
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, issuer.JWKSPath) {
			f.fetched.Add(1)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	f.world = newWorld(t, server.URL+"/"+string(name), true, first, keystore.Policy{MaxAge: &maxAge, RelyingParties: []string{"vault"}})
	pattern, err := issuer.ParsePattern(server.URL+"/{name}", true)
	check(t, err)
	f.Publisher = issuer.NewPublisher(issuer.Config{Source: f.store, Patterns: []issuer.Pattern{pattern}, Dev: true, Log: zap.NewNop()})
	h = issuer.NewHandler(f.Publisher, nil)
	f.publish()
	return f
}

// usual is how long copies are fresh where nothing else is said.
const usual = keystore.Duration(5 * time.Minute)

func (f *fetching) publish() {
	f.t.Helper()
	check(f.t, f.Refresh(f.t.Context()))
}

func (f *fetching) configure(v *vault) {
	f.t.Helper()
	v.write("config", object{"oidc_discovery_url": f.issuer, "oidc_discovery_ca_pem": f.ca, "bound_issuer": f.issuer})
}

func (f *fetching) token(s signer) string { return s.token(f.t, f.issuer, vaultAudience, nil) }

// A new key is fetched at its first token. A revoked one is trusted until a token comes that no kept key verifies, a stranger's too, or the
// configuration is written again.
func TestVaultDiscovery(t *testing.T) {
	var rows []row
	for _, alg := range algorithms {
		old, next, stranger := newSigner(t, alg), newSigner(t, alg), newSigner(t, alg)
		f := newFetching(t, old, usual)
		v, rewritten := newVault(t), newVault(t)
		f.configure(v)
		f.configure(rewritten)
		r := row{party: "vault, discovery, " + alg, broken: "see TestVaultRefusals"}
		accepted(t, v, f.token(old))
		r.accepted = "yes"
		r.rotated = rotate(t, v.login, f.token(old),
			func() string { f.add(next); f.publish(); return "" },
			func() string { f.promote(next); f.publish(); return f.token(next) })
		if n := f.fetched.Load(); n != 2 {
			t.Errorf("the JWKS was fetched %d times; want once for the first token of each key", n)
		}
		accepted(t, rewritten, f.token(old))
		f.revoke(old)
		f.publish()
		before := f.fetched.Load()
		for range perStep {
			accepted(t, v, f.token(old))
		}
		accepted(t, rewritten, f.token(old))
		if n := f.fetched.Load(); n != before {
			t.Errorf("it fetched the JWKS %d times for tokens of a key that it kept", n-before)
		}
		refused(t, v, f.token(stranger))
		r.revoked = fmt.Sprintf("trusted for %d logins more, until a stranger's token came: %s", perStep, refused(t, v, f.token(old)))
		f.configure(rewritten)
		r.revoked += "; after the configuration was written again: " + refused(t, rewritten, f.token(old))
		accepted(t, v, f.token(next))
		accepted(t, rewritten, f.token(next))
		rows = append(rows, r)
	}
	show(t, rows)
}

func accepted(t *testing.T, v *vault, token string) {
	t.Helper()
	if said := v.login(token); said != "" {
		t.Fatalf("refused: %s", said)
	}
}

func refused(t *testing.T, v *vault, token string) string {
	t.Helper()
	said := v.login(token)
	if said == "" {
		t.Fatal("accepted; want a refusal")
	}
	return said
}

// The texts of keystore/party are what is really said, and each refusal has its text there.
func TestVaultRefusals(t *testing.T) {
	var texts []string
	var rows []row
	for _, alg := range algorithms {
		key, stranger := newSigner(t, alg), newSigner(t, alg)
		u, f := newUploading(t, key), newFetching(t, key, usual)
		discovery := newVault(t)
		f.configure(discovery)
		for _, c := range []struct {
			party, issuer string
			v             *vault
		}{{"vault, uploaded keys, " + alg, u.issuer, u.vault}, {"vault, discovery, " + alg, f.issuer, discovery}} {
			accepted(t, c.v, key.token(t, c.issuer, vaultAudience, nil))
			for _, b := range []struct{ what, token string }{
				{"wrong audience", key.token(t, c.issuer, "https://elsewhere.example.com", nil)},
				{"wrong issuer", key.token(t, c.issuer+"-b", vaultAudience, nil)},
				{"expired", key.token(t, c.issuer, vaultAudience, ended(time.Hour))},
				{"expired 90 s ago", key.token(t, c.issuer, vaultAudience, ended(90*time.Second))},
				{"unknown key", stranger.token(t, c.issuer, vaultAudience, nil)},
			} {
				said := refused(t, c.v, b.token)
				texts = append(texts, said)
				rows = append(rows, row{party: c.party, accepted: "no", broken: b.what + ": " + said})
			}
			accepted(t, c.v, key.token(t, c.issuer, vaultAudience, ended(30*time.Second)))
		}
	}
	show(t, rows)
	i := slices.IndexFunc(party.All(), func(p party.Party) bool { return p.Name == "vault" })
	known := party.All()[i].Refusals
	for _, f := range known {
		if !slices.ContainsFunc(texts, func(said string) bool { return strings.Contains(said, f.Quote) }) {
			t.Errorf("%s: it never says %q", f.Says, f.Quote)
		}
	}
	for _, said := range texts {
		if !slices.ContainsFunc(known, func(f party.Fact) bool { return strings.Contains(said, f.Quote) }) {
			t.Errorf("keystore/party does not have %q", said)
		}
	}
}

// ended are the claims of a token that ended so long ago.
func ended(ago time.Duration) object {
	end := time.Now().Add(-ago)
	return object{"iat": end.Add(-time.Hour).Unix(), "nbf": end.Add(-time.Hour).Unix(), "exp": end.Unix()}
}

// Without bound_issuer nobody checks iss. Such a Vault gets no upload.
func TestVaultWithoutBoundIssuer(t *testing.T) {
	key := newSigner(t, "ES256")
	u, f := newUploading(t, key), newFetching(t, key, usual)
	u.write("config", object{"jwt_validation_pubkeys": []string{key.PEM()}})
	accepted(t, u.vault, key.token(t, "https://elsewhere.example.com", vaultAudience, nil))
	const want = "bound_issuer is empty"
	if _, err := u.Sync(t.Context(), name, u.party, u.Holder); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %s", err, want)
	}
	v := newVault(t)
	v.write("config", object{"oidc_discovery_url": f.issuer, "oidc_discovery_ca_pem": f.ca})
	accepted(t, v, key.token(t, "https://elsewhere.example.com", vaultAudience, nil))
}

// jwt_supported_algs bounds what a role takes; an upload leaves it as it is.
func TestVaultSupportedAlgorithms(t *testing.T) {
	old, next := newSigner(t, "ES256"), newSigner(t, "ES256")
	u := newUploading(t, old)
	u.write("config", object{"jwt_validation_pubkeys": []string{old.PEM()}, "bound_issuer": u.issuer, "jwt_supported_algs": "RS256"})
	u.add(next)
	u.sync(true)
	for _, s := range []signer{old, next} {
		if said := refused(t, u.vault, u.token(s)); !strings.Contains(said, "invalid algorithm (alg) header parameter") {
			t.Error(said)
		}
	}
}
