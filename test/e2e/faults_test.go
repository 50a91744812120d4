//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	programs "github.com/keypost/keypost/test/process"
)

const (
	faultsHost = "oidc.keypost.test"
	faultsURL  = "https://" + faultsHost + "/prod-a"
)

// faultScene is an issuer with a token of it, on servers that get into trouble while relying parties verify that token.
type faultScene struct {
	ca    *authority
	store string // directory
	key   signingKey
	token string
}

func newFaultScene(t *testing.T) *faultScene {
	t.Helper()
	s := &faultScene{ca: newAuthority(t), store: t.TempDir(), key: generateSigningKey(t, "p256")}
	s.keypost(t, "issuer", "add", "prod-a", "--url", faultsURL, "--public-key-file", s.key.public).ok(t)
	s.token = mintWith(s.key, faultsURL, 10*time.Minute).text
	return s
}

func (s *faultScene) keypost(t *testing.T, args ...string) result {
	t.Helper()
	return command(t, nil, "", binary("keypost"), append([]string{"--store", "file://" + s.store}, args...)...)
}

// times returns how often something happens: more often in make e2e-full.
func (s *faultScene) times(short, long int) int {
	if full {
		return long
	}
	return short
}

// replica is one keypostd of the scene.
type replica struct {
	*process
	name, config, address, admin string
	within                       []string // a command that starts it
}

// faultServer is what differs between the replicas.
type faultServer struct {
	address, dir string // dir: default the scene's store
	drain        string // drainDelay; default 1s
	within       []string
}

func (s *faultScene) replica(t *testing.T, o faultServer) *replica {
	t.Helper()
	r := &replica{name: "keypostd-" + strings.ReplaceAll(o.address, ":", "-"), address: o.address, within: o.within}
	r.admin = programs.FreeAddress(t)
	cert, key := s.ca.issue(t, r.name, faultsHost)
	r.config = filepath.Join(t.TempDir(), "keypostd.yaml")
	must(t, os.WriteFile(r.config, fmt.Appendf(nil, `dir: %q
issuerURLs: ["https://oidc.keypost.test/{name}"]
listen:
  address: %q
  drainDelay: %s
  tls: {files: [{cert: %q, key: %q}]}
admin: {address: %q}
poll: 1s
`, cmp.Or(o.dir, s.store), o.address, cmp.Or(o.drain, "1s"), cert, key, r.admin), 0o600))
	r.up(t)
	return r
}

func (r *replica) up(t *testing.T) {
	t.Helper()
	args := append(append([]string{}, r.within...), binary("keypostd"), "--config", r.config)
	r.process = start(t, r.name, args[0], args[1:]...)
	r.await(t, "ready", r.ready)
}

func (r *replica) ready(ctx context.Context) error {
	return expect(ctx, http.DefaultClient, "http://"+r.admin+"/readyz", "")
}

// balance runs haproxy on port 443, which sends connections to the replicas whose /readyz answers.
func (s *faultScene) balance(t *testing.T, replicas ...*replica) {
	t.Helper()
	var b strings.Builder
	b.WriteString("defaults\n  mode tcp\n  timeout connect 1s\n  timeout client 1m\n  timeout server 1m\n  option redispatch 1\n  retries 3\n" +
		"frontend public\n  bind 127.0.0.1:443\n  default_backend replicas\nbackend replicas\n  option httpchk GET /readyz\n  default-server inter 200ms fall 1 rise 1\n")
	for i, r := range replicas {
		_, port, err := net.SplitHostPort(r.admin)
		must(t, err)
		fmt.Fprintf(&b, "  server replica%d %s check port %s\n", i, r.address, port)
	}
	config := filepath.Join(t.TempDir(), "haproxy.cfg")
	must(t, os.WriteFile(config, []byte(b.String()), 0o600))
	start(t, "haproxy", "haproxy", "-db", "-f", config)
	await(t, "the balancer", func(ctx context.Context) error { return verifyGo(ctx, s.ca.client(), faultsURL, s.token) })
}

