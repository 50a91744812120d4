//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// newIssuer is where clusters move to: keypostd.
const newIssuer = "https://oidc.keypost.test/prod-a"

// move is a live cluster of two kube-apiservers whose issuer is ccoctl's public bucket, and a keypostd that does not know it yet.
type move struct {
	*movingRole
	server *server
	plane  *plane
	opens  string // when --finish said that it would
}

func newMove(t *testing.T) *move {
	ca := newAuthority(t)
	m := &move{server: newStore(t, ca)}
	startEtcd(t)
	m.plane = newPlane(t, ca, "prod-a", "10.99.0.11", "10.99.0.12")
	serveBucket(t, ca, m.plane.key.Public())
	m.plane.serve(t, 0, bucketIssuer)
	m.plane.serve(t, 1, bucketIssuer)
	m.plane.createAccount(t)
	m.plane.kubectl(t, "create", "serviceaccount", "default") // as kube-controller-manager does
	m.plane.apply(t, fmt.Sprintf(podWithToken, "app", "openshift", 7200))
	m.plane.listed(t, m.plane.hosts...)
	m.server.run(t)
	m.movingRole = newMovingRole(t, ca) // which reads the bucket's documents
	return m
}

// TestAWSMigrateUnderAWorkload moves a cluster of two kube-apiservers from the bucket to keypostd, step after step, while a workload
// assumes its role again and again with whatever token the kubelet would give it.
func TestAWSMigrateUnderAWorkload(t *testing.T) {
	m := newMove(t)
	kubelet := m.startKubelet(t)
	working := keepTrying(t, m.use)
	cached := kubelet.token() // what a program that never reads its file again goes on using

	m.begin(t)
	m.halfSwitched(t)
	m.switched(t)
	working.expectSteady(t)
	kubelet.stop()
	must(t, m.hold(cached))
	if err := m.use(t.Context()); err != nil {
		t.Errorf("a token of %s before --finish: %v", bucketIssuer, err)
	}
	must(t, m.hold(kubelet.token()))
	working = keepTrying(t, m.use)
	m.finish(t)
	working.expectSteady(t)
	must(t, m.hold(cached))
	if err := m.use(t.Context()); err == nil || !strings.Contains(err.Error(), "No OpenIDConnect provider found in your account for "+bucketIssuer) {
		t.Errorf("a token of %s after --finish: %v", bucketIssuer, err)
	}
}

