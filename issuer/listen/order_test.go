package listen

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/crypto/acme/autocert"

	"github.com/keypost/keypost/issuer/listen/internal/chain"
	"github.com/keypost/keypost/issuer/listen/internal/exchange"
	"github.com/keypost/keypost/test/authority"
)

const acmeHost = "a.example.com"

// playedCA is as much of an ACME CA as an order takes whose host has been validated already. It is the transport to itself, so that
// its time may be that of a test.
type playedCA struct {
	chain []*authority.Authority                           // that signs; the last one is left out of what the CA gives
	times func(now time.Time) (notBefore, after time.Time) // of the next certificate

	mu     sync.Mutex
	asked  []time.Time // newOrder
	refuse http.Header // of newOrder, with a rate limit; nil: it orders
	issued []byte
}

func (ca *playedCA) RoundTrip(req *http.Request) (*http.Response, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	const at = "https://ca.example"
	code, header, body := http.StatusOK, http.Header{"Replay-Nonce": {"nonce"}, "Content-Type": {"application/json"}}, ""
	order := func(status string) string {
		return fmt.Sprintf(`{"status":%q,"identifiers":[{"type":"dns","value":%q}],"authorizations":[],"finalize":%q,"certificate":%q}`, status, acmeHost, at+"/finalize", at+"/certificate")
	}
	switch req.URL.Path {
	case "/dir":
		body = fmt.Sprintf(`{"newNonce":%q,"newAccount":%q,"newOrder":%q}`, at+"/nonce", at+"/account", at+"/order")
	case "/nonce":
	case "/account":
		code, body = http.StatusCreated, `{"status":"valid"}`
		header.Set("Location", at+"/account/1")
	case "/order":
		ca.asked = append(ca.asked, time.Now())
		code, body = http.StatusCreated, order("ready")
		header.Set("Location", at+"/order/1")
		if ca.refuse != nil {
			code, body = http.StatusForbidden, `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many"}`
			header.Set("Retry-After", ca.refuse.Get("Retry-After"))
		}
	case "/finalize":
		if err := ca.issue(req.Body); err != nil {
			return nil, err
		}
		body = order("valid")
	case "/certificate":
		header.Set("Content-Type", "application/pem-certificate-chain")
		body = string(ca.issued)
	default:
		code = http.StatusNotFound
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

// issue signs the request in a JWS (RFC 8555, section 7.4).
func (ca *playedCA) issue(body io.Reader) error {
	var jws struct{ Payload string }
	var payload struct{ CSR string }
	if err := json.NewDecoder(body).Decode(&jws); err != nil {
		return err
	}
	text, err := base64.RawURLEncoding.DecodeString(jws.Payload)
	if err == nil {
		err = json.Unmarshal(text, &payload)
	}
	der, err2 := base64.RawURLEncoding.DecodeString(payload.CSR)
	csr, err3 := x509.ParseCertificateRequest(der)
	if err = errors.Join(err, err2, err3); err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{DNSNames: csr.DNSNames}
	template.NotBefore, template.NotAfter = ca.times(now)
	if der, err = x509.CreateCertificate(rand.Reader, template, ca.chain[0].Cert, csr.PublicKey, ca.chain[0].Key); err != nil {
		return err
	}
	ca.issued = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), authority.ChainPEM(ca.chain[:len(ca.chain)-1]...)...)
	return nil
}

// orders returns how many there were within d of the first one.
func (ca *playedCA) orders(d time.Duration) (n int) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	for _, at := range ca.asked {
		if at.Sub(ca.asked[0]) < d {
			n++
		}
	}
	return n
}

// refuses makes the CA refuse orders, and ask for a wait where it is not 0.
func (ca *playedCA) refuses(wait time.Duration) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	ca.refuse = http.Header{}
	if wait > 0 {
		ca.refuse.Set("Retry-After", fmt.Sprint(int(wait.Seconds())))
	}
}

