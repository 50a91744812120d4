package verify

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/keystore/storetest"
)

// ago is a change in the world's key set some time ago.
func ago(d time.Duration) keystore.Change {
	return keystore.Change{At: time.Now().Add(-d), By: "test", Why: "test", Force: true}
}

// store changes the stored key set.
func (w *world) store(t *testing.T, step func(s keystore.KeySet) (keystore.KeySet, error)) {
	t.Helper()
	s, err := step(w.stored)
	check(t, err)
	w.stored = s
}

func (w *world) storeKey(t *testing.T, at time.Duration, k *ecdsa.PrivateKey) {
	t.Helper()
	w.store(t, func(s keystore.KeySet) (keystore.KeySet, error) { return s.Add(ago(at), public(t, k)) })
}

func (w *world) revoke(t *testing.T, at time.Duration, id keystore.KeyID) {
	t.Helper()
	w.store(t, func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Revoke(ago(at), id, keystore.RevokeOptions{LeaveEmpty: true})
	})
}

// under is a JWK with another member.
func under(key member, name string, value any) member {
	other := maps.Clone(key)
	other[name] = value
	return other
}

// rsaJWK is a published RSA key under any kid.
func rsaJWK(t *testing.T, k *rsa.PrivateKey, kid, alg string) member {
	t.Helper()
	raw, err := json.Marshal(jose.JSONWebKey{Key: k.Public(), KeyID: kid, Algorithm: alg, Use: "sig"})
	check(t, err)
	var m member
	check(t, json.Unmarshal(raw, &m))
	return m
}

func newRSAKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	return k
}

const (
	settling = 30 * time.Second    // keypostd may not have the change yet
	fresh    = 10 * time.Minute    // caches may still hold a copy from before
	stale    = 10 * 24 * time.Hour // none may
)

// TestImpostor: anyone who answers with other key material fails, however it names its keys.
func TestImpostor(t *testing.T) {
	runDefects(t, []defect{
		{"same kid, another key", func(t *testing.T, w *world) {
			w.jwks = []member{under(publicJWK(t, newECKey(t)), "kid", w.kid)}
		}, "stored-keys", finding.Fail, "has another key under the kid "},
		{"a key more", func(t *testing.T, w *world) { w.jwks = append(w.jwks, publicJWK(t, newECKey(t))) }, "stored-keys", finding.Fail, "neither has nor had"},
		{"a key more on the other path", func(t *testing.T, w *world) {
			w.alias = append([]member{publicJWK(t, newECKey(t))}, w.jwks...)
		}, "stored-keys", finding.Fail, fetch.AliasPath + " has the key "},
		{"a key less", func(t *testing.T, w *world) { w.storeKey(t, stale, newECKey(t)) }, "stored-keys", finding.Fail, "although no cache may hold an older copy since"},
		{"no key at all", func(_ *testing.T, w *world) { w.jwks = []member{} }, "stored-keys", finding.Fail, "does not have the active key"},
		{"a revoked key back", func(t *testing.T, w *world) {
			k := newECKey(t)
			w.storeKey(t, stale+time.Hour, k)
			w.revoke(t, stale, public(t, k).ID())
			w.jwks = append(w.jwks, publicJWK(t, k))
		}, "stored-keys", finding.Fail, "which is gone from key set"},
		{"a revoked key back under another kid", func(t *testing.T, w *world) {
			k := newECKey(t)
			w.storeKey(t, time.Hour, k)
			w.revoke(t, fresh, public(t, k).ID())
			w.jwks = append(w.jwks, under(publicJWK(t, k), "kid", "harmless"))
		}, "stored-keys", finding.Fail, "under another kid, harmless"},
		{"another key under the kid of a gone one", func(t *testing.T, w *world) {
			k := newECKey(t)
			w.storeKey(t, time.Hour, k)
			w.revoke(t, fresh, public(t, k).ID())
			w.jwks = append(w.jwks, under(publicJWK(t, newECKey(t)), "kid", string(public(t, k).ID())))
		}, "stored-keys", finding.Fail, "has another key under the kid"},
		{"another kid", func(_ *testing.T, w *world) { w.jwks[0]["kid"] = "x" }, "stored-keys", finding.Fail, "as x (ES256)"},
		{"another alg", func(t *testing.T, w *world) {
			raw := rsaJWK(t, newRSAKey(t), "r", "RS256")
			mine, err := pubkey.Parse("test", mustJSON(t, raw))
			check(t, err)
			w.store(t, func(s keystore.KeySet) (keystore.KeySet, error) { return s.Add(ago(stale), mine[0]) })
			w.jwks = append(w.jwks, under(raw, "alg", "RS512"))
		}, "stored-keys", finding.Fail, "as r (RS512)"},
		{"the same key under a second kid", func(_ *testing.T, w *world) { w.jwks = append(w.jwks, under(w.jwks[0], "kid", "second")) }, "stored-keys", finding.Fail, "as second (ES256)"},
		{"a key that cannot be read", func(_ *testing.T, w *world) {
			w.jwks = append(w.jwks, member{"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"})
		}, "stored-keys", finding.Fail, "keys (1) that cannot be read"},
		{"a private key on the other path", func(_ *testing.T, w *world) { w.alias = []member{under(w.jwks[0], "d", "AAAA")} }, "jwks-keys", finding.Fail, fetch.AliasPath + ` has the private member "d"`},
		{"a certificate beside the key", func(_ *testing.T, w *world) { w.jwks[0]["x5u"] = "https://evil.example.com/chain.pem" }, "jwks-keys", finding.Fail, `has the member "x5u"`},
	})
}

