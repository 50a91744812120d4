package verify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
)

// storedSetups are about keys that are published and should not be, or the other way round.
func storedSetups() []setup {
	atOneEdge := func(t *testing.T, w *world) {
		w.places(t, map[string]fetch.DialFunc{"192.0.2.1": nil, "198.51.100.7": w.impostor(t, "", func() any {
			return member{"keys": append([]member{publicJWK(t, newECKey(t))}, w.jwks...)}
		})})
	}
	everywhere := func(t *testing.T, w *world) {
		w.heal(t)
		w.anyHost = true
		direct(t, w)
	}
	return []setup{
		{"a rogue key at one edge only", "key-rogue", "", atOneEdge, everywhere},
		{"a rogue key at one of three replicas behind one address", "key-rogue", "", func(t *testing.T, w *world) {
			theirs := publicJWK(t, newECKey(t))
			w.inTurn(t, func(*world) {}, func(w *world) { w.jwks = append(w.jwks, theirs) }, func(*world) {})
		}, nil},
		{"a rogue key at one edge, and no store to ask", "addresses-differ", "", func(t *testing.T, w *world) {
			w.options.Stored = nil
			atOneEdge(t, w)
		}, everywhere},
		{"the stored key under another kid", "key-changed", "", func(_ *testing.T, w *world) { w.jwks[0]["kid"] = "x" }, nil},
		{"a key revoked 10 days ago", "key-still-there", "", func(t *testing.T, w *world) {
			k := newECKey(t)
			w.storeKey(t, stale+time.Hour, k)
			w.revoke(t, stale, public(t, k).ID())
			w.jwks = append(w.jwks, publicJWK(t, k))
		}, nil},
	}
}

// activeSetups are about key sets of whose keys a cluster may sign with none.
func activeSetups() []setup {
	signer := func(t *testing.T, w *world, step func(keystore.KeySet, keystore.KeyID) (keystore.KeySet, error)) {
		t.Helper()
		w.store(t, func(s keystore.KeySet) (keystore.KeySet, error) { return step(s, public(t, w.signer).ID()) })
		w.heal(t)
	}
	revoked := func(t *testing.T, w *world) { w.revoke(t, stale, public(t, w.signer).ID()); w.heal(t) }
	retired := func(t *testing.T, w *world) {
		signer(t, w, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
			return s.Retire(ago(stale), id, keystore.Evidence{})
		})
	}
	promoted := func(t *testing.T, w *world) {
		for _, k := range w.stored.Keys() {
			w.store(t, func(s keystore.KeySet) (keystore.KeySet, error) {
				return s.Promote(ago(fresh), k.ID(), keystore.Observed{})
			})
		}
		w.heal(t)
	}
	next := func(then func(*testing.T, *world)) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			w.storeKey(t, stale+time.Hour, newECKey(t))
			then(t, w)
		}
	}
	return []setup{
		{"the signing key was revoked while its successor was next", "active-none", "", next(revoked), promoted},
		{"the signing key was revoked after another was retired", "active-none", "", func(t *testing.T, w *world) {
			old := newECKey(t)
			w.storeKey(t, stale+2*time.Hour, old)
			w.store(t, func(s keystore.KeySet) (keystore.KeySet, error) {
				return s.Retire(ago(stale+time.Hour), public(t, old).ID(), keystore.Evidence{})
			})
			revoked(t, w)
		}, promoted},
		{"the signing key was revoked, and its successor was retired before it signed", "active-none", "", func(t *testing.T, w *world) {
			unused := newECKey(t)
			w.storeKey(t, stale+time.Hour, unused)
			revoked(t, w)
			w.store(t, func(s keystore.KeySet) (keystore.KeySet, error) {
				return s.Retire(ago(stale-time.Hour), public(t, unused).ID(), keystore.Evidence{})
			})
			w.heal(t)
		}, promoted},
		{"a cluster that has ended, whose key was retired", "active-none", finding.Warn, retired, promoted},
		{"a cluster that has ended, one of whose keys was revoked before", "active-none", finding.Warn, func(t *testing.T, w *world) {
			old := newECKey(t)
			w.storeKey(t, stale+2*time.Hour, old)
			w.store(t, func(s keystore.KeySet) (keystore.KeySet, error) {
				return s.Promote(ago(stale+2*time.Hour), public(t, old).ID(), keystore.Observed{})
			})
			w.revoke(t, stale+time.Hour, public(t, old).ID())
			retired(t, w)
		}, promoted},
		{"a key set that is not in use yet, with only a next key", "active-none", finding.Warn, next(func(t *testing.T, w *world) {
			retired(t, w)
			signer(t, w, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
				return s.Remove(ago(stale), id, keystore.Removal{})
			})
		}), promoted},
	}
}

// storeSetups are about a comparison that cannot be made.
func storeSetups() []setup {
	given := func(err error) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.storeErr = err }
	}
	return []setup{
		{"the store cannot be read", "not-compared", "", given(errors.New("access denied")), given(nil)},
	}
}

// inTurn makes the replicas behind the one address answer in turn, each with its own changes.
func (w *world) inTurn(t *testing.T, changes ...func(w *world)) {
	t.Helper()
	var replicas []*world
	for _, change := range changes {
		one := *w
		one.replace = nil
		change(&one)
		replicas = append(replicas, &one)
	}
	var next atomic.Uint32
	for _, path := range []string{fetch.KeysPath, fetch.AliasPath} {
		w.replace["/prod-a"+path] = func(rw http.ResponseWriter, r *http.Request) {
			replicas[int(next.Add(1))%len(replicas)].serve(rw, r)
		}
	}
}

