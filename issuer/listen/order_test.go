package listen

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
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
	"go.uber.org/zap/zaptest/observer"

	"github.com/keypost/keypost/test/authority"
)

const hostA = "a.example.com"

// playedCA is as much of an ACME CA as an order takes. It is the transport to itself, so that its time may be that of a test.
type playedCA struct {
	chain    []*authority.Authority                           // that signs; the last one is left out of what the CA gives
	times    func(now time.Time) (notBefore, after time.Time) // of the next certificate
	validate func(kind, token string) (fault string)          // nil: the host has been validated already

	mu     sync.Mutex
	asked  []time.Time // newOrder
	refuse http.Header // of newOrder, with a rate limit; nil: it orders
	valid  string      // the state of the authorization
	issued []byte
}

func (ca *playedCA) RoundTrip(req *http.Request) (*http.Response, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	const at = "https://ca.example"
	code, header, body := http.StatusOK, http.Header{"Replay-Nonce": {"nonce"}, "Content-Type": {"application/json"}}, ""
	authorizations := ""
	if ca.validate != nil {
		authorizations = fmt.Sprintf("%q", at+"/authorization")
	}
	order := func(status string) string {
		return fmt.Sprintf(`{"status":%q,"authorizations":[%s],"finalize":%q,"certificate":%q}`, status, authorizations, at+"/finalize", at+"/certificate")
	}
	switch kind, challenge := strings.CutPrefix(req.URL.Path, "/challenge/"); {
	case challenge:
		ca.valid = `"status":"valid"`
		if fault := ca.validate(kind, "token-"+kind); fault != "" {
			detail, err := json.Marshal(fault)
			if err != nil {
				return nil, err
			}
			ca.valid = fmt.Sprintf(`"status":"invalid","challenges":[{"type":%q,"status":"invalid","error":{"type":"urn:ietf:params:acme:error:connection","detail":%s}}]`, kind, detail)
		}
		body = `{"status":"processing"}`
	case req.URL.Path == "/dir":
		body = fmt.Sprintf(`{"newNonce":%q,"newAccount":%q,"newOrder":%q}`, at+"/nonce", at+"/account", at+"/order")
	case req.URL.Path == "/nonce":
	case req.URL.Path == "/account":
		code, body = http.StatusCreated, `{"status":"valid"}`
		header.Set("Location", at+"/account/1")
	case req.URL.Path == "/order":
		ca.asked = append(ca.asked, time.Now())
		code, body = http.StatusCreated, order("pending")
		header.Set("Location", at+"/order/1")
		ca.valid = fmt.Sprintf(`"status":"pending","challenges":[{"type":"dns-01","url":%q,"token":"t"},{"type":"http-01","url":%q,"token":"token-http-01"},{"type":"tls-alpn-01","url":%q,"token":"token-tls-alpn-01"}]`,
			at+"/challenge/dns-01", at+"/challenge/http-01", at+"/challenge/tls-alpn-01")
		if ca.refuse != nil {
			code, body = http.StatusTooManyRequests, `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many"}`
			header.Set("Retry-After", ca.refuse.Get("Retry-After"))
		}
	case req.URL.Path == "/authorization":
		body = fmt.Sprintf(`{"identifier":{"type":"dns","value":%q},%s}`, hostA, ca.valid)
	case req.URL.Path == "/order/1":
		body = order("ready")
	case req.URL.Path == "/finalize":
		if err := ca.issue(req.Body); err != nil {
			return nil, err
		}
		body = order("valid")
	case req.URL.Path == "/certificate":
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
func replica(t *testing.T, cache string, ca http.RoundTripper) *ACME {
	t.Helper()
	a, err := NewACME(ACMEConfig{Hosts: []string{hostA}, Cache: cache, Directory: "https://ca.example/dir"})
	if err == nil {
		err = a.Prepare()
	}
	if err != nil {
		t.Fatal(err)
	}
	a.ca.Transport = boundedCA{ca}
	return a
}

// watching runs replicas until the function that it returns is called.
func watching(t *testing.T, log *zap.Logger, replicas ...*ACME) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for _, a := range replicas {
		wait.Go(func() { a.Watch(ctx, log) })
	}
	return func() { cancel(); wait.Wait() }
}

// puts writes a certificate into a replica's cache, as another one does.
func puts(t *testing.T, a *ACME, root *authority.Authority, from, until time.Duration) {
	t.Helper()
	now := time.Now()
	leaf := authority.Certify(t, root, &x509.Certificate{DNSNames: []string{hostA}, NotBefore: now.Add(from), NotAfter: now.Add(until)})
	writeFile(t, filepath.Join(a.dir, hostA), append(leaf.KeyPEM(t), authority.ChainPEM(leaf)...))
}

// left returns how long the certificate in use is still valid, or 0.
func left(a *ACME) time.Duration {
	if c := a.hosts[0].inUse.Load(); c != nil {
		return time.Until(c.NotAfter)
	}
	return 0
}

func failing(a *ACME) bool { return a.hosts[0].failing.Load() }

// Three replicas start at once: one orders, for as long as it runs, and then another one does.
func TestOneOrdersForAll(t *testing.T) {
	root := authority.Named(t, "root", nil)
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{chain: []*authority.Authority{root}, times: living(time.Hour)}
		cache := filepath.Join(t.TempDir(), "cache")
		a, b, c := replica(t, cache, ca), replica(t, cache, ca), replica(t, cache, ca)
		stopA := watching(t, zap.NewNop(), a)
		synctest.Wait()
		stopRest := watching(t, zap.NewNop(), b, c)
		defer stopRest()
		time.Sleep(2 * lookEvery)
		for i, r := range []*ACME{a, b, c, replica(t, cache, ca)} {
			if n := ca.orders(day); n != 1 || left(r) < 59*time.Minute {
				t.Errorf("replica %d: %d orders, %v left", i, n, left(r))
			}
		}
		stopA()
		time.Sleep(50 * time.Minute)
		for i, r := range []*ACME{b, c} {
			if n := ca.orders(day); n != 2 || left(r) < 30*time.Minute {
				t.Errorf("replica %d after the one that ordered has ended: %d orders, %v left", i, n, left(r))
			}
		}
	})
}