// verifying counts what relying parties see. Each verification fetches discovery document and JWKS and checks the token, all
// within the 5 s that AWS STS takes.
type verifying struct {
	stop func()
	done sync.WaitGroup

	mu         sync.Mutex
	verified   int
	failed     int
	first      error         // of those that failed
	slowest    time.Duration // verification that did not fail
	pause      time.Duration // the longest one without a verification
	last       time.Time     // verification
	lastFailed time.Time
}

// verify begins to verify: on new connections and on kept ones, with HTTP/1.1 and HTTP/2.
func (s *faultScene) verify(t *testing.T) *verifying {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	v := &verifying{stop: cancel, last: time.Now()}
	for i := range 8 {
		c := s.ca.client()
		transport := c.Transport.(*http.Transport)
		transport.DisableKeepAlives = i%2 == 0
		transport.ForceAttemptHTTP2 = i%4 < 2
		if i%4 >= 2 {
			transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
			transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		}
		v.done.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
				v.note(began, verifyGo(within, c, faultsURL, s.token))
				cancel()
				time.Sleep(10 * time.Millisecond)
			}
			transport.CloseIdleConnections()
		})
	}
	t.Cleanup(v.end)
	time.Sleep(300 * time.Millisecond)
	return v
}

func (v *verifying) note(began time.Time, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if err != nil {
		if v.failed++; v.first == nil {
			v.first = err
		}
		v.lastFailed = now
		return
	}
	v.verified++
	v.slowest = max(v.slowest, now.Sub(began))
	v.pause = max(v.pause, now.Sub(v.last))
	v.last = now
}

func (v *verifying) end() {
	v.stop()
	v.done.Wait()
}

// row ends the verifications and prints the figures as a line of the table in issuer/listen/README.md.
func (v *verifying) row(t *testing.T, fault, more string) {
	t.Helper()
	v.end()
	t.Logf("| %s | %d | %d | %d ms | %d ms | %s |", fault, v.verified+v.failed, v.failed, v.slowest.Milliseconds(), v.pause.Milliseconds(), more)
	if v.first != nil {
		t.Logf("the first that failed: %v", v.first)
	}
	if v.verified < 50 {
		t.Errorf("only %d verifications: that proves nothing", v.verified)
	}
}

// none fails the test when a verification has failed.
func (v *verifying) none(t *testing.T) {
	t.Helper()
	if v.failed > 0 {
		t.Errorf("%d of %d verifications failed, the first: %v", v.failed, v.verified+v.failed, v.first)
	}
}

// Replicas are replaced one after the other behind a balancer that asks for readiness: nobody notices. On a busy machine the
// balancer may notice late that one is not ready, and what it sends to a socket that has been closed is lost: so drainDelay is
// fifteen of its intervals.
func TestFaultSIGTERM(t *testing.T) {
	s := newFaultScene(t)
	replicas := []*replica{s.replica(t, faultServer{address: "127.0.0.1:8443", drain: "3s"}), s.replica(t, faultServer{address: "127.0.0.1:8444", drain: "3s"})}
	s.balance(t, replicas...)
	v := s.verify(t)
	rounds := s.times(1, 10)
	for range rounds {
		for _, r := range replicas {
			if code := r.stop(t, 30*time.Second); code != 0 {
				t.Errorf("exit code %d after SIGTERM", code)
			}
			r.up(t)
			time.Sleep(600 * time.Millisecond) // until the balancer has seen it
		}
	}
	v.row(t, fmt.Sprintf("SIGTERM, %d times, of one of two behind a balancer", 2*rounds), "each ended with exit code 0")
	v.none(t)
}

