package listen

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keypost/keypost/test/authority"
)

// That the cache cannot be written is told long before a certificate is due, and so is its end. What is served stays. A lock that
// cannot be opened stands for that, which even root cannot pass by; test/contract has a read-only mount.
func TestCacheCannotBeWritten(t *testing.T) {
	root := authority.Named(t, "root", nil)
	synctest.Test(t, func(t *testing.T) {
		ca := &playedCA{chain: []*authority.Authority{root}, times: living(90 * day)}
		a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
		puts(t, a, root, -89*day, day) // is due
		lock := filepath.Join(a.dir, lockFile)
		if err := os.Mkdir(lock, 0o700); err != nil {
			t.Fatal(err)
		}
		core, logs := observer.New(zap.InfoLevel)
		stop := watching(t, zap.New(core), a)
		defer stop()
		failing := func(want string) {
			t.Helper()
			text := "# HELP keypost_tls_order_failing 1 while the latest order of a certificate from the ACME CA has failed, or none can be made since the cache cannot be written, by host.\n" +
				"# TYPE keypost_tls_order_failing gauge\nkeypost_tls_order_failing{certificate=\"" + hostA + "\"} " + want + "\n"
			reg := prometheus.NewRegistry()
			if err := errors.Join(reg.Register(a), testutil.GatherAndCompare(reg, strings.NewReader(text), "keypost_tls_order_failing")); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(10 * time.Minute)
		failing("1")
		if left(a) == 0 || ca.orders(day) > 0 {
			t.Errorf("%v left, %d orders", left(a), ca.orders(day))
		}
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lookEvery)
		failing("0")
		said := logs.FilterMessageSnippet("certificate cache").All()
		if len(said) != 2 || !strings.Contains(said[0].Message, "cannot be written") || !strings.Contains(said[1].Message, "again") {
			t.Errorf("said: %v", said)
		}
	})
}

// A cache that is not there yet can be made where the directory above it can be written; nothing is made by asking.
func TestWritableMakesNothing(t *testing.T) {
	above := t.TempDir()
	a, err := NewACME(ACMEConfig{Hosts: []string{hostA}, Cache: filepath.Join(above, "a", "b")})
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

// A key of the account that is damaged is said with the file and what to do, and the CA is not asked.
func TestDamagedAccountKey(t *testing.T) {
	ca := &playedCA{}
	a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
	if err := a.CheckAccount(); err != nil {
		t.Errorf("no account yet: %v", err)
	}
	account := filepath.Join(a.dir, accountFile)
	for name, damaged := range map[string]string{"no PEM": "garbage", "no key": "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", "empty": ""} {
		writeFile(t, account, []byte(damaged))
		for _, err := range []error{a.CheckAccount(), a.order(t.Context(), a.hosts[0])} {
			if err == nil || !strings.Contains(err.Error(), account) || !strings.Contains(err.Error(), "remove the file") || ca.orders(day) > 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := os.Remove(account); err != nil {
		t.Fatal(err)
	}
	made, err := a.accountKey()
	if err != nil {
		t.Fatal(err)
	}
	if same, err := a.accountKey(); err != nil || !reflect.DeepEqual(made.Public(), same.Public()) {
		t.Errorf("the key that was made is not read again: %v", err)
	}
}
