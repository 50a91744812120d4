package mirrorcmd

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/replicate"
	"github.com/keypost/keypost/keystore/storetest"
)

func TestMirrorAdmin(t *testing.T) {
	root := t.TempDir()
	store, err := filestore.Create(filepath.Join(root, "store"))
	must(t, err)
	m := mirrorOf(t, store, filepath.Join(root, "copy"), "https://oidc.example.com/{name}")
	m.o.adminAddress = "127.0.0.1:0"
	ctx, cancel := context.WithCancel(t.Context())
	server, err := service.Admin{Address: m.o.adminAddress, Metrics: m, Ready: m.Ready, Log: m.log}.Listen(ctx)
	must(t, err)
	done := make(chan error)
	go func() { done <- server.Serve(ctx) }()
	ask := func(path string, status int, texts ...string) {
		t.Helper()
		resp, err := http.Get("http://" + server.Addr().String() + path)
		must(t, err)
		defer func() { must(t, resp.Body.Close()) }()
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		for _, text := range texts {
			if !strings.Contains(string(body), text) {
				t.Errorf("%s has no %q:\n%s", path, text, body)
			}
		}
		if resp.StatusCode != status {
			t.Errorf("%s is answered with %d, want %d", path, resp.StatusCode, status)
		}
	}

	ask("/livez", 200)
	ask("/readyz", 503, "no complete pass over the store yet")
	ask("/metrics", 200, "\nkeypost_mirror_last_complete_timestamp_seconds 0\n", "\nkeypost_mirror_failing 0\n")
	must(t, m.Pass(t.Context()))
	ask("/readyz", 503, "the store holds no key set")
	must(t, os.WriteFile(filepath.Join(store.Dir(), "prod-b.yaml"), []byte("junk"), 0o600))
	must(t, m.Pass(t.Context()))
	ask("/readyz", 503, "1 of 1 key sets have no good version yet")
	must(t, keystore.Create(t.Context(), keystore.NewStore(store), storetest.KeySet(t, "prod-a")))
	must(t, m.Pass(t.Context()))
	ask("/readyz", 200)
	ask("/metrics", 200, "\nkeypost_mirror_key_sets 1\n", `keypost_mirror_key_set_refused{key_set="prod-b",reason="broken"} 1`, `keypost_mirror_key_sets_refused{reason="broken"} 1`, `keypost_mirror_key_sets_refused{reason="missing"} 0`)
	must(t, os.Remove(filepath.Join(store.Dir(), "prod-b.yaml")))
	must(t, m.Pass(t.Context()))
	ask("/readyz", 200)
	if complete := m.Status().Complete; time.Since(complete) > time.Minute {
		t.Errorf("complete at %v", complete)
	}

	// What a run finds of an earlier one counts from its start.
	again := mirrorOf(t, store, filepath.Join(root, "copy"), "https://oidc.example.com/{name}")
	if got, want := again.Status().Complete, m.Status().Complete; want.Sub(got).Abs() > time.Millisecond {
		t.Errorf("after a restart: complete at %v, want %v", got, want)
	}
	must(t, os.Rename(store.Dir(), store.Dir()+".away"))
	if before, err := again.Ready(), again.Pass(t.Context()); before == nil || err == nil || again.Ready() != nil {
		t.Errorf("after a restart without the store: ready %v, then %v and %v", before, err, again.Ready())
	}
	cancel()
	must(t, <-done)
}

// A tombstone with another's issuer URL bars no keys of that one. Patterns refuse it, as they refuse any key set.
func TestMirrorAsksThePatternsAboutTombstones(t *testing.T) {
	root, key := t.TempDir(), storetest.Key(t)
	store := newStore(t, root, key)
	evil, err := storetest.KeySet(t, "evil", key).Withdraw(storetest.Change(365 * 24 * time.Hour))
	must(t, err)
	text := strings.ReplaceAll(storetest.Text(t, evil), "oidc.example.com/evil", "oidc.example.com/prod-a")
	must(t, os.WriteFile(filepath.Join(store.Dir(), "evil.yaml"), []byte(text), 0o600))
	for name, tc := range map[string]struct {
		patterns []string
		held     int
		evil     keystore.Reason
	}{"patterns": {[]string{"https://oidc.example.com/{name}"}, 1, lastgood.ReasonURLNotPermitted}, "none": {nil, 2, ""}} {
		m := mirrorOf(t, store, filepath.Join(root, name), tc.patterns...)
		must(t, m.Pass(t.Context()))
		if got := m.Status().Held; got != tc.held || m.Status().Refused["evil"].Reason != tc.evil || m.Ready() != nil {
			t.Errorf("%s: %d key sets are held, want %d; refused: %v", name, got, tc.held, m.Status().Refused)
		}
	}
}