func living(life time.Duration) func(time.Time) (time.Time, time.Time) {
	return func(now time.Time) (time.Time, time.Time) { return now.Add(-min(time.Hour, life/100)), now.Add(life) }
}

const day = 24 * time.Hour

// replica starts one of those that share a cache.
func replica(t *testing.T, cache string, ca *playedCA) *ACME {
	t.Helper()
	a, err := NewACME(ACMEConfig{Hosts: []string{acmeHost}, Cache: cache, Directory: "https://ca.example/dir"})
	if err == nil {
		err = a.Prepare()
	}
	if err != nil {
		t.Fatal(err)
	}
	a.ca = ca
	return a
}

// watching runs replicas until the function that it returns is called.
func watching(t *testing.T, log *zap.Logger, replicas ...*ACME) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for _, a := range replicas {
		wait.Go(func() { _ = a.Watch(ctx, log) })
	}
	return func() { cancel(); wait.Wait() }
}

// puts writes a certificate into a replica's cache, as another one does.
func puts(t *testing.T, a *ACME, root *authority.Authority, from, until time.Duration) {
	t.Helper()
	now := time.Now()
	leaf := authority.Certify(t, root, &x509.Certificate{DNSNames: []string{acmeHost}, NotBefore: now.Add(from), NotAfter: now.Add(until)})
	writeFile(t, filepath.Join(a.dir, acmeHost), append(leaf.KeyPEM(t), authority.ChainPEM(leaf)...))
}

func outcome(a *ACME) string {
	return fmt.Sprintf("%v ok, %v failed, failing %v", testutil.ToFloat64(a.ordered.WithLabelValues("ok")), testutil.ToFloat64(a.ordered.WithLabelValues("failed")), a.failing[0].Load())
}

// Two replicas start at once: one orders, and the other one takes what it finds once it has the lock.
func TestOneOrdersForAll(t *testing.T) {
	root := authority.Named(t, "root", nil)
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{chain: []*authority.Authority{root}, times: living(90 * day)}
		cache := filepath.Join(t.TempDir(), "cache")
		a, b := replica(t, cache, ca), replica(t, cache, ca)
		stop := watching(t, zap.NewNop(), a, b)
		time.Sleep(10 * time.Second)
		stop()
		if ca.orders(day) != 1 {
			t.Errorf("%d orders", ca.orders(day))
		}
		for _, r := range []*ACME{a, b, replica(t, cache, ca)} {
			if c := r.inUse[0].Load(); c == nil || time.Until(c.NotAfter) < 89*day {
				t.Errorf("in use: %v", c)
			}
		}
		if got := []string{outcome(a), outcome(b)}; got[0] == got[1] || !strings.Contains(strings.Join(got, "; "), "1 ok, 0 failed, failing false") {
			t.Errorf("counted: %v", got)
		}
		if notes, err := filepath.Glob(filepath.Join(a.dir, "*failed")); err != nil || len(notes) > 0 {
			t.Errorf("an order that went well leaves %v, %v", notes, err)
		}
	})
}

// CAs count failures by host: replicas that share a cache keep the schedule together, and so does one that starts again and again.
func TestReplicasFailTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{}
		ca.refuses(0)
		cache := filepath.Join(t.TempDir(), "cache")
		core, logs := observer.New(zap.InfoLevel)
		all := []*ACME{replica(t, cache, ca), replica(t, cache, ca), replica(t, cache, ca)}
		stop := watching(t, zap.New(core), all...)
		time.Sleep(6*time.Hour - time.Minute)
		if first, all := ca.orders(time.Hour), ca.orders(day); first != 5 || all < 9 || all > 11 {
			t.Errorf("%d orders in the first hour, %d in six; want 5 and one in each later hour", first, all)
		}
		for i, a := range all {
			if !a.failing[0].Load() {
				t.Errorf("replica %d does not say that the latest order failed: %s", i, outcome(a))
			}
		}
		if held := logs.FilterMessageSnippet("not ordered yet").All(); len(held) == 0 {
			t.Error("who is held back does not say so")
		} else if why := held[0].ContextMap()["why"]; why != "order a certificate for a.example.com: 403 urn:ietf:params:acme:error:rateLimited: too many" {
			t.Errorf("it says that the earlier orders failed for %q", why)
		}
		stop()
		before := ca.orders(100 * day)
		for range 30 { // a crash loop
			stop = watching(t, zap.NewNop(), replica(t, cache, ca))
			time.Sleep(time.Minute)
			stop()
		}
		if n := ca.orders(100*day) - before; n > 1 {
			t.Errorf("%d orders in half an hour of starting again", n)
		}
	})
}

