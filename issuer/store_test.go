package issuer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// key returns the P-256 verification key whose private half is n, so that every run has the same keys.
func key(t testing.TB, n int64) keystore.VerificationKey {
	t.Helper()
	if k, ok := keys.Load(n); ok {
		return k.(keystore.VerificationKey)
	}
	k := keyOn(t, elliptic.P256(), n+100) // the first ones are refused: their private keys are known
	keys.Store(n, k)
	return k
}

var keys sync.Map // of key: the arithmetic is slow under the race detector

func keyOn(t testing.TB, curve elliptic.Curve, n int64) keystore.VerificationKey {
	t.Helper()
	k, err := ecdsa.ParseRawPrivateKey(curve, big.NewInt(n).FillBytes(make([]byte, (curve.Params().BitSize+7)/8)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := keystore.NewPublic(&k.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// doc is a key set document that a test writes as somebody with an editor would: nothing stops it from breaking rules.
type doc struct {
	name       string
	generation int64
	issuers    []string                   // default: https://oidc.example.com/NAME
	keys       []keystore.VerificationKey // active
	states     []keystore.State           // of keys, where they are not active
	gone       []keystore.VerificationKey
	policy     map[string]any
	history    []keystore.Event
	withdrawn  bool
	dev        bool
}

func (d doc) text(t testing.TB) []byte {
	t.Helper()
	if d.issuers == nil {
		d.issuers = []string{"https://oidc.example.com/" + d.name}
	}
	spec := map[string]any{"generation": d.generation, "issuers": d.issuers, "keys": d.keyLines(t), "dev": d.dev}
	var gone []any
	for _, k := range d.gone {
		gone = append(gone, map[string]any{"kid": k.ID(), "fingerprint": k.Fingerprint(), "at": storetest.Time(0), "why": keystore.Removed})
	}
	spec["gone"] = gone
	if d.policy != nil {
		spec["policy"] = d.policy
	}
	if d.history != nil {
		spec["history"] = d.history
	}
	if d.withdrawn {
		spec["withdrawnAt"] = storetest.Time(0)
	}
	data, err := json.Marshal(map[string]any{"apiVersion": keystore.APIVersion, "kind": keystore.Kind, "metadata": map[string]any{"name": d.name}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (d doc) keyLines(t testing.TB) []any {
	t.Helper()
	lines := []any{}
	for i, k := range d.keys {
		der, err := x509.MarshalPKIXPublicKey(k.Key())
		if err != nil {
			t.Fatal(err)
		}
		state := keystore.Active
		if i < len(d.states) {
			state = d.states[i]
		}
		at := storetest.Time(0)
		lines = append(lines, map[string]any{
			"kid": k.ID(), "importedKid": k.Imported(), "alg": k.Alg(), "state": state, "publicKey": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
			"publishedAt": at, "promotedAt": at, "retiredAt": at,
		})
	}
	return lines
}

// parse returns the document as the key set that it must be.
func (d doc) parse(t testing.TB) keystore.KeySet {
	t.Helper()
	s, err := keystore.Parse(keystore.Name(d.name), d.text(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bench is a publisher over a store in memory, with everything it says.
type bench struct {
	*Publisher
	t     testing.TB
	store *storetest.MemStore
	logs  *observer.ObservedLogs
	http  *Handler
}

// testPatterns allow name a the issuer URL https://oidc.example.com/a, and the names a and b https://shared.example.com.
var testPatterns = []string{"https://oidc.example.com/{name}", "https://{name}.oidc.example.com", "a=https://shared.example.com", "b=https://shared.example.com", "c=https://shared.example.com"}

func newBench(t testing.TB) *bench { return newBenchWith(t, Config{}) }

func newBenchWith(t testing.TB, c Config) *bench {
	t.Helper()
	b := &bench{t: t, store: storetest.NewMemStore(t)}
	core, logs := observer.New(zapcore.InfoLevel)
	b.logs, c.Log = logs, zap.New(core)
	if c.Source == nil {
		c.Source = b.store
	}
	for _, raw := range testPatterns {
		p, err := ParsePattern(raw, false)
		if err != nil {
			t.Fatal(err)
		}
		c.Patterns = append(c.Patterns, p)
	}
	b.Publisher = NewPublisher(c)
	b.http = NewHandler(b.Publisher, nil)
	return b
}

func (b *bench) put(docs ...doc) {
	b.t.Helper()
	for _, d := range docs {
		b.store.Set(keystore.Name(d.name), d.text(b.t))
	}
}

func (b *bench) poll() {
	b.t.Helper()
	if err := b.Refresh(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// get returns what an issuer's JWKS is answered with.
func (b *bench) get(issuer string) (status int, body string) {
	w := httptest.NewRecorder()
	b.http.ServeHTTP(w, httptest.NewRequest(http.MethodGet, issuer+JWKSPath, nil))
	return w.Code, w.Body.String()
}

// serves fails unless the issuer's JWKS holds exactly the keys.
func (b *bench) serves(issuer string, keys ...keystore.VerificationKey) {
	b.t.Helper()
	status, body := b.get(issuer)
	if status != http.StatusOK {
		b.t.Fatalf("%s: status %d, want its documents", issuer, status)
	}
	var want []string
	for _, k := range keys {
		want = append(want, string(k.ID()))
	}
	slices.Sort(want)
	if got := kids(b.t, body); !slices.Equal(got, want) {
		b.t.Fatalf("%s serves keys %q, want %q", issuer, got, want)
	}
}

func (b *bench) refuses(issuer string, want int) {
	b.t.Helper()
	if status, _ := b.get(issuer); status != want {
		b.t.Fatalf("%s: status %d, want %d", issuer, status, want)
	}
}

func kids(t testing.TB, body string) []string {
	t.Helper()
	var set struct{ Keys []struct{ Kid string } }
	if err := json.Unmarshal([]byte(body), &set); err != nil {
		t.Fatalf("JWKS %q: %v", body, err)
	}
	ids := []string{}
	for _, k := range set.Keys {
		ids = append(ids, k.Kid)
	}
	return ids
}

// reason returns why the stored version of a key set is not served; empty when it is.
func (b *bench) reason(name string) keystore.Reason {
	b.t.Helper()
	for _, s := range b.Report().Issuers {
		if string(s.Name) == name {
			return s.Rejected
		}
	}
	return ""
}

func (b *bench) rejected(name string, want keystore.Reason) {
	b.t.Helper()
	if got := b.reason(name); got != want {
		b.t.Fatalf("key set %s is rejected as %q, want %q", name, got, want)
	}
}

// said returns the log lines since the last call, "LEVEL message key_set reason" each.
func (b *bench) said() []string {
	lines := []string{}
	for _, e := range b.logs.TakeAll() {
		line := e.Level.String() + " " + e.Message
		for _, f := range []string{"key_set", "reason"} {
			if v, ok := e.ContextMap()[f].(string); ok {
				line += " " + v
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func (b *bench) silent() {
	b.t.Helper()
	if lines := b.said(); len(lines) > 0 {
		b.t.Fatalf("logged although nothing has changed:\n%s", strings.Join(lines, "\n"))
	}
}

// saidOnce fails unless exactly one line was logged since the last call, and holds part.
func (b *bench) saidOnce(part string) {
	b.t.Helper()
	if lines := b.said(); len(lines) != 1 || !strings.Contains(lines[0], part) {
		b.t.Fatalf("logged %q, want one line with %q", lines, part)
	}
}

// run runs the publisher until the test's context is done, in a synctest bubble.
func (b *bench) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }()
	return func() { cancel(); <-done }
}

// failing makes the store fail operations of one kind.
func failing(kind string, err error) storetest.Fault {
	return func(_ context.Context, op storetest.Op) (bool, error) {
		if op.Kind == kind {
			return false, err
		}
		return true, nil
	}
}

const tick = defaultPoll + time.Second
