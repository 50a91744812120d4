package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/keypost/keypost/test/authority"
)

// The orders themselves are tested with a CA of others' in test/e2e (TestACME…).

func TestACMEConfigErrors(t *testing.T) {
	dir := t.TempDir()
	open, group := filepath.Join(dir, "open"), filepath.Join(dir, "group")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Mkdir(group, 0o700), os.Chmod(open, 0o704), os.Chmod(group, 0o740)); err != nil {
		t.Fatal(err)
	}
	noKey, noCA := filepath.Join(dir, "hmac"), filepath.Join(dir, "ca.pem")
	writeFile(t, noKey, []byte("not base64 §"))
	writeFile(t, noCA, []byte("no PEM"))
	shortKey := filepath.Join(dir, "short")
	writeFile(t, shortKey, []byte("c2hvcnQ"))
	sound := ACMEConfig{Hosts: []string{"oidc.example.com"}, Cache: filepath.Join(dir, "cache")}
	if _, err := NewACME(sound); err != nil {
		t.Fatalf("a sound configuration: %v", err)
	}
	if _, err := os.Stat(sound.Cache); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("NewACME made the cache: %v", err)
	}
	for name, tt := range map[string]struct {
		change func(*ACMEConfig)
		want   string
	}{
		"no host":          {func(c *ACMEConfig) { c.Hosts = nil }, "1 to 20 host names, not 0"},
		"too many hosts":   {func(c *ACMEConfig) { c.Hosts = slices.Repeat(c.Hosts, 21) }, "not 21"},
		"wildcard":         {func(c *ACMEConfig) { c.Hosts = []string{"*.example.com"} }, "is a wildcard"},
		"address":          {func(c *ACMEConfig) { c.Hosts = []string{"192.0.2.1"} }, "is not a host name"},
		"no dot":           {func(c *ACMEConfig) { c.Hosts = []string{"localhost"} }, "is not a host name"},
		"a path":           {func(c *ACMEConfig) { c.Hosts = []string{"../x.example"} }, "is not a host name"},
		"a host twice":     {func(c *ACMEConfig) { c.Hosts = append(c.Hosts, c.Hosts...) }, "given twice"},
		"no cache":         {func(c *ACMEConfig) { c.Cache = "" }, "directory to keep certificates in"},
		"open cache":       {func(c *ACMEConfig) { c.Cache = open }, "run chmod 700 " + open},
		"group's cache":    {func(c *ACMEConfig) { c.Cache = group }, "run chmod 700 " + group},
		"HMAC key short":   {func(c *ACMEConfig) { c.KeyID, c.MACKeyFile = "k", shortKey }, "does not hold an HMAC key"},
		"cache is a file":  {func(c *ACMEConfig) { c.Cache = noKey }, "not a directory"},
		"directory http":   {func(c *ACMEConfig) { c.Directory = "http://ca.example/dir" }, "not an https URL"},
		"key ID alone":     {func(c *ACMEConfig) { c.KeyID = "k" }, "needs its key ID and the file"},
		"HMAC key broken":  {func(c *ACMEConfig) { c.KeyID, c.MACKeyFile = "k", noKey }, "does not hold an HMAC key"},
		"HMAC key missing": {func(c *ACMEConfig) { c.KeyID, c.MACKeyFile = "k", dir+"/none" }, "read the HMAC key"},
		"CA file broken":   {func(c *ACMEConfig) { c.CAFile = noCA }, "holds no PEM certificate"},
	} {
		c := sound
		tt.change(&c)
		if _, err := NewACME(c); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "§") {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
}