// An order is noted before the CA is asked: a process that is killed meanwhile and started again has asked, too. The note goes
// with the order that succeeds, and has the CA's wish after one that fails.
func TestOrdersAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := replica(t, filepath.Join(t.TempDir(), "cache"), nil)
		var during attempts
		var answer error
		a.ask = func(int, string) (time.Duration, error) {
			during = a.noted(0, time.Now())
			a.inUse[0].Store(&chain.Chain{})
			return 5 * time.Hour, answer
		}
		same := func(got attempts, failed int, wait time.Duration) bool {
			return got.Failed == failed && time.Until(got.Next) == wait
		}
		if next, err := a.renew(t.Context(), 0, attempts{}, zap.NewNop()); err != nil || !same(next, 0, 5*time.Hour) {
			t.Errorf("an order that succeeds: %v, %v", next, err)
		}
		if !same(during, 1, firstRetry) || a.noted(0, time.Now()) != (attempts{}) {
			t.Errorf("noted meanwhile %v, and afterwards %v", during, a.noted(0, time.Now()))
		}
		answer = errors.New("no")
		next, err := a.renew(t.Context(), 0, attempts{}, zap.NewNop())
		if err == nil || !same(next, 1, 5*time.Hour) || !same(a.noted(0, time.Now()), 1, 5*time.Hour) {
			t.Errorf("one that fails: %v, %v, noted %v", next, err, a.noted(0, time.Now()))
		}
	})
}