// CAs count failures by host: replicas that share a cache make no more orders than one.
func TestReplicasFailTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{}
		ca.refuses(0)
		cache := filepath.Join(t.TempDir(), "cache")
		core, logs := observer.New(zap.WarnLevel)
		stop := watching(t, zap.New(core), replica(t, cache, ca), replica(t, cache, ca), replica(t, cache, ca))
		defer stop()
		time.Sleep(4*time.Hour - time.Minute)
		if first, all := ca.orders(time.Hour), ca.orders(day); first != 5 || all != 8 || logs.Len() != all {
			t.Errorf("%d orders in the first hour, %d in four, %d lines; want 5, and one in each later hour", first, all, logs.Len())
		}
	})
}

// The CA says when it may be asked again, within bounds; after a success the waits begin anew.
func TestWaits(t *testing.T) {
	root := authority.Named(t, "root", nil)
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{chain: []*authority.Authority{root}, times: living(90 * time.Minute)}
		ca.refuses(3 * time.Hour)
		a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
		stop := watching(t, zap.NewNop(), a)
		defer stop()
		time.Sleep(3*time.Hour - time.Minute)
		if n := ca.orders(day); n != 1 || !failing(a) {
			t.Errorf("%d orders although the CA asked for 3 hours", n)
		}
		ca.mu.Lock()
		ca.refuse = nil
		ca.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if left(a) < 80*time.Minute || failing(a) {
			t.Errorf("it does not order after 3 hours: %v left", left(a))
		}
		ca.refuses(0)
		time.Sleep(70 * time.Minute) // it is due after an hour
		if n := ca.orders(day); n != 2+3 || !failing(a) || left(a) < 15*time.Minute {
			t.Errorf("%d orders, want three more after 0, 2 and 6 minutes; %v left", n, left(a))
		}
		puts(t, a, root, -time.Minute, 90*time.Minute) // by hand, say
		time.Sleep(2 * lookEvery)
		if left(a) < 89*time.Minute || failing(a) {
			t.Errorf("what came into the cache is not in use: %v left", left(a))
		}
	})
}

// An intermediate that expires before the leaf makes the certificate due; a CA that goes on with it is asked once an hour.
func TestDyingIntermediate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := func(name string, parent *authority.Authority, life time.Duration) *authority.Authority {
			return authority.Certify(t, parent, &x509.Certificate{
				Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
				NotBefore: time.Now().Add(-30 * day), NotAfter: time.Now().Add(life),
			})
		}
		root := ca("root", nil, 400*day)
		played := &playedCA{chain: []*authority.Authority{ca("inner", root, 12*time.Hour), root}, times: func(now time.Time) (time.Time, time.Time) {
			return now.Add(-20 * day), now.Add(70 * day)
		}}
		stop := watching(t, zap.NewNop(), replica(t, filepath.Join(t.TempDir(), "cache"), played))
		defer stop()
		time.Sleep(2*time.Hour - time.Minute)
		if n := played.orders(day); n != 2 {
			t.Errorf("%d orders in two hours", n)
		}
	})
}

