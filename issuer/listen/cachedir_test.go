package listen

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keypost/keypost/test/authority"
)

// That the cache cannot be written is told within a minute, long before a certificate is due, and so is its end. What is served stays.
// A lock that cannot be opened stands for that, which even root cannot pass by; test/contract has a read-only mount.
func TestCacheBecomesReadOnly(t *testing.T) {
	root := authority.Named(t, "root", nil)
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{chain: []*authority.Authority{root}, times: living(90 * day)}
		a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
		core, logs := observer.New(zap.InfoLevel)
		stop := watching(t, zap.New(core), a)
		defer stop()
		failing := func(want string) {
			t.Helper()
			text := fmt.Sprintf("# HELP keypost_tls_order_failing %s\n# TYPE keypost_tls_order_failing gauge\nkeypost_tls_order_failing{certificate=%q} %s\n",
				"1 while the latest order of a certificate from the ACME CA has failed, or none could be made since the cache cannot be written or another process has had its lock for a minute, by host.", acmeHost, want)
			reg := prometheus.NewRegistry()
			if err := errors.Join(reg.Register(a), testutil.GatherAndCompare(reg, strings.NewReader(text), "keypost_tls_order_failing")); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(10 * time.Second)
		failing("0")
		lock := filepath.Join(a.dir, lockFile)
		if err := errors.Join(os.Remove(lock), os.Mkdir(lock, 0o700)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		failing("1")
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery + time.Second)
		failing("0")
		said := logs.FilterMessageSnippet("certificate cache").All()
		if len(said) != 2 || !strings.Contains(said[0].Message, "cannot be written") || !strings.Contains(said[1].Message, "again") || a.inUse[0].Load() == nil || ca.orders(day) != 1 {
			t.Errorf("%d orders, in use: %v, said: %v", ca.orders(day), a.inUse[0].Load(), said)
		}
	})
}

// A cache that is not there yet can be made where the directory above it can be written; nothing is made by asking.
func TestWritableMakesNothing(t *testing.T) {
	above := t.TempDir()
	a, err := NewACME(ACMEConfig{Hosts: []string{acmeHost}, Cache: filepath.Join(above, "a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Writable(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(above); err != nil || len(entries) > 0 {
		t.Errorf("it made %v, %v", entries, err)
	}
	writeFile(t, filepath.Join(above, "a"), nil)
	if err := a.Writable(); err == nil || a.Prepare() == nil {
		t.Errorf("below a file: %v, and Prepare passes", err)
	}
}

// What is wrong with the cache is said with the file and what to do.
func TestWhatIsWrongWithTheCache(t *testing.T) {
	a, err := NewACME(ACMEConfig{Hosts: []string{acmeHost}, Cache: filepath.Join(t.TempDir(), "cache")})
	if err == nil {
		err = a.Prepare()
	}
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	a.ask = func(int, string) (time.Duration, error) { asked++; return 0, errors.New("away") }
	account := filepath.Join(a.dir, accountFile)
	if err := a.CheckAccount(); err != nil {
		t.Errorf("no account yet: %v", err)
	}
	for name, damaged := range map[string]string{"no PEM": "garbage", "no key": "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"} {
		writeFile(t, account, []byte(damaged))
		next, err := a.renew(t.Context(), 0, attempts{}, zap.NewNop())
		if err == nil || !strings.Contains(err.Error(), account) || !strings.Contains(err.Error(), "remove the file") || asked != 0 || next.Failed != 0 {
			t.Errorf("%s: %v, asked %d times, %+v", name, err, asked, next)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, account, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	if err := a.CheckAccount(); err != nil {
		t.Errorf("a sound one: %v", err)
	}
	for err, want := range map[error]string{
		&fs.PathError{Op: "stat", Path: "/c", Err: syscall.EACCES}: "chown", &fs.PathError{Op: "write", Path: "/c/.space", Err: syscall.ENOSPC}: "make room", syscall.EIO: "input/output error",
	} {
		if got := explained(err); !strings.Contains(got.Error(), want) || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// A certificate that has expired is served while there is no other one, and is told of.
func TestExpiredCertificateInTheCache(t *testing.T) {
	root := authority.Named(t, "root", nil)
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{chain: []*authority.Authority{root}, times: living(90 * day)}
		a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
		if _, err := a.renew(t.Context(), 0, attempts{}, zap.NewNop()); err != nil {
			t.Fatal(err)
		}
		if got := a.Expired(time.Now()); len(got) > 0 {
			t.Errorf("a new one: %q", got)
		}
		if got := a.Expired(time.Now().Add(91 * day)); len(got) != 1 || !strings.Contains(got[0], acmeHost) {
			t.Errorf("after 91 days: %q", got)
		}
	})
}