// serveBucket plays the public bucket that ccoctl fills: no caching headers, no content types.
func serveBucket(t *testing.T, ca *authority, key any) {
	t.Helper()
	addHost(t, "127.0.0.2", bucketHost)
	objects := map[string][]byte{}
	objects["/.well-known/openid-configuration"] = fmt.Appendf(nil, `{
	"issuer": "%s",
	"jwks_uri": "%s",
    "response_types_supported": ["id_token"],
    "subject_types_supported": ["public"],
    "id_token_signing_alg_values_supported": ["RS256"],
    "claims_supported": ["aud", "exp", "sub", "iat", "iss", "sub"]
}`, bucketIssuer, bucketIssuer+"/keys.json")
	der, err := x509.MarshalPKIXPublicKey(key)
	must(t, err)
	objects["/keys.json"], err = json.MarshalIndent(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{
		Use: "sig", KeyID: kidOfDER(der), Algorithm: "RS256", Key: key,
	}}}, "", "    ")
	must(t, err)
	certFile, keyFile := ca.issue(t, "storage", bucketHost)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	must(t, err)
	l, err := tls.Listen("tcp", "127.0.0.2:443", &tls.Config{Certificates: []tls.Certificate{pair}})
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, is := objects[r.URL.Path]
		w.Header().Set("Content-Type", "binary/octet-stream")
		if !is {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write(body)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

func kidOfDER(der []byte) string {
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// tokenFile is the file from which a workload reads its token.
type tokenFile string

func newTokenFile(t *testing.T) tokenFile { return tokenFile(filepath.Join(t.TempDir(), "token")) }

// hold puts a token there as the kubelet does: the file is never seen half written.
func (f tokenFile) hold(token string) error {
	if err := os.WriteFile(string(f)+".new", []byte(token), 0o600); err != nil {
		return err
	}
	return os.Rename(string(f)+".new", string(f))
}

// lasting runs something over and over until stop.
type lasting struct {
	cancel        context.CancelFunc
	done          chan struct{}
	tried, failed atomic.Int64
	failures      []error // valid once done is closed
}

// keepTrying begins, with 100 ms from one attempt to the next.
func keepTrying(t *testing.T, try func(context.Context) error) *lasting {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &lasting{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ; ctx.Err() == nil; <-tick.C {
			err := try(ctx)
			if ctx.Err() != nil {
				return
			}
			l.tried.Add(1)
			if err != nil {
				l.failed.Add(1)
				l.failures = append(l.failures, fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err))
			}
		}
	}()
	t.Cleanup(func() { l.stop() })
	return l
}

// stop ends it and says what failed.
func (l *lasting) stop() []error {
	l.cancel()
	<-l.done
	return l.failures
}

// expectSteady ends it, some more attempts later, and fails the test if it failed once.
func (l *lasting) expectSteady(t *testing.T) {
	t.Helper()
	enough := l.tried.Load() + 10
	await(t, "the workload goes on", func(context.Context) error {
		if n := l.tried.Load(); n < enough {
			return fmt.Errorf("%d attempts", n)
		}
		return nil
	})
	failures, tried := l.stop(), l.tried.Load()
	t.Logf("the workload went to its cloud %d times", tried)
	if len(failures) > 0 {
		t.Errorf("the workload failed %d times of %d, first with %v", len(failures), tried, failures[0])
	}
}

// kubelet stands for what renews the workload's token file: it asks one kube-apiserver after the other, and keeps the
// last token while none answers.
type kubelet struct {
	stop func()
	mu   sync.Mutex
	last string
}

func (m *move) startKubelet(t *testing.T) *kubelet {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	k, done := &kubelet{}, make(chan struct{})
	renew := func(i int) error {
		token, err := m.plane.mint(ctx, i%len(m.plane.hosts), 2*time.Hour, "openshift")
		if err != nil {
			return err
		}
		k.mu.Lock()
		k.last = token
		k.mu.Unlock()
		return m.hold(token)
	}
	must(t, renew(0))
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			_ = renew(i) // a kubelet keeps the token that it has
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	k.stop = func() { cancel(); <-done }
	t.Cleanup(k.stop)
	return k
}

func (k *kubelet) token() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

func (m *move) command(more ...string) []string {
	return append([]string{"aws", "migrate", "--from-issuer-url", bucketIssuer, "--issuer-url", newIssuer,
		"--kubeconfig", m.plane.kubeconfig}, more...)
}

func (m *move) keypost(t *testing.T, more ...string) result {
	t.Helper()
	return m.server.keypostAt(t, m.account.Env(), m.command(more...)...)
}

// begin publishes and gives trust; it is killed in the midst of it, once, and the next run completes it.
func (m *move) begin(t *testing.T) {
	before := m.keypost(t, "--diff")
	if before.code != 3 {
		t.Errorf("--diff: exit code %d\n%s%s", before.code, before.stdout, before.stderr)
	}
	m.killed(t)
	r := m.keypost(t)
	m.begun(t, before.stdout, r.ok(t))
	if again := m.keypost(t, "--diff"); again.code != 0 {
		t.Errorf("after it --diff still finds something: %d\n%s%s", again.code, again.stdout, again.stderr)
	}
	if early := m.keypost(t, "--finish"); early.code != 75 || !strings.Contains(early.stderr, "still signs as "+bucketIssuer) {
		t.Errorf("--finish before the switch: exit code %d\n%s", early.code, early.stderr)
	}
}

// killed starts a run and ends it with SIGKILL when the key set is stored.
func (m *move) killed(t *testing.T) {
	t.Helper()
	cmd := exec.Command(binary("keypost"), m.command()...)
	cmd.Env = append(os.Environ(), m.server.environ(m.account.Env())...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	await(t, "the key set is served", func(ctx context.Context) error {
		return expect(ctx, m.server.ca.client(), newIssuer+"/keys.json", "")
	})
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Errorf("it had ended already: %s", stderr.String())
	}
}

// halfSwitched: one kube-apiserver signs as the new issuer, one does not.
func (m *move) halfSwitched(t *testing.T) {
	m.plane.serve(t, 1, newIssuer, bucketIssuer)
	m.plane.listed(t, m.plane.hosts...)
	r := m.keypost(t, "--finish")
	if want := "the kube-apiserver at " + m.plane.at(0) + " still signs as " + bucketIssuer; r.code != 75 || !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, m.plane.at(1)) {
		t.Errorf("--finish: exit code %d, want 75 and %q\n%s", r.code, want, r.stderr)
	}
}

// switched: all sign as the new issuer, but a token of before may live for two hours and the clock skew.
func (m *move) switched(t *testing.T) {
	m.plane.serve(t, 0, newIssuer, bucketIssuer)
	m.plane.listed(t, m.plane.hosts...)
	from := time.Now()
	first := m.keypost(t, "--finish")
	_, rest, _ := strings.Cut(first.stderr, "possible from ")
	m.opens, _, _ = strings.Cut(rest, " ")
	opens, err := time.Parse(time.RFC3339, m.opens)
	if wait := opens.Sub(from); first.code != 75 || err != nil || wait < 2*time.Hour+6*time.Minute-2*time.Second || wait > 2*time.Hour+7*time.Minute || !strings.Contains(first.stderr, "default/app") {
		t.Errorf("--finish: exit code %d, opens in %v (%v), want 75 and 2h6m because of pod default/app\n%s", first.code, wait, err, first.stderr)
	}
	if again := m.keypost(t, "--finish"); again.code != 75 || !strings.Contains(again.stderr, "possible from "+m.opens) {
		t.Errorf("the second time: exit code %d, want 75 and the same time\n%s", again.code, again.stderr)
	}
}

// finish lets the time pass, by moving the note of it back, and takes the old trust away.
func (m *move) finish(t *testing.T) {
	m.switchedAt(t, time.Now().Add(-2*time.Hour-6*time.Minute-time.Second))
	if r := m.keypost(t, "--finish", "--diff"); r.code != 3 || !strings.Contains(r.stdout, bucketHost) {
		t.Errorf("--finish --diff: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	r := m.keypost(t, "--finish")
	r.ok(t)
	m.finished(t, r.stderr)
	m.keypost(t, "--finish").ok(t)
}
