package signer

import (
	"context"
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/externaljwt/apis/v1"
	"k8s.io/externaljwt/apis/v1alpha1"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/keys"
)

const name = keystore.Name("prod-a")

var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// fakeKey is a private key in memory, which may be made to fail.
type fakeKey struct {
	crypto.Signer
	public keystore.VerificationKey
	err    error
	wrong  bool

	meanwhile func() // called while it signs
}

func newKey(private crypto.Signer) *fakeKey {
	return &fakeKey{Signer: private, public: must(keystore.NewPublic(private.Public()))}
}

func (k *fakeKey) Public() keystore.VerificationKey { return k.public }

func (k *fakeKey) Sign(_ context.Context, digest []byte, hash crypto.Hash) ([]byte, error) {
	if k.meanwhile != nil {
		k.meanwhile()
	}
	if k.err != nil {
		return nil, k.err
	}
	if k.wrong {
		digest = slices.Clone(digest)
		digest[0]++
	}
	return k.Signer.Sign(rand.Reader, digest, hash)
}

func p256(n int) *fakeKey { return newKey(keys.EC(elliptic.P256(), n)) }

// scene is a signer on a store in memory.
type scene struct {
	t     *testing.T
	store *storetest.MemStore
	held  []Key
	keys  error // of the source of keys
	s     *Signer
	logs  *observer.ObservedLogs
	at    time.Time
}

// newScene makes a key set in which active are active. The signer holds them and has read nothing.
func newScene(t *testing.T, active ...*fakeKey) *scene {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	sc := &scene{t: t, store: storetest.NewMemStore(t), logs: logs, at: now}
	spec := keystore.Spec{Name: name, Issuers: []keystore.IssuerURL{must(keystore.ParseIssuerURL("https://oidc.example.com/prod-a", false))}}
	for _, k := range active {
		spec.Keys, sc.held = append(spec.Keys, k.public), append(sc.held, k)
	}
	set := must(keystore.New(keystore.Change{At: now.Add(-time.Hour), By: "test"}, spec))
	if err := keystore.Create(t.Context(), sc.store.Store, set); err != nil {
		t.Fatal(err)
	}
	sc.s = must(New(Config{Backend: sc.store.Memory, Name: name, Log: zap.New(core), Keys: func(context.Context) ([]Key, error) { return sc.held, sc.keys }}))
	return sc
}

// change makes a forced transition a minute later, and has the signer read it.
func (sc *scene) change(how func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error)) {
	sc.t.Helper()
	sc.write(how)
	sc.refresh("")
}

// write is change that the signer has not read.
func (sc *scene) write(how func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error)) {
	sc.t.Helper()
	sc.at = sc.at.Add(time.Minute)
	c := keystore.Change{At: sc.at, By: "test", Why: "a test", Force: true}
	if _, err := keystore.Update(sc.t.Context(), sc.store.Store, name, func(s keystore.KeySet) (keystore.KeySet, error) { return how(s, c) }); err != nil {
		sc.t.Fatal(err)
	}
}

func (sc *scene) refresh(want string) {
	sc.t.Helper()
	err := sc.s.Refresh(sc.t.Context(), sc.at)
	if err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		sc.t.Errorf("refresh: %v, want %q", err, want)
	}
}

func add(k *fakeKey) func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
	return func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) { return s.Add(c, k.public) }
}

func promote(k *fakeKey) func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
	return func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
		return s.Promote(c, k.public.ID(), keystore.Observed{})
	}
}

func retire(k *fakeKey) func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
	return func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
		return s.Retire(c, k.public.ID(), keystore.Evidence{Statement: "a test"})
	}
}

func revoke(k *fakeKey) func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
	return func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
		return s.Revoke(c, k.public.ID(), keystore.RevokeOptions{LeaveEmpty: true})
	}
}

func (sc *scene) signs(want *fakeKey) {
	sc.t.Helper()
	id := keystore.KeyID("")
	if want != nil {
		id = want.public.ID()
	}
	if got, _ := sc.s.Signs(); got != id {
		sc.t.Errorf("%q signs, want %q", got, id)
	}
}

func (sc *scene) lists(want ...*fakeKey) {
	sc.t.Helper()
	var ids, got []string
	for _, k := range want {
		ids = append(ids, string(k.public.ID()))
	}
	slices.Sort(ids)
	for _, k := range sc.s.state.Load().listed {
		got = append(got, k.KeyId)
	}
	if !slices.Equal(got, ids) {
		sc.t.Errorf("lists %q, want %q", got, ids)
	}
}