// Each order answers challenges of one type, since the CA counts each validation that fails. With http-01 that comes first; they take turns
// when the CA could not validate the host, also after a start, and not when it was away.
func TestChallengesTakeTurns(t *testing.T) {
	away, judged := errors.New("connection refused"), fmt.Errorf("no; %w: it cannot connect", exchange.ErrNotValidated)
	for name, tt := range map[string]struct {
		with  []bool // http-01, at each order; a change is a new start
		fails []error
		want  []string
	}{
		"both":           {[]bool{true, true, true, true}, []error{judged, judged, judged, judged}, []string{http01, tlsALPN01, http01, tlsALPN01}},
		"the CA is away": {[]bool{true, true, true, true}, []error{away, away, judged, away}, []string{http01, http01, http01, tlsALPN01}},
		"without":        {[]bool{false, false, false}, []error{judged, judged, away}, []string{tlsALPN01, tlsALPN01, tlsALPN01}},
		"set up later":   {[]bool{false, true, true}, []error{judged, judged, judged}, []string{tlsALPN01, http01, tlsALPN01}},
		"taken out":      {[]bool{true, false}, []error{judged, judged}, []string{http01, tlsALPN01}},
	} {
		synctest.Test(t, func(t *testing.T) {
			cache := filepath.Join(t.TempDir(), "cache")
			var got []string
			var past attempts
			for i, with := range tt.with {
				a := replica(t, cache, nil)
				a.http01 = with
				if i > 0 && with != tt.with[i-1] {
					past = attempts{}
				}
				a.ask = func(_ int, challenge string) (time.Duration, error) {
					got = append(got, challenge)
					return 0, tt.fails[i]
				}
				past, _ = a.renew(t.Context(), 0, past, zap.NewNop())
				time.Sleep(time.Until(past.Next) + time.Second)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
		})
	}
}

// What was noted is believed within bounds.
func TestNotedAttempts(t *testing.T) {
	a := replica(t, filepath.Join(t.TempDir(), "cache"), nil)
	now := time.Now()
	note := func(p attempts) string {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, tt := range map[string]struct {
		text string
		want int
	}{
		"sound":              {note(attempts{Failed: 3, Next: now.Add(time.Minute)}), 3},
		"a day, by the CA":   {note(attempts{Failed: 3, Next: now.Add(longestWait)}), 3},
		"it was just over":   {note(attempts{Failed: 3, Next: now.Add(-time.Minute)}), 3},
		"far in the future":  {note(attempts{Failed: 3, Next: now.Add(3 * day)}), 0},
		"long ago":           {note(attempts{Failed: 3, Next: now.Add(-3 * day)}), 0},
		"none":               {note(attempts{Failed: 0, Next: now.Add(time.Minute)}), 0},
		"fewer than none":    {note(attempts{Failed: -3, Next: now.Add(time.Minute)}), 0},
		"more than there is": {note(attempts{Failed: 1 << 40, Next: now.Add(time.Minute)}), 0},
		"half of it":         {`{"failed":3,"ne`, 0},
		"empty":              {"", 0},
		"too long":           {strings.Repeat(" ", maxNote) + note(attempts{Failed: 3, Next: now.Add(time.Minute)}), 0},
	} {
		writeFile(t, a.note(0), []byte(tt.text))
		if got := a.noted(0, now).Failed; got != tt.want {
			t.Errorf("%s: %d failed, want %d", name, got, tt.want)
		}
	}
	if err := errors.Join(os.Remove(a.note(0)), syscall.Mkfifo(a.note(0), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := a.noted(0, now); got != (attempts{}) {
		t.Errorf("a pipe: %v", got)
	}
	// One failure holds nobody back who has not failed itself: the configuration may be another one now.
	once, twice, later := attempts{Failed: 1, Next: now.Add(time.Minute)}, attempts{Failed: 2, Next: now.Add(time.Minute)}, attempts{Failed: 2, Next: now.Add(-time.Second)}
	if (attempts{}).heldBack(once, now) || !(attempts{}).heldBack(twice, now) || !once.heldBack(once, now) || once.heldBack(later, now) {
		t.Error("who has to wait")
	}
}

// The CA's certificates now live for 6 days; the one in use has 29 of 90 left. The new one is taken, by all and for good.
func TestShorterCertificates(t *testing.T) {
	root := authority.Named(t, "root", nil)
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{chain: []*authority.Authority{root}, times: living(6 * day)}
		cache := filepath.Join(t.TempDir(), "cache")
		puts(t, replica(t, cache, ca), root, -61*day, 29*day)
		all := []*ACME{replica(t, cache, ca), replica(t, cache, ca)}
		stop := watching(t, zap.NewNop(), all...)
		time.Sleep(7 * day)
		stop()
		if n := ca.orders(100 * day); n != 2 {
			t.Errorf("%d orders in a week, want one at once and one when it is due", n)
		}
		for i, a := range append(all, replica(t, cache, ca)) {
			if left := time.Until(a.inUse[0].Load().NotAfter); left < 2*day || left > 6*day || a.failing[0].Load() {
				t.Errorf("replica %d: the certificate in use has %v left, %s", i, left, outcome(a))
			}
		}
	})
}

// A certificate that is to be renewed as soon as it is issued, and expires no later than the one in use, does not take its place
// in memory or in the cache; the CA is asked once a day.
func TestUselessCertificates(t *testing.T) {
	root := authority.Named(t, "root", nil)
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{chain: []*authority.Authority{root}, times: func(now time.Time) (time.Time, time.Time) { return now.Add(-80 * day), now.Add(8 * day) }}
		cache := filepath.Join(t.TempDir(), "cache")
		a := replica(t, cache, ca)
		puts(t, a, root, -61*day, 29*day)
		core, logs := observer.New(zap.WarnLevel)
		stop := watching(t, zap.New(core), a)
		time.Sleep(7*day - time.Hour)
		stop()
		if n := ca.orders(100 * day); n != 7 {
			t.Errorf("%d orders in a week", n)
		}
		if n := logs.Len(); n != 7 || !strings.Contains(fmt.Sprint(logs.All()[0].ContextMap()), "expires no later than the one in use") || !a.failing[0].Load() {
			t.Errorf("%d warnings, %s", n, outcome(a))
		}
		if left := time.Until(replica(t, cache, ca).inUse[0].Load().NotAfter); left < 21*day {
			t.Errorf("after a restart there are %v left of 22 days", left)
		}
	})
}