// A run with other patterns refuses what an earlier run has copied, and leaves the copy.
func TestMirrorWithOtherPatterns(t *testing.T) {
	root := t.TempDir()
	store := newStore(t, root)
	for i, tc := range []struct {
		patterns []string
		refused  int
	}{{nil, 0}, {[]string{"https://other.example.com/{name}"}, 1}, {[]string{"https://oidc.example.com/{name}"}, 0}} {
		m := mirrorOf(t, store, filepath.Join(root, "copy"), tc.patterns...)
		must(t, m.Pass(t.Context()))
		if s := m.Status(); len(s.Refused) != tc.refused || s.Held != 1 {
			t.Errorf("run %d: %+v, want %d refused", i, s, tc.refused)
		}
	}
}

// What nobody reads is not waited for, and counts as nobody's failure, where none of its issuer URLs is the server's.
func TestMirrorLeavesCopiesApart(t *testing.T) {
	root := t.TempDir()
	store := newStore(t, root)
	copied, err := keystore.New(storetest.Change(0), keystore.Spec{Name: "prod-b", Issuers: storetest.URLs(t, "https://oidc.internal/prod-b"), Keys: []keystore.VerificationKey{storetest.Key(t)},
		Policy: keystore.Policy{Reach: keystore.ReachCopies, RelyingParties: []string{"gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"}}})
	must(t, err)
	must(t, keystore.Create(t.Context(), keystore.NewStore(store), copied))
	m := mirrorOf(t, store, filepath.Join(root, "copy"), "https://oidc.example.com/{name}")
	must(t, m.Pass(t.Context()))
	if s := m.Status(); len(s.Refused) != 0 || s.Held != 1 || s.Partial || m.Ready() != nil {
		t.Errorf("%+v, ready: %v", s, m.Ready())
	}
}

// Nothing that was copied is an error, and a broken key set beside one that was copied is none.
func TestMirrorOnceTellsThatNothingWasCopied(t *testing.T) {
	root := t.TempDir()
	store := newStore(t, root)
	must(t, os.WriteFile(filepath.Join(store.Dir(), "prod-b.yaml"), []byte("junk"), 0o600))
	for name, tc := range map[string]struct {
		patterns []string
		copied   bool
	}{"none": {nil, true}, "that allow it": {[]string{"prod-b=https://oidc.example.com/prod-a", "prod-a=https://oidc.example.com/prod-a"}, true}, "that allow neither": {[]string{"https://x.example.com/{name}"}, false}} {
		m := mirrorOf(t, store, filepath.Join(root, name), tc.patterns...)
		must(t, m.Pass(t.Context()))
		if got := m.nothingCopied(); (m.Status().Held > 0) != tc.copied || (got == nil) != tc.copied {
			t.Errorf("patterns %s: %d are held, %v", name, m.Status().Held, got)
		}
	}
}

// mirrorOf is a mirror of a directory into another one, for issuer URLs of some patterns.
func mirrorOf(t *testing.T, store *filestore.Backend, dir string, patterns ...string) *mirroring {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	m, err := newMirroring(t.Context(), &options{f: &cli.Factory{Err: io.Discard, Store: "file://" + store.Dir()}, poll: time.Second, dir: dir, issuerURLs: patterns})
	must(t, err)
	return m
}

// newStore is a directory below a root with a key set prod-a.
func newStore(t *testing.T, root string, keys ...keystore.VerificationKey) *filestore.Backend {
	t.Helper()
	store, err := filestore.Create(filepath.Join(root, "store"))
	must(t, err)
	must(t, keystore.Create(t.Context(), keystore.NewStore(store), storetest.KeySet(t, "prod-a", keys...)))
	return store
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A new node is not kept for ever from serving by a key set that cannot be read, and never serves nothing.
func TestMirrorOnceIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		unread []keystore.Name
		ends   string
	}{"one": {[]keystore.Name{"prod-b"}, `"msg":"done without the key sets that cannot be read"`}, "all": {[]keystore.Name{"prod-a", "prod-b"}, ""}, "none": {nil, `"msg":"done"`}} {
		synctest.Test(t, func(t *testing.T) {
			from, to := storetest.NewMemory(t), storetest.NewMemory(t)
			for _, n := range []keystore.Name{"prod-a", "prod-b"} {
				from.Set(n, []byte(storetest.Text(t, storetest.KeySet(t, n))))
			}
			from.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
				if op.Kind == storetest.OpGet && slices.Contains(tc.unread, op.Name) {
					return false, errors.New("access denied")
				}
				return true, nil
			})
			var log strings.Builder
			m := &mirroring{o: &options{}, log: service.NewLogger(&log)}
			m.Mirror = replicate.NewMirror(replicate.MirrorConfig{From: from, To: to, Poll: time.Minute, Log: m.log})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			err := m.passOnce(ctx)
			took := time.Since(began)
			switch {
			case tc.ends == "" && (!errors.Is(err, context.DeadlineExceeded) || m.Status().Held > 0):
				t.Errorf("%s unread: it ended after %v: %v", name, took, err)
			case tc.ends != "" && (err != nil || !strings.Contains(log.String(), tc.ends) || took > lastgood.StartPatience+maxOnce+time.Second || (took < lastgood.StartPatience) != (tc.unread == nil)):
				t.Errorf("%s unread: after %v: %v\n%s", name, took, err, log.String())
			}
		})
	}
}