func (sc *scene) logged(message string) int { return sc.logs.FilterMessage(message).Len() }

// A rotation: the next key is listed and does not sign, signs once it is promoted, and the old one stays listed until it is removed.
func TestRotation(t *testing.T) {
	t.Parallel()
	old, next := p256(1), p256(2)
	sc := newScene(t, old)
	sc.held = append(sc.held, next)
	sc.refresh("")
	sc.signs(old)
	first := sc.s.state.Load().changed
	sc.refresh("")
	if again := sc.s.state.Load().changed; !again.Equal(first) {
		t.Errorf("the time of an unchanged list went from %v to %v", first, again)
	}
	sc.change(add(next))
	sc.signs(old)
	sc.lists(old, next)
	if changed := sc.s.state.Load().changed; !changed.After(first) {
		t.Errorf("the list has changed, its time has not: %v", changed)
	}
	sc.change(promote(next))
	sc.signs(next)
	sc.change(retire(old))
	sc.signs(next)
	sc.lists(old, next)
	sc.change(func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
		return s.Remove(c, old.public.ID(), keystore.Removal{})
	})
	sc.signs(next)
	sc.lists(next)
	if n := sc.logged("signing"); n != 2 {
		t.Errorf("%d lines say which key signs, want 2", n)
	}
}

// An active key that another signer holds is listed. The one that is held here goes on signing.
func TestKeysOfOthers(t *testing.T) {
	t.Parallel()
	ours, others := p256(1), p256(2)
	sc := newScene(t, ours)
	sc.refresh("")
	sc.change(add(others))
	sc.held = []Key{others} // a key that is next never signs
	sc.refresh("")
	sc.signs(nil)
	sc.held = []Key{ours}
	sc.change(promote(others))
	sc.signs(ours)
	sc.lists(ours, others)
	if n := sc.logged("signing with an older key"); n != 1 {
		t.Errorf("%d lines say that an older key signs, want 1", n)
	}
	sc.change(retire(ours))
	sc.signs(nil)
	if err := sc.s.Ready(); err == nil || !strings.Contains(err.Error(), string(others.public.ID())+" is not held here") {
		t.Errorf("ready: %v", err)
	}
	sc.held = append(sc.held, others) // its file arrives
	sc.refresh("")
	sc.signs(others)
}

// Whatever happens to the store but a revocation, the last good version stays.
func TestLastGoodStays(t *testing.T) {
	t.Parallel()
	old, next := p256(1), p256(2)
	for what, tt := range map[string]struct {
		do   func(sc *scene, before []byte)
		want string
	}{
		"emptied": {func(sc *scene, _ []byte) { sc.store.Delete(name) }, "no such key set"},
		"broken":  {func(sc *scene, _ []byte) { sc.store.Set(name, []byte("{")) }, "broken"},
		"older":   {func(sc *scene, before []byte) { sc.store.Set(name, before) }, "generation"},
		"away": {func(sc *scene, _ []byte) {
			sc.store.Inject(func(context.Context, storetest.Op) (bool, error) { return false, errors.New("away") })
		}, "away"},
		"keys unreadable": {func(sc *scene, _ []byte) { sc.held, sc.keys = nil, errors.New("disk") }, ""},
		"a key vanishes by hand": {func(sc *scene, _ []byte) {
			doc, _, err := sc.store.Get(sc.t.Context(), name)
			if err != nil {
				sc.t.Fatal(err)
			}
			text := strings.Replace(string(doc), "generation: 2", "generation: 3", 1)
			block := text[strings.Index(text, "  - alg"):]
			block = block[:strings.Index(block[1:], "  - alg")+1]
			sc.store.Set(name, []byte(strings.Replace(text, block, "", 1)))
		}, "key"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t, old)
			before, _, err := sc.store.Get(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			sc.refresh("")
			sc.change(add(next))
			tt.do(sc, before)
			for range 3 { // a day and a half
				sc.at = sc.at.Add(12 * time.Hour)
				sc.refresh(tt.want)
			}
			sc.signs(old)
			sc.lists(old, next)
			if warned := sc.logged("the key set cannot be read; the last good one stays") + sc.logged("the private keys cannot be read; those from before stay"); warned != 1 {
				t.Errorf("%d warnings, want 1", warned)
			}
		})
	}
}

