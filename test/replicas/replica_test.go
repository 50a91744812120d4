//go:build e2e_full

package replicas

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/process"
)

const host = "oidc.example.com"

// replica is a pod: keypost mirror and keypostd, with a volume between them.
type replica struct {
	t                       *testing.T
	b                       *backend
	volume, config          string
	public, admin, mirrorAt string
	mirror, server          *process.Process
	ready                   atomic.Bool // what the balancer knows
	programs                string      // the directory with keypost and keypostd of its version
	serving                 atomic.Bool // somebody may get an answer, or will: also while it starts or drains
	killed                  atomic.Int64
	client                  *http.Client // of this replica only
}

func newReplica(t *testing.T, b *backend, ca *authority.Authority) *replica {
	t.Helper()
	dir := t.TempDir()
	r := &replica{
		t: t, b: b, programs: binaries, volume: filepath.Join(dir, "volume"), config: filepath.Join(dir, "keypostd.yaml"),
		public: process.FreeAddress(t), admin: process.FreeAddress(t), mirrorAt: process.FreeAddress(t),
	}
	r.client = clientOf(ca, r.public)
	ca.Issue(t, dir, host)
	must(t, os.Mkdir(r.volume, 0o755))
	must(t, os.WriteFile(r.config, fmt.Appendf(nil, `dir: %s
issuerURLs: ["https://%s/{name}"]
listen:
  address: %q
  drainDelay: 2s
  tls: {mode: files, files: [{cert: %s, key: %s}]}
admin: {address: %q}
`, r.volume, host, r.public, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), r.admin), 0o600))
	return r
}

// start starts the pod as kubelet does: keypostd once the mirror beside it says that it is ready.
func (r *replica) start() {
	r.t.Helper()
	r.serving.Store(true) // what the mirror reads now is what keypostd will serve
	r.mirror = start(r.t, nil, filepath.Join(r.programs, "keypost"), "mirror", "--store", r.b.url, "--poll", r.b.poll.String(),
		"--issuer-url", "https://"+host+"/{name}", "--admin-address", r.mirrorAt, r.volume)
	process.Await(r.t, "the mirror is ready", func() error { return process.Answers(http.DefaultClient, "http://"+r.mirrorAt+"/readyz", "") })
	r.server = start(r.t, nil, filepath.Join(r.programs, "keypostd"), "--config", r.config)
	process.Await(r.t, "keypostd is ready", func() error {
		if !r.ready.Load() {
			return errors.New("not yet")
		}
		return nil
	})
}

// stop ends the pod in order.
func (r *replica) stop() {
	r.t.Helper()
	stop(r.t, "keypostd", r.server)
	r.serving.Store(false)
	r.ready.Store(false)
	stop(r.t, "keypost mirror", r.mirror)
}

// kill ends the pod as the kernel does when memory is short.
func (r *replica) kill() {
	r.killed.Store(time.Now().UnixNano())
	r.server.Kill()
	r.mirror.Kill()
	r.serving.Store(false)
	r.ready.Store(false)
	r.killed.Store(time.Now().UnixNano())
}

// loseVolume is what happens to an emptyDir when its pod is deleted.
func (r *replica) loseVolume() {
	r.t.Helper()
	must(r.t, os.RemoveAll(r.volume))
	must(r.t, os.Mkdir(r.volume, 0o755))
}

// report is what the admin listener tells of every key set.
func (r *replica) report() (map[string]int64, error) {
	resp, err := http.Get("http://" + r.admin + "/issuers")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var report struct {
		Issuers []struct {
			Name       string `json:"name"`
			Generation int64  `json:"generation"`
			Rejected   string `json:"rejected"`
		} `json:"issuers"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&report); err != nil {
		return nil, err
	}
	generations := map[string]int64{}
	for _, i := range report.Issuers {
		if i.Rejected != "" {
			return nil, fmt.Errorf("%s is rejected: %s", i.Name, i.Rejected)
		}
		generations[i.Name] = i.Generation
	}
	return generations, nil
}

// balancer passes connections to replicas that are ready, as a Service does.
type balancer struct {
	listener net.Listener
	replicas []*replica
	next     atomic.Int64
	stopped  chan struct{}
	done     sync.WaitGroup
}

// probeEvery is how often readiness is asked for.
const probeEvery = 100 * time.Millisecond

func newBalancer(t *testing.T, replicas []*replica) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b := &balancer{listener: l, replicas: replicas, stopped: make(chan struct{})}
	for _, r := range replicas {
		b.done.Go(func() { b.probe(r) })
	}
	go b.accept()
	t.Cleanup(func() {
		close(b.stopped)
		_ = l.Close()
		b.done.Wait()
	})
	return b
}

func (b *balancer) probe(r *replica) {
	c := &http.Client{Timeout: time.Second}
	for {
		r.ready.Store(process.Answers(c, "http://"+r.admin+"/readyz", "") == nil)
		select {
		case <-b.stopped:
			return
		case <-time.After(probeEvery):
		}
	}
}

func (b *balancer) accept() {
	for {
		in, err := b.listener.Accept()
		if err != nil {
			return
		}
		go b.pass(in)
	}
}

func (b *balancer) pass(in net.Conn) {
	defer in.Close()
	out := b.dial()
	if out == nil {
		return
	}
	defer out.Close()
	go func() {
		_, _ = io.Copy(out, in)
		_ = out.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(in, out)
}

func (b *balancer) dial() net.Conn {
	for range 2 * len(b.replicas) {
		r := b.replicas[int(b.next.Add(1))%len(b.replicas)]
		if !r.ready.Load() {
			continue
		}
		if out, err := net.DialTimeout("tcp", r.public, time.Second); err == nil {
			return out
		}
	}
	return nil
}

// recentlyKilled reports whether connections may have been cut without anybody's fault.
func (b *balancer) recentlyKilled() bool {
	for _, r := range b.replicas {
		if time.Since(time.Unix(0, r.killed.Load())) < 5*time.Second {
			return true
		}
	}
	return false
}

// clientOf returns a client that trusts the authority and, when address is not empty, finds every host there.
func clientOf(ca *authority.Authority, address string) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: true}
	if address != "" {
		tr.DialContext = dialer(address)
	}
	return &http.Client{Transport: tr, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
