package issuercmd

import (
	"context"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/storetest"
)

// served returns every byte that relying parties get of a key set, by issuer URL.
func served(t *testing.T, s keystore.KeySet) map[string]string {
	t.Helper()
	all := map[string]string{}
	if s.Withdrawn() {
		return all
	}
	for _, u := range s.Issuers() {
		discovery, err := issuer.RenderDiscovery(s, u)
		must(t, err)
		jwks, err := issuer.RenderJWKS(s)
		must(t, err)
		all[u.String()] = string(discovery) + string(jwks)
	}
	return all
}

// Whenever what is served differs from what the store renders, the row is not ok: of every pair of versions, one served and the
// other put into the store behind it.
func TestListTellsEveryDifference(t *testing.T) {
	pool := versions(t)
	for i, first := range pool {
		for j, second := range pool {
			synctest.Test(t, func(t *testing.T) {
				near, far := storetest.NewMemory(t), storetest.NewMemStore(t)
				near.Set("prod-a", []byte(storetest.Text(t, first)))
				far.Set("prod-a", []byte(storetest.Text(t, second)))
				p := issuer.NewPublisher(issuer.Config{Source: keystore.NewStore(near), Patterns: patterns(t), Log: zap.NewNop()})
				ctx, stop := context.WithCancel(t.Context())
				go p.Run(ctx)
				synctest.Wait()
				contents, err := catalog.ReadAll(ctx, keystore.NewStore(far))
				must(t, err)
				rows, report := storedRows(contents), p.Report()
				rows = merge(rows, report)
				if ok := strings.HasPrefix(rows[0].status(), "ok"); ok && !maps.Equal(served(t, first), served(t, second)) {
					t.Errorf("version %d is served and %d is stored: %s", i, j, rows[0].status())
				} else if !ok && i == j && !first.Withdrawn() {
					t.Errorf("version %d is served as it is stored: %s", i, rows[0].status())
				}
				stop()
				synctest.Wait()
			})
		}
	}
}

// versions returns versions of one key set, several of each generation.
func versions(t *testing.T) (pool []keystore.KeySet) {
	a, b, c := storetest.Key(t), storetest.Key(t), storetest.Key(t)
	for _, keys := range [][]keystore.VerificationKey{{a, b}, {a, c}, {b}} {
		s := storetest.KeySet(t, "prod-a", keys...)
		next, err := s.Add(storetest.Change(0), storetest.Key(t))
		must(t, err)
		gone, err := s.Revoke(keystore.Change{At: storetest.Change(0).At, Why: "stolen"}, keys[0].ID(), keystore.RevokeOptions{LeaveEmpty: true})
		must(t, err)
		over, err := s.Withdraw(storetest.Change(365 * 24 * time.Hour))
		must(t, err)
		pool = append(pool, s, next, gone, over)
	}
	return pool
}

func patterns(t *testing.T) []issuer.Pattern {
	t.Helper()
	all, err := issuer.ParsePatterns([]string{"https://oidc.example.com/{name}"}, false)
	must(t, err)
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