// A revoked key signs nothing any more. The list is never empty, since a kube-apiserver would go on to trust the one before.
func TestRevokedKey(t *testing.T) {
	t.Parallel()
	k := p256(1)
	sc := newScene(t, k)
	sc.refresh("")
	sc.change(revoke(k))
	sc.signs(nil)
	if listed := sc.s.state.Load().listed; len(listed) != 1 || listed[0].KeyId != "nobody" {
		t.Errorf("lists %v", listed)
	}
	_, err := v1Server{s: sc.s}.Sign(t.Context(), &v1.SignJWTRequest{Claims: claims(now)})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a revoked key: %v", err)
	}
}

// A kube-apiserver takes a list for the one that it has unless its time differs: it grows with each change, also where the clock was put back.
func TestClockPutBack(t *testing.T) {
	t.Parallel()
	old, next := p256(1), p256(2)
	sc := newScene(t, old)
	sc.refresh("")
	before := sc.s.state.Load().changed
	sc.write(add(next))
	sc.at = sc.at.Add(-24 * time.Hour)
	sc.refresh("")
	sc.signs(old)
	sc.lists(old, next)
	if changed := sc.s.state.Load().changed; !changed.After(before) {
		t.Errorf("the time of the list went from %v to %v", before, changed)
	}
}

// A key service that does not answer holds up neither the key set nor a revocation.
func TestKeyServiceHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := p256(1)
		sc := newScene(t, k)
		sc.refresh("")
		hang := sc.s.c.Keys
		sc.s.c.Keys = func(ctx context.Context) ([]Key, error) {
			<-ctx.Done()
			return hang(ctx)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { sc.s.Run(ctx) })
		synctest.Wait()
		sc.signs(k)
		sc.write(revoke(k))
		time.Sleep(2 * time.Second)
		sc.signs(nil)
		cancel()
		done.Wait()
	})
}

// A call that comes when the key set has its replacement, and the replacement's file was copied a moment before, gets its token.
func TestReplacementCopiedJustBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stolen, replacement := p256(1), p256(2)
		sc := newScene(t, stolen)
		sc.refresh("")
		sc.change(func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
			return s.Revoke(c, stolen.public.ID(), keystore.RevokeOptions{Replacement: &replacement.public})
		})
		sc.signs(nil)
		sc.s.c.Keys = func(context.Context) ([]Key, error) { return []Key{stolen, replacement}, nil }
		began := time.Now()
		time.AfterFunc(poll, func() { sc.refresh("") })
		r, err := v1Server{s: sc.s}.Sign(t.Context(), &v1.SignJWTRequest{Claims: claims(now)})
		if err != nil || r.Header != header(replacement.public.ID(), "ES256") {
			t.Errorf("%v, %v", r, err)
		}
		if took := time.Since(began); took > 2*poll {
			t.Errorf("it took %v", took)
		}
	})
}

// A key that is revoked while its service takes its time gives no token. Its replacement does, if it is held.
func TestRevokedWhileSigning(t *testing.T) {
	t.Parallel()
	for _, isHeld := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			stolen, replacement := p256(1), p256(2)
			sc := newScene(t, stolen)
			if isHeld {
				sc.held = append(sc.held, replacement)
			}
			stolen.meanwhile = func() {
				sc.change(func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
					return s.Revoke(c, stolen.public.ID(), keystore.RevokeOptions{Replacement: &replacement.public})
				})
			}
			sc.refresh("")
			r, err := v1Server{s: sc.s}.Sign(t.Context(), &v1.SignJWTRequest{Claims: claims(now)})
			if !isHeld && !errors.Is(err, errNoKey) || isHeld && r.GetHeader() != header(replacement.public.ID(), "ES256") {
				t.Errorf("replacement held: %v: %v, %v", isHeld, r, err)
			}
		})
	}
}