// The Manager of an order has what the CA is to be told, and its way to the CA the one challenge.
func TestManagerOfAnOrder(t *testing.T) {
	key := filepath.Join(t.TempDir(), "hmac")
	writeFile(t, key, []byte("MDEyMzQ1Njc4OWFiY2RlZg"))
	a, err := NewACME(ACMEConfig{
		Hosts: []string{"a.example.com"}, Cache: filepath.Join(t.TempDir(), "cache"), Directory: "https://ca.example/dir",
		Email: "ops@example.com", KeyID: "kid", MACKeyFile: key, HTTP01: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	m, way := a.order(a.cache, http01)
	if m.Email != "ops@example.com" || m.Client.DirectoryURL != "https://ca.example/dir" || m.Cache != a.cache {
		t.Errorf("email %q, directory %q, cache %v", m.Email, m.Client.DirectoryURL, m.Cache)
	}
	if b := m.ExternalAccountBinding; b == nil || b.KID != "kid" || string(b.Key) != "0123456789abcdef" {
		t.Errorf("external account %v", b)
	}
	if way.Challenge != http01 || m.Client.HTTPClient.Transport != way || time.Until(way.Until) > orderTime {
		t.Errorf("its way to the CA: %+v", way)
	}
}

func TestRenewAt(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, life := range []time.Duration{6 * 24 * time.Hour, 47 * 24 * time.Hour, 90 * 24 * time.Hour, 365 * 24 * time.Hour} {
		until := from.Add(life)
		third := min(life/3, 30*24*time.Hour)
		seen := map[time.Time]bool{}
		for _, host := range []string{"a.example.com", "b.example.com", "c.example.com"} {
			at := renewAt(host, from, until)
			if left := until.Sub(at); left < third || left > third+third/10 {
				t.Errorf("life %v: renewed with %v left, want %v and up to a tenth more", life, left, third)
			}
			if at != renewAt(host, from, until) {
				t.Error("two replicas would renew at different times")
			}
			seen[at] = true
		}
		if len(seen) < 3 {
			t.Errorf("life %v: hosts are renewed at the same time", life)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	var within time.Duration
	tries := 1 // the first order
	for failures := 1; failures < 100; failures++ {
		wait := retryAfter(failures, 0)
		if wait < firstRetry || wait > lastRetry {
			t.Fatalf("after %d failures: %v", failures, wait)
		}
		if within += wait; within <= time.Hour {
			tries++
		}
	}
	if tries > 5 {
		t.Errorf("%d orders in the first hour; Let's Encrypt takes 5 that fail", tries)
	}
	for asked, want := range map[time.Duration]time.Duration{3 * time.Hour: 3 * time.Hour, 365 * 24 * time.Hour: longestWait} {
		if got := retryAfter(1, asked); got != want {
			t.Errorf("the CA asked for %v, and gets %v, want %v", asked, got, want)
		}
	}
}

func TestACMEHandshakes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	a, err := NewACME(ACMEConfig{Hosts: []string{"a.example.com", "b.example.com"}, Cache: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Prepare(); err != nil {
		t.Fatal(err)
	}
	hello := func(name string, protocols ...string) *tls.ClientHelloInfo {
		return &tls.ClientHelloInfo{ServerName: name, SupportedProtos: protocols, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}
	}
	mixed := func(when string) {
		t.Helper()
		for _, h := range []*tls.ClientHelloInfo{
			hello("", "acme-tls/1"), hello("", "h2", "acme-tls/1"), hello("a.example.com", "acme-tls/1", "h2"), hello("A.example.com", "h2", "http/1.1", "acme-tls/1"),
		} {
			if _, err := a.choose(h); !errors.Is(err, errMixed) { // any other error comes from further on
				t.Errorf("%s, %q %v: %v", when, h.ServerName, h.SupportedProtos, err)
			}
		}
		if _, err := a.choose(hello("a.example.com", "acme-tls/1")); err == nil || !strings.Contains(err.Error(), "no token cert") {
			t.Errorf("%s, a challenge of no order: %v", when, err)
		}
		// Even the Manager itself, asked for what is no challenge, reaches no CA and leaves nothing behind.
		if _, err := a.answers.GetCertificate(hello("a.example.com", "h2")); when == "without a certificate" && !errors.Is(err, errOnlyWatch) {
			t.Errorf("%s, the Manager: %v", when, err)
		}
		if account, err := filepath.Glob(filepath.Join(a.dir, "acme_account*")); err != nil || len(account) != 0 {
			t.Errorf("%s: a handshake made the account %v, %v", when, account, err)
		}
	}
	for _, h := range []*tls.ClientHelloInfo{hello("a.example.com"), hello(""), hello("x.example.com")} {
		if c, err := a.choose(h); err == nil {
			t.Errorf("%q %v: %v without a certificate", h.ServerName, h.SupportedProtos, c)
		}
	}
	mixed("without a certificate")
	if _, err := a.answers.Client.HTTPClient.Get("https://127.0.0.1:1/dir"); !errors.Is(err, errOnlyWatch) {
		t.Errorf("the transport of the Manager that answers: %v", err)
	}
	root := authority.Named(t, "root", nil)
	leaf := root.Leaf(t, "a.example.com")
	writeFile(t, filepath.Join(a.dir, "a.example.com"), append(leaf.KeyPEM(t), authority.ChainPEM(leaf, root)...))
	writeFile(t, filepath.Join(a.dir, "b.example.com"), append(leaf.KeyPEM(t), authority.ChainPEM(leaf, root)...)) // for another name
	if !a.reload(0, time.Now()) || a.reload(0, time.Now()) || a.reload(1, time.Now()) {
		t.Error("reload takes a certificate once, and only for its own name")
	}
	for _, h := range []*tls.ClientHelloInfo{hello("a.example.com"), hello("A.Example.Com", "h2"), hello("")} {
		if c, err := a.choose(h); err != nil || !c.Leaf.Equal(leaf.Cert) {
			t.Errorf("%q: %v", h.ServerName, err)
		}
	}
	mixed("with a certificate")
	if _, err := a.choose(hello("x.example.com")); err == nil {
		t.Error("a name that is not listed is served")
	}
	if got := a.TLSConfig().NextProtos; !slices.Equal(got, []string{"acme-tls/1"}) {
		t.Errorf("protocols %v; the CA's challenge is not agreed on", got)
	}
}

// That there is space is proved before the CA is asked, and the proof leaves nothing behind.
func TestNoOrderWithoutSpace(t *testing.T) {
	a, err := NewACME(ACMEConfig{Hosts: []string{"a.example.com"}, Cache: filepath.Join(t.TempDir(), "cache"), Directory: "https://127.0.0.1:1/dir"})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Prepare(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.renew(t.Context(), 0, attempts{}, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("with space: %v, want that the CA was asked", err)
	}
	if _, err := os.Stat(filepath.Join(a.dir, ".space")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it leaves something behind: %v", err)
	}
}

func TestChallenges(t *testing.T) {
	a, err := NewACME(ACMEConfig{Hosts: []string{"a.example.com"}, Cache: filepath.Join(t.TempDir(), "cache"), HTTP01: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Prepare(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(a.dir, "token+http-01"), []byte("answer"))
	writeFile(t, filepath.Join(a.dir, "acme_account+key"), []byte("secret"))
	for _, tt := range []struct {
		method, target string
		code           int
	}{
		{"GET", "http://a.example.com/.well-known/acme-challenge/token", 200},
		{"GET", "http://a.example.com:80/.well-known/acme-challenge/token", 200},
		{"HEAD", "http://a.example.com/.well-known/acme-challenge/token", 200},
		{"POST", "http://a.example.com/.well-known/acme-challenge/token", 405},
		{"GET", "http://x.example.com/.well-known/acme-challenge/token", 403},
		{"GET", "http://a.example.com/.well-known/acme-challenge/acme_account+key", 404},
		{"GET", "http://a.example.com/.well-known/acme-challenge/" + strings.Repeat("x", 300), 404},
		{"GET", "http://a.example.com/.well-known/acme-challenge/../a.example.com", 404},
		{"GET", "http://a.example.com/prod/keys.json", 404},
	} {
		w := httptest.NewRecorder()
		a.Challenges().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, tt.target, http.NoBody))
		body := w.Body.String()
		if w.Code != tt.code || strings.Contains(body, "secret") || strings.Contains(body, a.dir) || w.Header().Get("Location") != "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s %.80s: %d %q, want %d", tt.method, tt.target, w.Code, body, tt.code)
		}
	}
	reg := prometheus.NewRegistry()
	const counted = `# HELP keypost_tls_challenge_requests_total Requests to the listener for challenges http-01, by outcome: answered, unknown (no such challenge) or other (whatever is no challenge for a host of this server).
# TYPE keypost_tls_challenge_requests_total counter
keypost_tls_challenge_requests_total{outcome="answered"} 3
keypost_tls_challenge_requests_total{outcome="other"} 3
keypost_tls_challenge_requests_total{outcome="unknown"} 3
`
	if err := errors.Join(reg.Register(a), testutil.GatherAndCompare(reg, strings.NewReader(counted), "keypost_tls_challenge_requests_total")); err != nil {
		t.Error(err)
	}
}

// TestFollow holds the schedule of orders; the CA's part, which other tests have for real, is played.
func TestFollow(t *testing.T) {
	root := authority.Named(t, "root", nil)
	synctest.Test(t, func(t *testing.T) {
		a, err := NewACME(ACMEConfig{Hosts: []string{"a.example.com"}, Cache: filepath.Join(t.TempDir(), "cache")})
		if err == nil {
			err = a.Prepare()
		}
		if err != nil {
			t.Fatal(err)
		}
		took := func(life time.Duration) { // somebody has ordered a certificate
			now := time.Now()
			leaf := authority.Certify(t, root, &x509.Certificate{DNSNames: []string{"a.example.com"}, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(life)})
			writeFile(t, filepath.Join(a.dir, "a.example.com"), append(leaf.KeyPEM(t), authority.ChainPEM(leaf)...))
		}
		began := time.Now()
		var mu sync.Mutex // of the three
		var orders []time.Duration
		answer := func() (time.Duration, error) { return 0, errors.New("no") }
		from := func(next func() (time.Duration, error)) {
			mu.Lock()
			defer mu.Unlock()
			began, orders, answer = time.Now(), nil, next
		}
		a.ask = func(int, string) (time.Duration, error) {
			mu.Lock()
			defer mu.Unlock()
			orders = append(orders, time.Since(began).Round(time.Minute))
			return answer()
		}
		expect := func(what string, minutes ...time.Duration) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			for i := range minutes {
				minutes[i] *= time.Minute
			}
			if !slices.Equal(orders, minutes) {
				t.Errorf("%s: orders after %v, want %v", what, orders, minutes)
			}
			began, orders = time.Now(), nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); a.follow(ctx, 0, zap.NewNop()) }()
		time.Sleep(5*time.Hour + 10*time.Second)
		expect("each one fails", 0, 2, 6, 14, 30, 62, 122, 182, 242)

		from(func() (time.Duration, error) { return 3 * time.Hour, errors.New("rate limited") })
		time.Sleep(4*time.Hour - time.Minute)
		expect("the CA asks for 3 hours", 2, 182)

		took(6 * 24 * time.Hour) // by another replica
		time.Sleep(2 * time.Minute)
		expect("another replica has ordered")
		if a.failing[0].Load() {
			t.Error("the latest order counts as failed although there is a new certificate")
		}
		time.Sleep(3 * 24 * time.Hour)
		expect("before it is due")

		from(func() (time.Duration, error) { return 0, errors.New("no") })
		time.Sleep(24 * time.Hour)
		mu.Lock()
		if len(orders) < 3 || orders[1]-orders[0] != 2*time.Minute || orders[2]-orders[1] != 4*time.Minute {
			t.Errorf("orders of a later failure: %v; the waits begin with 2 minutes again", orders)
		}
		mu.Unlock()
		from(func() (time.Duration, error) {
			took(6 * 24 * time.Hour)
			a.reload(0, time.Now())
			return 0, nil
		})
		time.Sleep(2 * time.Hour)
		from(func() (time.Duration, error) { return 0, errors.New("no") })
		time.Sleep(5 * 24 * time.Hour)
		mu.Lock()
		if len(orders) < 2 || orders[1]-orders[0] != 2*time.Minute {
			t.Errorf("orders of a failure after a success: %v; the waits begin with 2 minutes again", orders)
		}
		mu.Unlock()
		cancel()
		<-done
	})
}

func TestPause(t *testing.T) {
	a, err := NewACME(ACMEConfig{Hosts: []string{"a.example.com"}, Cache: filepath.Join(t.TempDir(), "cache")})
	if err != nil {
		t.Fatal(err)
	}
	for next, want := range map[time.Duration]time.Duration{0: time.Second, 30 * time.Second: 30 * time.Second, time.Hour: lookEvery} {
		if got := a.pause(0, time.Now().Add(next)).Round(time.Second); got != want {
			t.Errorf("without a certificate, the next order in %v: %v, want %v", next, got, want)
		}
	}
}

// The lock is free once its holder has ended, and one who waits gives up with its context.
func TestACMELock(t *testing.T) {
	c := ACMEConfig{Hosts: []string{"a.example.com"}, Cache: filepath.Join(t.TempDir(), "cache")}
	a, err := NewACME(c)
	if err == nil {
		err = a.Prepare()
	}
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := a.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := a.lock(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two have the lock: %v", err)
	}
	unlock()
	if unlock, err = a.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	unlock()
}