func replicaSetups() []setup {
	origins := func(list ...string) func(*testing.T, *world) {
		return withPolicy(func(p *keystore.Policy) { p.Origins = list })
	}
	behind := func(dial fetch.DialFunc) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			origins("203.0.113.1")(t, w)
			w.options.Patience = impatient
			w.options.Dial = func(ctx context.Context, network, asked string) (net.Conn, error) {
				if strings.HasPrefix(asked, "203.0.113.1:") {
					return dial(ctx, network, asked)
				}
				return to(w.at)(ctx, network, asked)
			}
		}
	}
	started := func(t *testing.T, w *world) { w.anyHost = true; direct(t, w) }
	shownTo := func(value string, build func(*testing.T, *world)) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			w.options.Shield = fetch.Shield{Header: "X-Origin-Secret", Value: value, Origins: []string{"203.0.113.1"}}
			build(t, w)
		}
	}
	shielded := func(t *testing.T, w *world) {
		own := *w
		own.replace = map[string]http.HandlerFunc{"/prod-a" + fetch.DiscoveryPath: func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Origin-Secret") != "let me in" {
				answer(http.StatusForbidden, "", finding.ShieldBody)(rw, r)
				return
			}
			w.serve(rw, r)
		}}
		behind(own.listen(t))(t, w)
	}
	expired := func(version uint16) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			own := *w
			own.tls = w.tls.Clone()
			own.tls.ClientAuth, own.tls.ClientCAs, own.tls.MaxVersion = tls.RequireAndVerifyClientCert, w.pki.root.Pool(), version
			old := w.pki.issueLeaf(t, -time.Hour)
			w.options.Shield = fetch.Shield{Origins: []string{"203.0.113.1"}, Certificates: []tls.Certificate{old.Pair(w.pki.intermediate)}}
			behind(own.listen(t))(t, w)
		}
	}
	return []setup{
		{"a CDN that shows its origin a wrong secret", "cdn-refused", "", func(_ *testing.T, w *world) {
			w.replace["/prod-a"+fetch.DiscoveryPath] = answer(http.StatusForbidden, "Cache-Control: no-store", finding.ShieldBody)
		}, nil},
		{"an origin that hangs behind a cache with a good copy", "origin-unreachable", "", func(t *testing.T, w *world) {
			w.cached(t)
			behind(silent(t))(t, w)
		}, started},
		{"an origin that nobody can connect to", "origin-unreachable", finding.Warn, behind(to("127.0.0.1:1")), started},
		{"an origin that answers its cache only", "origin-unreachable", finding.Warn, shielded, shownTo("let me in", nothing)},
		{"an origin that refuses the secret that it is shown", "origin-unreachable", "", shownTo("of last year", shielded), shownTo("let me in", nothing)},
		{"an origin that asks its cache for a certificate", "origin-unreachable", finding.Warn, func(t *testing.T, w *world) {
			shielded := *w
			shielded.tls = w.tls.Clone()
			shielded.tls.ClientAuth = tls.RequireAnyClientCert
			behind(shielded.listen(t))(t, w)
		}, started},
		{"an origin that refuses the client certificate that it is shown", "origin-unreachable", "", expired(tls.VersionTLS13), started},
		{"an origin that still serves an older key set", "key-missing", "", func(t *testing.T, w *world) {
			old := *w
			w.storeKey(t, stale, newECKey(t))
			w.heal(t)
			behind(old.listen(t))(t, w)
		}, started},
	}
}

// listen serves the world at an address of its own.
func (w *world) listen(t *testing.T) fetch.DialFunc {
	t.Helper()
	return to(w.address(t))
}

// cached makes the world look as from a cache that declares itself.
func (w *world) cached(t *testing.T) {
	t.Helper()
	withPolicy(func(p *keystore.Policy) { p.EdgeHold = keystore.DurationPtr(time.Hour) })(t, w)
	w.header.Set("Age", "100")
}

// cacheSetups have a cache that answers for an hour what it has once read; where nginx is installed there are real ones in test/e2e.
func cacheSetups() []setup {
	aged := func(age int, control string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			w.cached(t)
			w.header.Set("Age", fmt.Sprint(age))
			w.header.Set("Cache-Control", control)
		}
	}
	const asKeypostd = "public, max-age=300, stale-while-revalidate=300, stale-if-error=86400"
	return []setup{
		{"a CDN that holds copies for a week", "cache-stale", "", aged(7*86400, asKeypostd), nil},
		{"a stale CDN without a new key", "cache-stale", "", func(t *testing.T, w *world) {
			aged(7200, "public, max-age=300")(t, w)
			w.storeKey(t, stale, newECKey(t))
		}, nil},
		{"a CDN that nobody declared", "cache-undeclared", finding.Warn, func(_ *testing.T, w *world) { w.header.Set("X-Cache", "Hit from cloudfront") },
			withPolicy(func(p *keystore.Policy) { p.EdgeHold = keystore.DurationPtr(time.Hour) })},
	}
}

func devSet(t *testing.T, w *world) keystore.KeySet {
	t.Helper()
	u, err := keystore.ParseIssuerURL(w.options.URL, true)
	check(t, err)
	s, err := keystore.New(keystore.Change{At: longAgo()}, keystore.Spec{
		Name: "prod-a", Issuers: []keystore.IssuerURL{u}, Keys: []keystore.VerificationKey{public(t, w.signer)}, Dev: true,
	})
	check(t, err)
	return s
}