// TestAmbiguousDocuments: what two relying parties may read differently is not judged by what we read.
func TestAmbiguousDocuments(t *testing.T) {
	body := func(path, format string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			text := strings.NewReplacer("MINE", string(mustJSON(t, w.jwks[0])), "THEIRS", string(mustJSON(t, publicJWK(t, newECKey(t)))),
				"REST", strings.Trim(string(mustJSON(t, w.discovery)), "{}")).Replace(format)
			w.replace["/prod-a"+path] = answer(200, "Content-Type: application/json", text)
		}
	}
	runDefects(t, []defect{
		{"two lists", body("/keys.json", `{"keys":[THEIRS],"keys":[MINE]}`), "jwks", finding.Fail, `"keys" twice`},
		{"two spellings", body("/keys.json", `{"keys":[THEIRS],"KEYS":[MINE]}`), "jwks", finding.Fail, `"KEYS" twice`},
		{"two spellings on the other path", body(fetch.AliasPath, `{"keys":[MINE],"KEYS":[THEIRS]}`), "jwks-alias", finding.Fail, `"KEYS" twice`},
		{"two issuers", body(fetch.DiscoveryPath, `{"issuer":"https://evil.example.com",REST}`), "discovery", finding.Fail, `"issuer" twice`},
		{"two addresses of the JWKS", body(fetch.DiscoveryPath, `{"JWKS_URI":"https://evil.example.com/keys",REST}`), "discovery", finding.Fail, `"jwks_uri" twice`},
	})
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	check(t, err)
	return raw
}

// TestHonest: what caches that obey hand out during a rotation fails nobody's check.
func TestHonest(t *testing.T) {
	runDefects(t, []defect{
		{"a key just added", func(t *testing.T, w *world) { w.storeKey(t, settling, newECKey(t)) }, "stored-keys", finding.Warn, "a cache may still hold an older copy until"},
		{"a key just added, seen on one path", func(t *testing.T, w *world) {
			k := newECKey(t)
			w.storeKey(t, settling, k)
			w.alias, w.jwks = w.jwks, append([]member{publicJWK(t, k)}, w.jwks...)
		}, "jwks-alias", finding.Warn, "other keys than jwks_uri"},
		{"a key just revoked", func(t *testing.T, w *world) {
			k := newECKey(t)
			w.storeKey(t, time.Hour, k)
			w.revoke(t, settling, public(t, k).ID())
			w.jwks = append(w.jwks, publicJWK(t, k))
		}, "stored-keys", finding.Warn, "a cache may still hold an older copy until"},
		{"the other order and form", func(t *testing.T, w *world) {
			k := newECKey(t)
			w.storeKey(t, stale, k)
			w.jwks = append(w.jwks, publicJWK(t, k))
			w.alias = []member{w.jwks[1], w.jwks[0]}
		}, "jwks-alias", finding.OK, "the same keys"},
		{"no store", func(_ *testing.T, w *world) { w.options.Stored = nil }, "stored-keys", finding.Warn, "no store was given"},
		{"a store without the issuer", func(_ *testing.T, w *world) { w.storeErr = ErrNotStored }, "stored-keys", finding.Warn, "no key set with this issuer URL"},
	})
}

