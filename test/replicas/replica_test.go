//go:build e2e_full

package replicas

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const host = "oidc.example.com"

// replica is a pod: keypost mirror and keypostd, with a volume between them.
type replica struct {
	t                       *testing.T
	b                       *backend
	volume, config          string
	public, admin, mirrorAt string
	mirror, server          *process
	mirrorLog, serverLog    *logBuffer
	ready                   atomic.Bool // what the balancer knows
	programs                string      // the directory with keypost and keypostd of its version
	serving                 atomic.Bool // somebody may get an answer, or will: also while it starts or drains
	killed                  atomic.Int64
	client                  *http.Client // of this replica alone
}

func newReplica(t *testing.T, b *backend, ca *authority) *replica {
	t.Helper()
	dir := t.TempDir()
	r := &replica{
		t: t, b: b, programs: binaries, volume: filepath.Join(dir, "volume"), config: filepath.Join(dir, "keypostd.yaml"),
		public: freeAddress(t), admin: freeAddress(t), mirrorAt: freeAddress(t), mirrorLog: &logBuffer{}, serverLog: &logBuffer{},
	}
	r.client = ca.client(r.public)
	ca.issue(t, dir, host)
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
	r.mirror = start(r.t, r.mirrorLog, r.b.env, filepath.Join(r.programs, "keypost"), "mirror", "--store", r.b.url, "--poll", r.b.poll.String(),
		"--issuer-url", "https://"+host+"/{name}", "--admin-address", r.mirrorAt, r.volume)
	await(r.t, "the mirror is ready", func() error { return answers(http.DefaultClient, "http://"+r.mirrorAt+"/readyz", "") })
	r.server = start(r.t, r.serverLog, nil, filepath.Join(r.programs, "keypostd"), "--config", r.config)
	await(r.t, "keypostd is ready", func() error {
		if !r.ready.Load() {
			return errors.New("not yet")
		}
		return nil
	})
}

// stop ends the pod in order.
func (r *replica) stop() {
	r.t.Helper()
	r.server.stop(r.t)
	r.serving.Store(false)
	r.ready.Store(false)
	r.mirror.stop(r.t)
}

// kill ends the pod as the kernel does when memory is short.
func (r *replica) kill() {
	r.killed.Store(time.Now().UnixNano())
	_ = r.server.cmd.Process.Signal(syscall.SIGKILL)
	_ = r.mirror.cmd.Process.Signal(syscall.SIGKILL)
	<-r.server.done
	<-r.mirror.done
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
		r.ready.Store(answers(c, "http://"+r.admin+"/readyz", "") == nil)
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

// recentlyKilled tells that connections may have been cut without anybody's fault.
func (b *balancer) recentlyKilled() bool {
	for _, r := range b.replicas {
		if time.Since(time.Unix(0, r.killed.Load())) < 5*time.Second {
			return true
		}
	}
	return false
}

// authority is a CA that the clients trust.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "replicas test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return &authority{cert, key}
}

// issue writes tls.crt, tls.key and ca.pem into dir.
func (a *authority) issue(t *testing.T, dir, host string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(23 * time.Hour),
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: private}, "ca.pem": {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}

// client trusts the authority and, when address is not empty, finds every host there.
func (a *authority) client(address string) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	if address != "" {
		tr.DialContext = dialer(address)
	}
	return &http.Client{Transport: tr, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
