package listen

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/acme/autocert"

	"github.com/keypost/keypost/internal/hang"
)

// What a power cut has left empty counts as never written; what is there is returned whole.
func TestEmptyCacheEntries(t *testing.T) {
	dir := t.TempDir()
	c := newPatientCache(autocert.DirCache(dir), new(hang.Guard))
	writeFile(t, filepath.Join(dir, "acme_account+key"), nil)
	writeFile(t, filepath.Join(dir, "oidc.example.com"), []byte("x"))
	for key, want := range map[string]string{"acme_account+key": "", "absent": "", "oidc.example.com": "x"} {
		data, err := c.Get(t.Context(), key)
		if string(data) != want || (err == nil) != (want != "") || want == "" && !errors.Is(err, autocert.ErrCacheMiss) {
			t.Errorf("%s: %q, %v", key, data, err)
		}
	}
}

// What strangers have read holds up nobody but strangers, and a file that waits behind theirs does not hang. No more readings than
// readingsAtOnce of theirs are under way, which each keep a thread.
func TestReadingsBehindStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := newPatientCache(autocert.DirCache(t.TempDir()), new(hang.Guard))
		var slow, under, most atomic.Int64
		slow.Store(int64(1500 * time.Millisecond))
		own.read = func(file string, _ int64) ([]byte, error) {
			if !strings.Contains(file, "+http-01") {
				return []byte("own"), nil
			}
			n := under.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Duration(slow.Load()))
			under.Add(-1)
			return []byte("answer"), nil
		}
		strangers := own.forStrangers()
		crowd := func(of string) {
			for i := range readingsAtOnce {
				go func() { _, _ = strangers.Get(t.Context(), fmt.Sprintf("%s%d+http-01", of, i)) }()
			}
			synctest.Wait()
		}
		crowd("slow")
		began := time.Now()
		if data, err := strangers.Get(t.Context(), "token+http-01"); string(data) != "answer" || time.Since(began) != 3*time.Second {
			t.Errorf("behind slow ones: %q, %v after %v", data, err, time.Since(began))
		}
		slow.Store(int64(time.Hour))
		crowd("hung")
		began = time.Now()
		if data, err := strangers.Get(t.Context(), "token+http-01"); !errors.Is(err, autocert.ErrCacheMiss) || time.Since(began) != hang.Patience {
			t.Errorf("behind some that hang: %q, %v after %v", data, err, time.Since(began))
		}
		if n := most.Load(); n != readingsAtOnce {
			t.Errorf("%d readings at once", n)
		}
		time.Sleep(time.Hour)
		slow.Store(0)
		if data, err := strangers.Get(t.Context(), "token+http-01"); string(data) != "answer" {
			t.Errorf("afterwards: %q, %v", data, err)
		}
		time.Sleep(2 * time.Hour) // what hangs ends with the test
	})
}