func claims(expires time.Time) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"iss":"https://oidc.example.com/prod-a","exp":%d}`, expires.Unix()))
}

// dial serves on a socket and returns a connection, as a kube-apiserver makes it.
func (sc *scene) dial(callers Callers) *grpc.ClientConn {
	sc.t.Helper()
	path := filepath.Join(sc.t.TempDir(), "s", "signer.sock")
	l, err := Listen(sc.t.Context(), path)
	if err != nil {
		sc.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- sc.s.Serve(ctx, l, callers) }()
	c, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		sc.t.Fatal(err)
	}
	sc.t.Cleanup(func() {
		_ = c.Close()
		cancel()
		if err := <-served; err != nil {
			sc.t.Error(err)
		}
	})
	return c
}

func me() Callers { return Callers{UIDs: []uint32{uint32(os.Getuid())}} }

// Both versions of the API give tokens that verify with the list, for each algorithm that a kube-apiserver takes.
func TestTokens(t *testing.T) {
	t.Parallel()
	for alg, private := range map[jose.SignatureAlgorithm]crypto.Signer{
		jose.RS256: keys.NewRSA()(), jose.ES256: keys.EC(elliptic.P256(), 1), jose.ES384: keys.EC(elliptic.P384(), 1), jose.ES512: keys.EC(elliptic.P521(), 1),
	} {
		t.Run(string(alg), func(t *testing.T) {
			t.Parallel()
			sc := newScene(t, newKey(private))
			sc.refresh("")
			c := sc.dial(me())
			now := claims(now)
			r, err := v1.NewExternalJWTSignerClient(c).Sign(t.Context(), &v1.SignJWTRequest{Claims: now})
			if err != nil {
				t.Fatal(err)
			}
			old, err := v1alpha1.NewExternalJWTSignerClient(c).Sign(t.Context(), &v1alpha1.SignJWTRequest{Claims: now})
			if err != nil {
				t.Fatal(err)
			}
			for _, token := range []string{r.Header + "." + now + "." + r.Signature, old.Header + "." + now + "." + old.Signature} {
				jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{alg})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := jws.Verify(private.Public()); err != nil {
					t.Error(err)
				}
			}
			list, err := v1.NewExternalJWTSignerClient(c).FetchKeys(t.Context(), &v1.FetchKeysRequest{})
			if err != nil || len(list.Keys) != 1 || list.RefreshHintSeconds != 10 || list.DataTimestamp.AsTime().IsZero() {
				t.Errorf("%v, %v", list, err)
			}
			limits, err := v1.NewExternalJWTSignerClient(c).Metadata(t.Context(), &v1.MetadataRequest{})
			if err != nil || limits.MaxTokenExpirationSeconds != 24*60*60 {
				t.Errorf("%v, %v", limits, err)
			}
		})
	}
}

// Who asks for a token reads what a signer answers: nothing of keys, files or services may be in it.
func TestWhatCallersAreTold(t *testing.T) {
	t.Parallel()
	makeRSA := keys.NewRSA()
	for what, tt := range map[string]struct {
		key    func(k *fakeKey)
		claims string
		reason string
		told   error
	}{
		"service fails":   {func(k *fakeKey) { k.err = errors.New("arn:aws:kms:secret") }, claims(now), failedKey, errFailed},
		"wrong signature": {func(k *fakeKey) { k.wrong = true }, claims(now), failedSignature, errFailed},
		"wrong RSA":       {func(k *fakeKey) { k.wrong = true }, claims(now), failedSignature, errFailed},
		"no base64":       {func(*fakeKey) {}, "{}", failedClaims, errClaims},
		"no expiry":       {func(*fakeKey) {}, base64.RawURLEncoding.EncodeToString([]byte(`{"exp":"x"}`)), failedClaims, errClaims},
		"expiry zero":     {func(*fakeKey) {}, base64.RawURLEncoding.EncodeToString([]byte(`{"exp":0}`)), failedClaims, errClaims},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			k := p256(1)
			if what == "wrong RSA" {
				k = newKey(makeRSA())
			}
			sc := newScene(t, k)
			sc.refresh("")
			tt.key(k)
			for range 100 {
				_, err := v1Server{s: sc.s}.Sign(t.Context(), &v1.SignJWTRequest{Claims: tt.claims})
				if !errors.Is(err, tt.told) {
					t.Fatalf("told %v, want %v", err, tt.told)
				}
			}
			if n := testutil.ToFloat64(sc.s.metrics.failures.WithLabelValues(tt.reason)); n != 100 {
				t.Errorf("%v failures with reason %s", n, tt.reason)
			}
			if n := sc.logged("a token was not signed"); n < 1 || n > 10 {
				t.Errorf("%d lines, want a few", n)
			}
		})
	}
	t.Run("nothing read yet", func(t *testing.T) {
		t.Parallel()
		_, err := v1Server{s: newScene(t, p256(1)).s}.FetchKeys(t.Context(), nil)
		if !errors.Is(err, errNoSet) {
			t.Error(err)
		}
	})
}

// Only the users and groups that are named have tokens signed.
func TestCallers(t *testing.T) {
	t.Parallel()
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	for what, tt := range map[string]struct {
		callers Callers
		may     bool
	}{
		"user": {Callers{UIDs: []uint32{uid}}, true}, "group": {Callers{GIDs: []uint32{gid}}, true},
		"another user": {Callers{UIDs: []uint32{uid + 1}, GIDs: []uint32{gid + 1}}, false}, "nobody": {Callers{}, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t, p256(1))
			sc.refresh("")
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := v1.NewExternalJWTSignerClient(sc.dial(tt.callers)).Sign(ctx, &v1.SignJWTRequest{Claims: claims(now)})
			if (err == nil) != tt.may {
				t.Errorf("%v", err)
			}
			if refused := testutil.ToFloat64(sc.s.metrics.refused); (refused > 0) == tt.may {
				t.Errorf("%v refused", refused)
			}
		})
	}
}

// A process of another user gets no answer, even where it can reach the socket.
func TestStrangerOnTheNode(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can act as another user")
	}
	sc := newScene(t, p256(1))
	sc.refresh("")
	dir := must(os.MkdirTemp("", "signer"))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l := must(Listen(t.Context(), path))
	must(0, os.Chmod(dir, 0o777)) // somebody has opened it since
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- sc.s.Serve(ctx, l, me()) }()
	got := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread, which is another user's now, ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); errno != 0 {
			got <- errno
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			defer unix.Close(fd)
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		if err == nil {
			var n int
			if n, err = unix.Read(fd, make([]byte, 1)); n > 0 {
				err = errors.New("it was answered")
			}
		}
		got <- err
	}()
	if err := <-got; err != nil && !errors.Is(err, unix.ECONNRESET) {
		t.Error(err)
	}
	if refused := testutil.ToFloat64(sc.s.metrics.refused); refused != 1 {
		t.Errorf("%v connections refused, want 1", refused)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A socket that others could reach or replace is refused. One that a killed process left is replaced.
func TestListen(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		prepare func(dir string) (path string)
		want    string
	}{
		"new directory": {func(dir string) string { return filepath.Join(dir, "new", "s") }, ""},
		"open to all":   {func(dir string) string { must(0, os.Chmod(dir, 0o755)); return filepath.Join(dir, "s") }, "chmod 0700"},
		"a file": {func(dir string) string {
			must(0, os.WriteFile(filepath.Join(dir, "s"), nil, 0o600))
			return filepath.Join(dir, "s")
		}, "not a socket"},
		"a link": {func(dir string) string {
			must(0, os.Symlink(dir, dir+"-link"))
			return filepath.Join(dir+"-link", "s")
		}, "is a link"},
		"left": {func(dir string) string {
			l := must(net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"}))
			l.SetUnlinkOnClose(false)
			must(0, l.Close())
			return filepath.Join(dir, "s")
		}, ""},
		"another process": {func(dir string) string {
			l := must(net.Listen("unix", filepath.Join(dir, "s")))
			t.Cleanup(func() { _ = l.Close() })
			return filepath.Join(dir, "s")
		}, "another process answers"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			must(0, os.Mkdir(dir, 0o700))
			l, err := Listen(t.Context(), tt.prepare(dir))
			if err == nil != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if l != nil {
				_ = l.Close()
			}
		})
	}
}

// Tokens are counted by key until they expire.
func TestTokensAlive(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]string{0: "map[a:3 b:1]", 5 * time.Minute: "map[a:2]", 2 * time.Hour: "map[]"} {
		var all tokens
		for _, expires := range []time.Duration{time.Minute, time.Hour, time.Hour, -time.Hour} {
			all.add("a", now.Add(expires).Unix())
		}
		all.add("b", now.Add(time.Second).Unix())
		count, latest := all.alive(now.Add(after))
		if fmt.Sprint(count) != want || len(latest) != len(count) {
			t.Errorf("after %v: %v, want %s", after, count, want)
		}
		if until, ok := latest["a"]; ok && until != now.Add(time.Hour).Unix() {
			t.Errorf("after %v: until %v", after, until)
		}
	}
}

// The longest life of a token is what the policy declares, and never less than a kube-apiserver takes.
func TestLifetime(t *testing.T) {
	t.Parallel()
	for declared, want := range map[time.Duration]time.Duration{0: 24 * time.Hour, time.Minute: 10 * time.Minute, time.Hour: time.Hour} {
		p := keystore.Policy{}
		if declared > 0 {
			p.TokenLifetime = keystore.DurationPtr(declared)
		}
		if got := lifetime(p); got != want {
			t.Errorf("%v: %v, want %v", declared, got, want)
		}
	}
}