// An intermediate that expires before the leaf makes the certificate due; a CA that goes on with it is not asked faster and faster.
func TestDyingIntermediate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := authority.Certify(t, nil, &x509.Certificate{
			Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
			NotBefore: time.Now().Add(-day), NotAfter: time.Now().Add(400 * day),
		})
		inner := authority.Certify(t, root, &x509.Certificate{
			Subject: pkix.Name{CommonName: "inner"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
			NotBefore: time.Now().Add(-day), NotAfter: time.Now().Add(3 * day),
		})
		ca := &playedCA{chain: []*authority.Authority{inner, root}, times: living(90 * day)}
		a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
		stop := watching(t, zap.NewNop(), a)
		time.Sleep(3*day - time.Minute)
		if n := ca.orders(3 * day); n < 3 || n > 12 {
			t.Errorf("%d orders until it dies, want a few", n)
		}
		ca.mu.Lock()
		ca.chain = []*authority.Authority{root}
		ca.mu.Unlock()
		time.Sleep(2 * time.Hour)
		stop()
		if left := time.Until(a.inUse[0].Load().NotAfter); left < 89*day {
			t.Errorf("the CA has another intermediate, and the one in use has %v left", left)
		}
	})
}

// Where the lock is out of reach nothing is ordered; that is said, and what another replica orders is taken.
func TestLockOutOfReach(t *testing.T) {
	root := authority.Named(t, "root", nil)
	for name, out := range map[string]func(t *testing.T, a *ACME) (back func()){
		"directory gone": func(t *testing.T, a *ACME) func() {
			if err := os.RemoveAll(a.dir); err != nil {
				t.Fatal(err)
			}
			return func() { _ = a.Prepare() }
		},
		"held by a frozen replica": func(t *testing.T, a *ACME) func() {
			unlock, err := a.lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(unlock)
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := &playedCA{chain: []*authority.Authority{root}, times: living(90 * day)}
				cache := filepath.Join(t.TempDir(), "cache")
				a := replica(t, cache, ca)
				back := out(t, replica(t, cache, ca))
				core, logs := observer.New(zap.WarnLevel)
				stop := watching(t, zap.New(core), a)
				defer stop()
				time.Sleep(day)
				if n := logs.Len(); n < 15 || n > 30 || !a.failing[0].Load() || ca.orders(day) > 0 {
					t.Errorf("after a day: %d warnings, %s, %d orders", n, outcome(a), ca.orders(day))
				}
				back()
				puts(t, a, root, -time.Minute, 80*day)
				time.Sleep(lookEvery + 5*time.Second)
				if a.inUse[0].Load() == nil || a.failing[0].Load() {
					t.Errorf("what came into the cache is not in use: %s", outcome(a))
				}
			})
		})
	}
}