// An order tries one type of challenge, since the CA counts each validation that fails: http-01 first where it has been set up, and
// then they take turns. The answer is in the cache, where each replica finds it, until the CA has looked. The log has the CA's words.
func TestChallengesTakeTurns(t *testing.T) {
	root := authority.Named(t, "root", nil)
	for _, offered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cache := filepath.Join(t.TempDir(), "cache")
			other := replica(t, cache, nil)
			var tried []string
			ca := &playedCA{chain: []*authority.Authority{root}, times: living(90 * day)}
			ca.validate = func(kind, token string) string {
				tried = append(tried, kind)
				w := httptest.NewRecorder()
				other.Challenges().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://"+hostA+"/.well-known/acme-challenge/"+token, http.NoBody))
				c, err := other.choose(&tls.ClientHelloInfo{ServerName: hostA, SupportedProtos: []string{"acme-tls/1"}})
				if answers := strings.HasPrefix(w.Body.String(), token+"."); answers != (kind == http01) || (err == nil) == answers || err == nil && c.Leaf.VerifyHostname(hostA) != nil {
					t.Errorf("%s: %d %s; %v", kind, w.Code, w.Body, err)
				}
				if len(tried) < 3 {
					return "Connection refused by\x1b[2J\n" + strings.Repeat("x", 2000)
				}
				return ""
			}
			a := replica(t, cache, ca)
			a.http01 = offered
			core, logs := observer.New(zap.WarnLevel)
			stop := watching(t, zap.New(core), a)
			time.Sleep(10 * time.Minute)
			stop()
			want := []string{tlsALPN01, tlsALPN01, tlsALPN01}
			if offered {
				want = []string{http01, tlsALPN01, http01}
			}
			if !slices.Equal(tried, want) || left(a) < 89*day || failing(a) || logs.Len() != 2 {
				t.Errorf("%q, want %q; %v left, %v", tried, want, left(a), logs.All())
			}
			if why := fmt.Sprint(logs.All()[0].ContextMap()["error"]); !strings.Contains(why, hostA+": challenge "+want[0]) ||
				!strings.Contains(why, "Connection refused by?[2J x") || len(why) > maxReason+len("…") {
				t.Errorf("it says %s", why)
			}
			if answers, err := filepath.Glob(filepath.Join(a.dir, "*+*")); err != nil || len(answers) != 1 || filepath.Base(answers[0]) != accountFile {
				t.Errorf("left in the cache: %q, %v", answers, err)
			}
		})
	}
}

// Where the cache cannot be written, as on a full disk, the CA is not asked: it would count an order. A directory of the name stands for that.
func TestFullDisk(t *testing.T) {
	root := authority.Named(t, "root", nil)
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{chain: []*authority.Authority{root}, times: living(90 * day)}
		a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
		if err := os.MkdirAll(filepath.Join(a.dir, ".space", "full"), 0o700); err != nil {
			t.Fatal(err)
		}
		core, logs := observer.New(zap.WarnLevel)
		stop := watching(t, zap.New(core), a)
		defer stop()
		time.Sleep(time.Minute)
		if why := fmt.Sprint(logs.All()[0].ContextMap()["error"]); ca.orders(day) > 0 || !failing(a) || !strings.Contains(why, "the CA is not asked") {
			t.Errorf("%d orders; it says %s", ca.orders(day), why)
		}
		if err := os.RemoveAll(filepath.Join(a.dir, ".space")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(firstRetry)
		if ca.orders(day) != 1 || failing(a) || left(a) < 89*day {
			t.Errorf("%d orders once there is room, %v left", ca.orders(day), left(a))
		}
		if _, err := os.Stat(filepath.Join(a.dir, ".space")); !os.IsNotExist(err) {
			t.Errorf("it leaves something behind: %v", err)
		}
	})
}

// A certificate that cannot be kept is a failure: the next start would order again. So is one that does not fit.
func TestUnusableCertificates(t *testing.T) {
	root, stranger := authority.Named(t, "root", nil), authority.Named(t, "stranger", nil)
	for want, harm := range map[string]func(a *ACME, ca *playedCA) error{
		"keep the certificate": func(a *ACME, _ *playedCA) error { return os.MkdirAll(filepath.Join(a.dir, hostA, "x"), 0o700) },
		"the CA's answer cannot be used": func(_ *ACME, ca *playedCA) error {
			ca.chain = []*authority.Authority{root, stranger, stranger}
			return nil
		},
	} {
		ca := &playedCA{chain: []*authority.Authority{root}, times: living(90 * day)}
		a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
		if err := harm(a, ca); err != nil {
			t.Fatal(err)
		}
		if err := a.order(t.Context(), a.hosts[0]); err == nil || !strings.Contains(err.Error(), want) || left(a) > 0 {
			t.Errorf("%v, want %q; %v left", err, want, left(a))
		}
	}
}

// A CA that goes on writing takes 1 MiB of memory at most.
func TestEndlessAnswer(t *testing.T) {
	ca := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		for _, err := w.Write(make([]byte, 1<<16)); err == nil; _, err = w.Write(make([]byte, 1<<16)) {
		}
	}))
	defer ca.Close()
	resp, err := (&http.Client{Transport: boundedCA{ca.Client().Transport}}).Get(ca.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil || len(text) != maxAnswer {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