// A server that is killed takes with it what was on its way. Behind a balancer the others serve; by itself it is back as soon as it
// has read its directory.
func TestFaultSIGKILL(t *testing.T) {
	s := newFaultScene(t)
	t.Run("behind a balancer", func(t *testing.T) {
		replicas := []*replica{s.replica(t, faultServer{address: "127.0.0.1:8443"}), s.replica(t, faultServer{address: "127.0.0.1:8444"})}
		s.balance(t, replicas...)
		v := s.verify(t)
		kills := s.times(2, 20)
		for i := range kills {
			r := replicas[i%2]
			r.Kill()
			time.Sleep(500 * time.Millisecond)
			r.up(t)
			time.Sleep(600 * time.Millisecond)
		}
		v.row(t, fmt.Sprintf("SIGKILL, %d times, of one of two behind a balancer", kills), fmt.Sprintf("%.1f failed for each kill", float64(v.failed)/float64(kills)))
		if v.failed > 8*kills || v.pause > 2*time.Second { // each of eight had one on its way
			t.Errorf("%d failed in %d kills, for %v nobody was answered", v.failed, kills, v.pause)
		}
	})
	t.Run("alone", func(t *testing.T) {
		r := s.replica(t, faultServer{address: "127.0.0.1:443"})
		v := s.verify(t)
		kills := s.times(2, 10)
		for range kills {
			r.Kill()
			r.up(t)
			time.Sleep(time.Second)
		}
		v.row(t, fmt.Sprintf("SIGKILL, %d times, alone, started again at once", kills), "served again after the longest pause")
		if v.pause > 10*time.Second {
			t.Errorf("for %v nobody was answered", v.pause)
		}
	})
}

// smallDisk is a file system of its own for a directory.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	must(t, unix.Mount("small", dir, "tmpfs", 0, "size=128k,mode=0755"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// fillDisk takes all the space there is on the disk of a directory. The function that it returns gives it back.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, ".fill"))
	must(t, err)
	defer f.Close()
	for _, chunk := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, chunk))
		}
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		t.Fatal(err)
	}
	return func() { must(t, os.Remove(f.Name())) }
}

// writerOnFullDisk changes a key set in a store without space.
func (s *faultScene) writerOnFullDisk(t *testing.T) {
	t.Helper()
	store := t.TempDir()
	smallDisk(t, store)
	command(t, nil, "", "cp", filepath.Join(s.store, "prod-a.yaml"), store).ok(t)
	before := read(t, filepath.Join(store, "prod-a.yaml"))
	fillDisk(t, store)
	if r := command(t, nil, "", binary("keypost"), "--store", "file://"+store, "issuer", "set", "prod-a", "--max-age", "10m"); r.code == 0 || !strings.Contains(r.stderr, "no space left") {
		t.Errorf("writing to a full disk: exit code %d, %s", r.code, r.stderr)
	}
	if after, err := os.ReadFile(filepath.Join(store, "prod-a.yaml")); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the key set after a write to a full disk: %v\n%s", err, after)
	}
}

// The disk of the key sets is full: a writer says so and leaves the last good version. In the directory of a mirror what was served
// stays served, the mirror says why, and once there is space again the change arrives.
func TestFaultDiskFull(t *testing.T) {
	s := newFaultScene(t)
	s.writerOnFullDisk(t)
	small := t.TempDir()
	smallDisk(t, small)
	copied := start(t, "mirror", binary("keypost"), "mirror", "--store", "file://"+s.store, "--poll", "1s", small)
	copied.await(t, "done", func(context.Context) error {
		_, err := os.Stat(filepath.Join(small, "prod-a.yaml"))
		return err
	})
	s.replica(t, faultServer{address: "127.0.0.1:443", dir: small})
	v := s.verify(t)
	next := generateSigningKey(t, "p256")
	free := fillDisk(t, small)
	s.keypost(t, "key", "add", "prod-a", "--public-key-file", next.public).ok(t) // into the source, whose disk has space
	copied.await(t, "in trouble", func(context.Context) error {
		if text, err := os.ReadFile(copied.log); err != nil || !strings.Contains(string(text), "no space left") {
			return fmt.Errorf("it says nothing: %w", err)
		}
		return nil
	})
	time.Sleep(time.Duration(s.times(2, 20)) * time.Second)
	if keys := string(get(t, s.ca.client(), faultsURL+"/keys.json")); strings.Contains(keys, next.kid) || !strings.Contains(keys, s.key.kid) {
		t.Errorf("served with a full disk: %s", keys)
	}
	free()
	freed := time.Now()
	await(t, "the next key", func(context.Context) error {
		if keys := string(get(t, s.ca.client(), faultsURL+"/keys.json")); !strings.Contains(keys, next.kid) {
			return fmt.Errorf("%s", keys)
		}
		return nil
	})
	v.row(t, "disk of the mirror's directory full", fmt.Sprintf("the change that waited was served %d ms after there was space", time.Since(freed).Milliseconds()))
	v.none(t)
}