// Who waits for the lock looks at the cache meanwhile.
func TestTakenWhileTheLockIsHeld(t *testing.T) {
	root := authority.Named(t, "root", nil)
	synctest.Test(t, func(t *testing.T) {
		cache := filepath.Join(t.TempDir(), "cache")
		unlock, err := replica(t, cache, nil).lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		a := replica(t, cache, nil)
		core, logs := observer.New(zap.WarnLevel)
		stop := watching(t, zap.New(core), a)
		defer stop()
		time.Sleep(30 * time.Second)
		if logs.Len() > 0 || a.failing[0].Load() {
			t.Errorf("a wait of half a minute is told: %v", logs.All())
		}
		time.Sleep(3 * time.Minute)
		if n := logs.FilterField(zap.String("file", filepath.Join(a.dir, lockFile))).Len(); n != 1 || logs.Len() != 1 || !a.failing[0].Load() {
			t.Errorf("who waits for minutes tells so %d times: %v, failing %v", n, logs.All(), a.failing[0].Load())
		} else if why := fmt.Sprint(logs.All()[0].ContextMap()["error"]); !strings.Contains(why, fmt.Sprintf("process %d on ", os.Getpid())) {
			t.Errorf("the holder is not named: %s", why)
		}
		puts(t, a, root, -time.Minute, 80*day)
		time.Sleep(lookEvery + 5*time.Second)
		if a.inUse[0].Load() == nil || outcome(a) != "0 ok, 0 failed, failing false" {
			t.Errorf("what came into the cache is not in use: %s", outcome(a))
		}
	})
}

// The orders of one process wait for each other, which is no fault.
func TestOrdersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := replica(t, filepath.Join(t.TempDir(), "cache"), nil)
		unlock, err := a.lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		core, logs := observer.New(zap.WarnLevel)
		stop := watching(t, zap.New(core), a)
		defer stop()
		time.Sleep(3 * time.Minute)
		if logs.Len() > 0 || a.failing[0].Load() {
			t.Errorf("%v, failing %v", logs.All(), a.failing[0].Load())
		}
	})
}

// The CA says when it may be asked again.
func TestRateLimited(t *testing.T) {
	root := authority.Named(t, "root", nil)
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{chain: []*authority.Authority{root}, times: living(90 * day)}
		ca.refuses(3 * time.Hour)
		a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
		stop := watching(t, zap.NewNop(), a)
		defer stop()
		time.Sleep(3*time.Hour - time.Minute)
		if n := ca.orders(day); n != 1 || outcome(a) != "0 ok, 1 failed, failing true" {
			t.Errorf("%d orders although the CA asked for 3 hours; %s", n, outcome(a))
		}
		ca.mu.Lock()
		ca.refuse = nil
		ca.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if outcome(a) != "1 ok, 1 failed, failing false" {
			t.Error(outcome(a))
		}
	})
}

// The Manager of an order that is over orders nothing more, neither before its certificate expires nor then: Watch alone does.
func TestOrderIsOver(t *testing.T) {
	root := authority.Named(t, "root", nil)
	for _, life := range []time.Duration{6 * time.Minute, 20 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			ca := &playedCA{chain: []*authority.Authority{root}, times: living(life)}
			a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
			if _, err := a.renew(t.Context(), 0, attempts{}, zap.NewNop()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(life - time.Second)
			if n := ca.orders(day); n != 1 {
				t.Errorf("life %v: %d orders before it expires", life, n)
			}
			if life > orderTime {
				if time.Sleep(day); ca.orders(2*day) != 1 {
					t.Errorf("%d orders once it has expired", ca.orders(2*day))
				}
			}
		})
	}
}

// crammed is a cache on a disk that may be full.
type crammed struct {
	autocert.Cache
	full atomic.Bool
}

func (c *crammed) Put(ctx context.Context, key string, data []byte) error {
	if c.full.Load() {
		return syscall.ENOSPC
	}
	return c.Cache.Put(ctx, key, data)
}

