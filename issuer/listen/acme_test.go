package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
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

	"go.uber.org/zap"
	"golang.org/x/crypto/acme/autocert"
)

// The orders themselves are tested with a CA of others' in test/e2e (TestACME…).

func TestACMEConfigErrors(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	noKey, noCA := filepath.Join(dir, "hmac"), filepath.Join(dir, "ca.pem")
	writeFile(t, noKey, []byte("not base64 §"))
	writeFile(t, noCA, []byte("no PEM"))
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
	if got := retryAfter(1, 3*time.Hour); got != 3*time.Hour {
		t.Errorf("the CA asked for 3h, and gets %v", got)
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
	for _, h := range []*tls.ClientHelloInfo{
		hello("a.example.com"), hello(""), hello("x.example.com"), hello("a.example.com", "acme-tls/1"), hello("", "acme-tls/1"),
		hello("a.example.com", "acme-tls/1", "h2"),
	} {
		if c, err := a.choose(h); err == nil {
			t.Errorf("%q %v: %v without a certificate", h.ServerName, h.SupportedProtos, c)
		}
	}
	root := newAuthority(t, "root", nil)
	leaf := root.leaf(t, "a.example.com")
	writeFile(t, filepath.Join(a.dir, "a.example.com"), append(leaf.keyPEM(t), chainPEM(leaf, root)...))
	writeFile(t, filepath.Join(a.dir, "b.example.com"), append(leaf.keyPEM(t), chainPEM(leaf, root)...)) // for another name
	if !a.reload(0, time.Now()) || a.reload(0, time.Now()) || a.reload(1, time.Now()) {
		t.Error("reload takes a certificate once, and only for its own name")
	}
	for _, h := range []*tls.ClientHelloInfo{hello("a.example.com"), hello("A.Example.Com", "h2"), hello("")} {
		if c, err := a.choose(h); err != nil || !c.Leaf.Equal(leaf.cert) {
			t.Errorf("%q: %v", h.ServerName, err)
		}
	}
	if _, err := a.choose(hello("x.example.com")); err == nil {
		t.Error("a name that is not listed is served")
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
		if w.Code != tt.code || strings.Contains(body, "secret") || strings.Contains(body, a.dir) || w.Header().Get("Location") != "" {
			t.Errorf("%s %.80s: %d %q, want %d", tt.method, tt.target, w.Code, body, tt.code)
		}
	}
}

func TestOrderCache(t *testing.T) {
	ctx := context.Background()
	dir := autocert.DirCache(t.TempDir())
	if err := errors.Join(dir.Put(ctx, "host", []byte("old")), dir.Put(ctx, "acme_account+key", []byte("account"))); err != nil {
		t.Fatal(err)
	}
	c := &orderCache{Cache: dir, host: "host"}
	if _, err := c.Get(ctx, "host"); !errors.Is(err, autocert.ErrCacheMiss) {
		t.Errorf("the certificate to renew is given back: %v", err)
	}
	if account, err := c.Get(ctx, "acme_account+key"); err != nil || string(account) != "account" {
		t.Errorf("the account: %q, %v", account, err)
	}
	if err := c.Put(ctx, "host", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if fresh, err := c.Get(ctx, "host"); err != nil || string(fresh) != "new" {
		t.Errorf("the new certificate: %q, %v", fresh, err)
	}
	full := &orderCache{Cache: autocert.DirCache(filepath.Join(string(dir), "host", "none")), host: "host"} // below a file
	if err := full.Put(ctx, "host", []byte("new")); err == nil || full.err == nil {
		t.Errorf("an error of keeping it is lost: %v, %v", err, full.err)
	}
}

// TestFollow holds the schedule of orders; the CA's part, which other tests have for real, is played.
func TestFollow(t *testing.T) {
	root := newAuthority(t, "root", nil)
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
			leaf := issue(t, root, &x509.Certificate{
				SerialNumber: big.NewInt(now.UnixNano()), DNSNames: []string{"a.example.com"}, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(life),
			})
			writeFile(t, filepath.Join(a.dir, "a.example.com"), append(leaf.keyPEM(t), chainPEM(leaf)...))
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
		a.renewal = func(context.Context, int, *zap.Logger) (time.Duration, error) {
			mu.Lock()
			defer mu.Unlock()
			orders = append(orders, time.Since(began).Round(time.Minute))
			asked, err := answer()
			a.failing[0].Store(err != nil)
			return asked, err
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

func TestReasons(t *testing.T) {
	r := &reasons{}
	plain := errors.New("no viable challenge type found")
	if got := r.explain(plain).Error(); got != plain.Error() {
		t.Errorf("without a reason: %s", got)
	}
	for range 2 {
		r.note([]byte(`{"status":"invalid","challenges":[{"type":"tls-alpn-01","error":{"detail":"Connection\nrefused"}},{"type":"dns-01"}]}`))
	}
	r.note([]byte(`no JSON`))
	want := "no viable challenge type found; the CA says: tls-alpn-01: Connection refused"
	if got := r.explain(plain).Error(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