// TestNeverArrived: where nothing shows a cache, none may be blamed for a change that keypostd has not got.
func TestNeverArrived(t *testing.T) {
	origin := func(w *world) { w.options.Connect = "192.0.2.1:443" }
	none := func(*world) {}
	via := func(w *world) { w.header.Set("Via", "1.1 varnish") }
	held := func(w *world) {
		hold := keystore.Duration(time.Hour)
		w.header.Set("X-Test", "declared")
		p := w.stored.Policy()
		p.EdgeHold = &hold
		w.stored, _ = w.stored.SetPolicy(ago(stale), p)
	}
	revoked := func(at time.Duration, where func(*world)) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			where(w)
			k := newECKey(t)
			w.storeKey(t, time.Hour, k)
			w.revoke(t, at, public(t, k).ID())
			w.jwks = append(w.jwks, publicJWK(t, k))
		}
	}
	removed := func(t *testing.T, w *world) {
		k := newECKey(t)
		w.storeKey(t, time.Hour, k)
		w.store(t, func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Remove(ago(fresh), public(t, k).ID(), keystore.Removal{NeverSigned: true})
		})
		w.jwks = append(w.jwks, publicJWK(t, k))
	}
	added := func(where func(*world)) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			where(w)
			w.storeKey(t, fresh, newECKey(t))
		}
	}
	runDefects(t, []defect{
		{"revoked, the origin asked", revoked(fresh, origin), "stored-keys", finding.Fail, "keypostd has not got the change"},
		{"revoked, no cache seen", revoked(fresh, none), "stored-keys", finding.Fail, "keypostd has not got the change"},
		{"revoked, a cache seen", revoked(fresh, via), "stored-keys", finding.Warn, "a cache may still hold an older copy until"},
		{"revoked, a cache declared", revoked(fresh, held), "stored-keys", finding.Warn, "a cache may still hold an older copy until"},
		{"revoked just now, the origin asked", revoked(settling, origin), "stored-keys", finding.Warn, "a cache may still hold an older copy until"},
		{"removed", removed, "stored-keys", finding.Warn, "keypostd has not got the change"},
		{"added, no cache seen", added(none), "stored-keys", finding.Fail, "keypostd has not got the change"},
		{"added, a cache seen", added(via), "stored-keys", finding.Warn, "a cache may still hold an older copy until"},
	})
}

// TestNothingCompared: a store that was given and could not be compared with is a failure, whatever the reason.
func TestNothingCompared(t *testing.T) {
	runDefects(t, []defect{
		{"the store fails", func(_ *testing.T, w *world) { w.storeErr = errors.New("access denied") }, "stored-keys", finding.Fail, "access denied"},
		{"withdrawn", func(t *testing.T, w *world) {
			w.store(t, func(s keystore.KeySet) (keystore.KeySet, error) { return s.Withdraw(ago(fresh)) })
		}, "stored-keys", finding.Fail, "was withdrawn"},
		{"another URL by now", func(t *testing.T, w *world) {
			s, err := keystore.New(ago(fresh), keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, testIssuer+"-2"), Keys: []keystore.VerificationKey{public(t, w.signer)}})
			check(t, err)
			w.stored = s
		}, "stored-keys", finding.Fail, "does not have the issuer URL"},
		{"no answer", func(_ *testing.T, w *world) { w.replace["/prod-a/keys.json"] = answer(503, "", "") }, "stored-keys", finding.Fail, "no JWKS could be read"},
	})
}

// TestStoreReadAfterwards: a rotation while the issuer is being asked makes no impostor of the new key.
func TestStoreReadAfterwards(t *testing.T) {
	w := newWorld(t)
	k := newECKey(t)
	w.jwks = append(w.jwks, publicJWK(t, k))
	served, order := w.options.Stored, []string{}
	w.replace["/prod-a/keys.json"] = func(rw http.ResponseWriter, r *http.Request) {
		order = append(order, "fetched")
		delete(w.replace, r.URL.Path)
		w.serve(rw, r)
	}
	w.options.Stored = func(ctx context.Context) (keystore.KeySet, error) {
		order = append(order, "stored")
		if slices.Contains(order, "fetched") { // before, it is only asked for the origins
			w.storeKey(t, time.Second, k)
		}
		return served(ctx)
	}
	if findings := w.visit(t); finding.Failed(findings) || !slices.Equal(order, []string{"stored", "fetched", "stored"}) {
		t.Errorf("%q, findings %+v", order, findings)
	}
}

// TestStrangersAreNoHint: nobody is told to take a stranger's key into the store.
func TestStrangersAreNoHint(t *testing.T) {
	w := newWorld(t)
	w.jwks = append(w.jwks, publicJWK(t, newECKey(t)))
	for _, f := range w.visit(t) {
		if strings.Contains(f.Repair+f.Effect+f.Message(), "accept NAME") || strings.Contains(f.Repair, "issuer accept") || strings.Contains(f.Repair, "key add") && f.Severity == finding.Fail {
			t.Errorf("%+v", f)
		}
	}
}