// On a full disk the CA is not asked, which would count a failure; that is told once an hour. Once there is room, the next look orders, and a
// refusal by the CA is the first one.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{}
		ca.refuses(0)
		a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
		disk := &crammed{Cache: a.cache}
		a.cache = disk
		disk.full.Store(true)
		core, logs := observer.New(zap.WarnLevel)
		stop := watching(t, zap.New(core), a)
		defer stop()
		time.Sleep(5*time.Hour - time.Minute)
		if n := logs.FilterMessageSnippet("not ordered").Len(); n != 5 || !a.failing[0].Load() || ca.orders(day) > 0 {
			t.Errorf("after five hours: %d warnings, %s, %d orders", n, outcome(a), ca.orders(day))
		} else if why := fmt.Sprint(logs.All()[0].ContextMap()["error"]); !strings.Contains(why, "the CA is not asked") || !strings.Contains(why, "make room") {
			t.Errorf("it says %s", why)
		}
		disk.full.Store(false)
		time.Sleep(lookEvery + time.Second)
		if n := ca.orders(day); n != 1 {
			t.Errorf("%d orders once there is room", n)
		}
		if next := a.noted(0, time.Now()); next.Failed != 1 || time.Until(next.Next) > firstRetry {
			t.Errorf("the CA's first refusal is noted as %+v", next)
		}
	})
}

// losesHost is a cache that cannot keep the certificate.
type losesHost struct{ autocert.Cache }

func (c losesHost) Put(ctx context.Context, key string, data []byte) error {
	if key == acmeHost {
		return syscall.EIO
	}
	return c.Cache.Put(ctx, key, data)
}

// A certificate that cannot be kept is a failure: the next start would order again.
func TestCertificateIsNotKept(t *testing.T) {
	ca := &playedCA{chain: []*authority.Authority{authority.Named(t, "root", nil)}, times: living(90 * day)}
	a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
	a.cache = losesHost{a.cache}
	next, err := a.renew(t.Context(), 0, attempts{}, zap.NewNop())
	if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "keep the certificate for "+acmeHost) || next.Failed != 1 {
		t.Errorf("%v, %v", next, err)
	}
	if text, err := os.ReadFile(a.note(0)); err != nil || !bytes.Contains(text, []byte(`"failed":1`)) {
		t.Errorf("noted: %s, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(a.dir, acmeHost)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a certificate: %v", err)
	}
}

// Where the CA's directory cannot be read nothing was ordered, so no failure is counted that the CA has not counted: whoever corrects
// the configuration waits for nothing. What was noted before stays.
func TestNothingOrderedIsNoFailure(t *testing.T) {
	for _, before := range []attempts{{}, {Failed: 3, Next: time.Now().Add(-time.Minute).UTC().Truncate(time.Second), Why: "DNS"}} {
		a, err := NewACME(ACMEConfig{Hosts: []string{acmeHost}, Cache: filepath.Join(t.TempDir(), "cache"), Directory: "https://127.0.0.1:1/dir"})
		if err == nil {
			err = a.Prepare()
		}
		if err == nil && before.Failed > 0 {
			err = a.putNote(0, before)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.ask = func(int, string) (time.Duration, error) { return 0, fmt.Errorf("%w: 404", exchange.ErrNoDirectory) }
		next, err := a.renew(t.Context(), 0, attempts{}, zap.NewNop())
		if wait := time.Until(next.Next); err == nil || next.Failed != before.Failed || wait > lookEvery || wait < lookEvery-10*time.Second {
			t.Errorf("after %+v: %+v, %v", before, next, err)
		}
		if got := a.noted(0, time.Now()); got != before {
			t.Errorf("noted %+v, was %+v", got, before)
		}
		if before.Failed > 0 {
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		go func() { defer close(done); a.follow(ctx, 0, zap.NewNop()) }()
		for deadline := time.Now().Add(10 * time.Second); !a.failing[0].Load(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the metric does not tell of it")
			}
		}
		cancel()
		<-done
	}
}
