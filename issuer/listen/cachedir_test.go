package listen

import (
	"errors"
	"fmt"
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
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/test/authority"
)

// Where the cache cannot be written, an order that is due fails, and the CA is not asked. What is served stays. A lock that cannot be
// opened stands for that, which even root cannot pass by; test/contract has a read-only mount.
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
			text := "# HELP keypost_tls_order_failing 1 while the latest order of a certificate from the ACME CA has failed, by host.\n" +
				"# TYPE keypost_tls_order_failing gauge\nkeypost_tls_order_failing{certificate=\"" + hostA + "\"} " + want + "\n"
			reg := prometheus.NewRegistry()
			if err := errors.Join(reg.Register(a), testutil.GatherAndCompare(reg, strings.NewReader(text), "keypost_tls_order_failing")); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(lastRetry + time.Minute) // an hour after the one in the cache was taken
		failing("1")
		if left(a) == 0 || ca.orders(day) > 0 {
			t.Errorf("%v left, %d orders", left(a), ca.orders(day))
		}
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lastRetry)
		failing("0")
		if why := fmt.Sprint(logs.FilterMessageSnippet("not ordered").All()[0].ContextMap()["error"]); !strings.Contains(why, "the CA is not asked, since the certificate cache") {
			t.Errorf("it says %s", why)
		}
	})
}

// The cache is made where the directory above it can be written. Where it cannot be, that is an error.
func TestPrepareMakesTheCache(t *testing.T) {
	above := t.TempDir()
	a, err := NewACME(ACMEConfig{Hosts: []string{hostA}, Cache: filepath.Join(above, "a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(above); err != nil || len(entries) > 0 {
		t.Errorf("it made %v, %v", entries, err)
	}
	if err := a.Prepare(); err != nil {
		t.Error(err)
	}
	writeFile(t, filepath.Join(above, "file"), nil)
	if a, err = NewACME(ACMEConfig{Hosts: []string{hostA}, Cache: filepath.Join(above, "file", "b")}); err == nil && a.Prepare() == nil {
		t.Error("below a file Prepare passes")
	}
}

// Replicas that share a cache may all start at one time, and while one of them orders.
func TestReplicasPrepareTheCacheTogether(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	var g errgroup.Group
	for range 4 {
		a, err := NewACME(ACMEConfig{Hosts: []string{hostA}, Cache: dir})
		if err != nil {
			t.Fatal(err)
		}
		g.Go(func() error {
			for range 20 {
				if err := a.Prepare(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// A key of the account that is damaged is said with the file and what to do, and the CA is not asked.
func TestDamagedAccountKey(t *testing.T) {
	ca := &playedCA{}
	a := replica(t, filepath.Join(t.TempDir(), "cache"), ca)
	account := filepath.Join(a.dir, accountFile)
	for name, damaged := range map[string]string{"no PEM": "garbage", "no key": "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", "empty": ""} {
		writeFile(t, account, []byte(damaged))
		err := a.order(t.Context(), a.hosts[0])
		if err == nil || !strings.Contains(err.Error(), account) || !strings.Contains(err.Error(), "remove the file") || ca.orders(day) > 0 {
			t.Errorf("%s: %v", name, err)
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
