package s3store

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/process"
)

// estate is a bucket with two key sets, and a publisher that serves them. prod-a has a revoked key, and backup is its
// document from before that.
type estate struct {
	*server
	st        *Backend
	p         *proxy
	source    *switched
	publisher *issuer.Publisher
	revoked   keystore.KeyID
	backup    string
}

// switched is a Reader that somebody points at another place while it is in use.
type switched struct{ atomic.Pointer[Backend] }

func (s *switched) List(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	return s.Pointer.Load().List(ctx)
}

func (s *switched) Load(ctx context.Context, n keystore.Name) (keystore.KeySet, keystore.Revision, error) {
	return keystore.NewStore(s.Pointer.Load()).Load(ctx, n)
}

func newEstate(t *testing.T) *estate {
	t.Helper()
	e := &estate{server: gateway(t), source: &switched{}}
	var url string
	e.p, url = newProxy(t, e.url)
	e.st = impatient(open(t, url, Options{Prefix: "clusters"}))
	e.source.Store(e.st)
	leaked := storetest.Key(t)
	first := storetest.KeySet(t, "prod-a", storetest.Key(t), leaked)
	e.revoked, e.backup = leaked.ID(), storetest.Text(t, first)
	must(t, keystore.Create(t.Context(), keystore.NewStore(e.st), first))
	_, err := keystore.Update(t.Context(), keystore.NewStore(e.st), "prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Revoke(storetest.Change(0), e.revoked, keystore.RevokeOptions{})
	})
	must(t, err)
	create(t, e.st, "prod-b")
	pattern, err := issuer.ParsePattern("https://oidc.example.com/{name}", false)
	must(t, err)
	e.publisher = issuer.NewPublisher(issuer.Config{Source: e.source, Patterns: []issuer.Pattern{pattern}, Log: zap.NewNop()})
	must(t, e.publisher.Refresh(t.Context()))
	return e
}

func (e *estate) bucketDir() string { return filepath.Join(e.dir, bucket) }

// asks is a relying party that asks for both documents of both issuers until the test ends; not one request may fail,
// and no answer may hold the revoked key.
func (e *estate) asks(t *testing.T) (asked *atomic.Int64, stop func()) {
	t.Helper()
	h := issuer.NewHandler(e.publisher, nil)
	asked = &atomic.Int64{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, path := range []string{
				"/prod-a/keys.json", "/prod-b/keys.json",
				"/prod-a/.well-known/openid-configuration", "/prod-b/.well-known/openid-configuration",
			} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://oidc.example.com"+path, nil))
				if w.Code != http.StatusOK || slices.Contains(kids(w.Body.Bytes()), string(e.revoked)) {
					t.Errorf("%s: status %d, kids %v", path, w.Code, kids(w.Body.Bytes()))
					return
				}
			}
			asked.Add(1)
		}
	}()
	return asked, func() { cancel(); <-done }
}

func kids(body []byte) (all []string) {
	var jwks struct{ Keys []struct{ Kid string } }
	_ = json.Unmarshal(body, &jwks)
	for _, k := range jwks.Keys {
		all = append(all, k.Kid)
	}
	return all
}

// awaitReport waits until the publisher reports of prod-a what the accident should make it report; "" is all well.
func (e *estate) awaitReport(t *testing.T, want string) {
	t.Helper()
	process.Await(t, "the publisher's report", func() error {
		is, err := "absent", e.publisher.Refresh(t.Context())
		for _, s := range e.publisher.Report().Issuers {
			switch {
			case s.Name != "prod-a":
			case err != nil:
				is = "failing"
			default:
				is = string(s.Rejected)
			}
		}
		if is != want {
			return fmt.Errorf("prod-a is %q, want %q (last listing: %w)", is, want, err)
		}
		return nil
	})
}

func TestNoAccidentOfTheBucketUnpublishes(t *testing.T) {
	away := func(t *testing.T, e *estate) string {
		must(t, os.Rename(e.bucketDir(), e.bucketDir()+"-away"))
		return e.bucketDir() + "-away"
	}
	for _, c := range []struct {
		name    string
		happens func(t *testing.T, e *estate) (mend func())
		told    string
	}{
		{"the prefix is wrong", func(t *testing.T, e *estate) func() {
			e.source.Store(reopen(t, e.url, Options{Prefix: "cluster"}))
			return func() { e.source.Store(e.st) }
		}, "missing"},
		{"the bucket is removed", func(t *testing.T, e *estate) func() {
			was := away(t, e)
			return func() { must(t, os.Rename(was, e.bucketDir())) }
		}, "failing"},
		{"the bucket is made again, empty", func(t *testing.T, e *estate) func() {
			was := away(t, e)
			must(t, os.Mkdir(e.bucketDir(), 0o755))
			return func() {
				must(t, os.RemoveAll(e.bucketDir()))
				must(t, os.Rename(was, e.bucketDir()))
			}
		}, "missing"},
		{"every object is removed", func(t *testing.T, e *estate) func() {
			before, _ := read(t, e.st, "clusters/prod-a.yaml")
			must(t, os.RemoveAll(filepath.Join(e.bucketDir(), "clusters")))
			return func() { put(t, e.st, "clusters/prod-a.yaml", string(before)) }
		}, "missing"},
		{"a backup is restored", func(t *testing.T, e *estate) func() {
			before, _ := read(t, e.st, "clusters/prod-a.yaml")
			put(t, e.st, "clusters/prod-a.yaml", e.backup)
			return func() { put(t, e.st, "clusters/prod-a.yaml", string(before)) }
		}, string(lastgood.ReasonOlderGeneration)},
		{"an object is overwritten with junk", func(t *testing.T, e *estate) func() {
			before, _ := read(t, e.st, "clusters/prod-a.yaml")
			put(t, e.st, "clusters/prod-a.yaml", "<html>")
			return func() { put(t, e.st, "clusters/prod-a.yaml", string(before)) }
		}, string(keystore.ReasonBroken)},
		{"the permission is lost", denied.happens, "failing"},
		{"the store throttles", busy.happens, "failing"},
		{"the store hangs", hang.happens, "failing"},
		{"answers are cut", half.happens, "failing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEstate(t)
			asked, stop := e.asks(t)
			defer stop()
			mend := c.happens(t, e)
			e.awaitReport(t, c.told)
			for n := asked.Load(); asked.Load() < n+50 && !t.Failed(); time.Sleep(time.Millisecond) {
				_ = e.publisher.Refresh(t.Context()) // it fails in half of the cases; what is served is what counts
			}
			mend()
			e.awaitReport(t, "")
		})
	}
}

// happens makes trouble between the reader and the bucket.
func (tr trouble) happens(t *testing.T, e *estate) (mend func()) {
	t.Helper()
	e.p.trouble(always(tr))
	return func() { e.p.trouble(nil) }
}
