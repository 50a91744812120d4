package listen

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/test/authority"
)

func mustLoad(t *testing.T, hosts []string, pairs ...Pair) *Files {
	t.Helper()
	f, err := LoadFiles(pairs, hosts)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Files) leafOf(i int) []byte { return (*f.inUse.Load())[i].TLS.Leaf.Raw }

// failingMetric reads keypost_tls_reload_failing.
func failingMetric(t *testing.T, f *Files) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	if err := reg.Register(f); err != nil {
		t.Fatal(err)
	}
	return gathered(t, reg, "keypost_tls_reload_failing")
}

func TestReloadJudges(t *testing.T) {
	const host = "oidc.example.com"
	root := authority.Named(t, "root", nil)
	inner := authority.Named(t, "inner", root)
	soon := time.Now().Add(time.Minute)
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, p Pair)
		want  string // part of the warning; "" means taken
	}{
		{"renewed", func(t *testing.T, p Pair) { writePair(t, filepath.Dir(p.Cert), "tls", inner.Leaf(t, host), inner) }, ""},
		{"renewed under a wildcard", func(t *testing.T, p Pair) {
			writePair(t, filepath.Dir(p.Cert), "tls", inner.Leaf(t, "*.example.com"), inner)
		}, ""},
		{"no certificate", func(t *testing.T, p Pair) { os.Remove(p.Cert) }, "no such file"},
		{"no key", func(t *testing.T, p Pair) { os.Remove(p.Key) }, "no such file"},
		{"emptied", func(t *testing.T, p Pair) { writeFile(t, p.Cert, nil) }, "tls.crt"},
		{"half a file", func(t *testing.T, p Pair) { writeFile(t, p.Cert, authority.ChainPEM(inner.Leaf(t, host))[:200]) }, "tls.crt"},
		{"key left behind", func(t *testing.T, p Pair) { writeFile(t, p.Cert, authority.ChainPEM(inner.Leaf(t, host), inner)) }, "does not match"},
		{"expired", func(t *testing.T, p Pair) {
			writePair(t, filepath.Dir(p.Cert), "tls", leafUntil(t, inner, soon, host), inner)
		}, "expired at"},
		{"not yet valid", func(t *testing.T, p Pair) {
			writePair(t, filepath.Dir(p.Cert), "tls", leafUntil(t, inner, soon.Add(48*time.Hour), host), inner)
		}, "not valid before"},
		{"chain out of order", func(t *testing.T, p Pair) {
			writePair(t, filepath.Dir(p.Cert), "tls", inner.Leaf(t, host), root, inner)
		}, "did not sign"},
		{"another host", func(t *testing.T, p Pair) {
			writePair(t, filepath.Dir(p.Cert), "tls", inner.Leaf(t, "b.example.com"), inner)
		}, `none would be for "oidc.example.com"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := writePair(t, t.TempDir(), "tls", inner.Leaf(t, host), inner)
			f := mustLoad(t, []string{host}, p)
			first := f.leafOf(0)
			core, logs := observer.New(zapcore.DebugLevel)
			now := soon.Add(time.Minute)
			tc.spoil(t, p)
			for range 3 { // trouble is told when it stays, and once
				f.reload(t.Context(), now, zap.New(core))
			}
			if kept := string(first) == string(f.leafOf(0)); kept != (tc.want != "") {
				t.Errorf("previous certificate kept: %v", kept)
			}
			if got := failingMetric(t, f) == 1; got != (tc.want != "") {
				t.Errorf("keypost_tls_reload_failing set: %v", got)
			}
			checkOneLine(t, logs, tc.want)
		})
	}
}

// checkOneLine wants one Warn with part in its error, or one Info when part is "".
func checkOneLine(t *testing.T, logs *observer.ObservedLogs, part string) {
	t.Helper()
	if logs.Len() != 1 {
		t.Fatalf("got %d lines, want one: %v", logs.Len(), logs.All())
	}
	line := logs.TakeAll()[0]
	if part == "" {
		if line.Level != zapcore.InfoLevel {
			t.Errorf("got %v", line)
		}
		return
	}
	if text, _ := line.ContextMap()["error"].(string); line.Level != zapcore.WarnLevel || !strings.Contains(text, part) {
		t.Errorf("got %v, want a warning with %q", line, part)
	}
}

func TestReloadJudgesPairsOneByOne(t *testing.T) {
	root := authority.Named(t, "root", nil)
	dir := t.TempDir()
	a, b := writePair(t, dir, "a", root.Leaf(t, "a.example", "x.example")), writePair(t, dir, "b", root.Leaf(t, "b.example"))
	f := mustLoad(t, []string{"a.example", "b.example", "x.example"}, a, b)
	log := zap.NewNop()

	oldA, oldB := f.leafOf(0), f.leafOf(1)
	writeFile(t, a.Cert, nil)
	writePair(t, dir, "b", root.Leaf(t, "b.example"))
	f.reload(t.Context(), time.Now(), log)
	if string(f.leafOf(0)) != string(oldA) || string(f.leafOf(1)) == string(oldB) {
		t.Error("a broken first pair must not keep the second from being replaced")
	}

	writePair(t, dir, "a", root.Leaf(t, "a.example"))
	writePair(t, dir, "b", root.Leaf(t, "b.example", "x.example"))
	f.reload(t.Context(), time.Now(), log)
	if string(f.leafOf(0)) == string(oldA) || failingMetric(t, f) != 0 {
		t.Error("a name may move from one pair to another")
	}

	oldA = f.leafOf(0)
	writePair(t, dir, "b", root.Leaf(t, "b.example"))
	oldB = f.leafOf(1)
	f.reload(t.Context(), time.Now(), log)
	f.reload(t.Context(), time.Now(), log)
	if string(f.leafOf(0)) != string(oldA) || string(f.leafOf(1)) != string(oldB) || failingMetric(t, f) != 1 {
		t.Error("the pair that loses x.example is to be refused")
	}
}

// mountSecret writes leaf the way kubelet does: into a directory of its own, to
// which the symlink "..data" is then switched by a rename.
func mountSecret(t *testing.T, dir, version string, leaf *authority.Authority) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
		t.Fatal(err)
	}
	writePair(t, filepath.Join(dir, version), "tls", leaf)
	link := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(version, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// However files are replaced, the next poll finds them.
func TestWatchSeesNewFiles(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, dir string, next *authority.Authority){
		"written anew": func(t *testing.T, dir string, next *authority.Authority) { writePair(t, dir, "tls", next) },
		"in a directory that is made again": func(t *testing.T, dir string, next *authority.Authority) {
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
				t.Fatal(err)
			}
			writePair(t, dir, "tls", next)
		},
		"in a Secret": func(t *testing.T, dir string, next *authority.Authority) {
			mountSecret(t, dir, "..v"+next.Cert.SerialNumber.String(), next)
			for _, f := range []string{"tls.crt", "tls.key"} {
				os.Remove(filepath.Join(dir, f))
				if err := os.Symlink(filepath.Join("..data", f), filepath.Join(dir, f)); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := authority.Named(t, "root", nil)
				dir := filepath.Join(t.TempDir(), "tls")
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				f := mustLoad(t, nil, writePair(t, dir, "tls", root.Leaf(t, "a.example")))
				logs := following(t, f)
				for range 2 {
					next := root.Leaf(t, "a.example")
					replace(t, dir, next)
					time.Sleep(pollEvery)
					synctest.Wait()
					if string(f.leafOf(0)) != string(next.Cert.Raw) {
						t.Error("the new pair is not in use after a poll")
					}
					checkOneLine(t, logs, "")
				}
			})
		})
	}
}

// following runs the reload loop in a synctest bubble.
func following(t *testing.T, f *Files) *observer.ObservedLogs {
	core, logs := observer.New(zapcore.DebugLevel)
	go f.Watch(t.Context(), zap.New(core))
	synctest.Wait()
	return logs
}

func TestPollNoticesThatTimeHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := authority.Named(t, "root", nil)
		f := mustLoad(t, nil, writePair(t, t.TempDir(), "tls", leafUntil(t, root, time.Now().Add(time.Minute), "a.example")))
		logs := following(t, f)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if failingMetric(t, f) != 1 {
			t.Error("an expired certificate in use raises no alarm")
		}
		checkOneLine(t, logs, "expired at")
	})
}

func TestOpenKeyFileIsOnlyAWarning(t *testing.T) {
	root := authority.Named(t, "root", nil)
	p := writePair(t, t.TempDir(), "tls", root.Leaf(t, "a.example"))
	f := mustLoad(t, nil, p)
	core, logs := observer.New(zapcore.DebugLevel)
	f.warnOpenKeys(t.Context(), zap.New(core))
	if logs.Len() != 0 {
		t.Errorf("0600 was warned about: %v", logs.All())
	}
	if err := os.Chmod(p.Key, 0o640); err != nil {
		t.Fatal(err)
	}
	f.warnOpenKeys(t.Context(), zap.New(core))
	if logs.FilterLevelExact(zapcore.WarnLevel).Len() != 1 {
		t.Errorf("got %v", logs.All())
	}
}

func TestNotAfterIsTheFirstExpiryOfTheChain(t *testing.T) {
	root := authority.Named(t, "root", nil)
	short := leafUntil(t, root, time.Now().Add(time.Hour), "a.example")
	f := mustLoad(t, nil, writePair(t, t.TempDir(), "tls", short, root))
	reg := prometheus.NewRegistry()
	if err := reg.Register(f); err != nil {
		t.Fatal(err)
	}
	got := gathered(t, reg, "keypost_tls_certificate_not_after_timestamp_seconds")
	if want := float64(short.Cert.NotAfter.Unix()); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A file system that hangs is told like any other trouble, and is not read a second time meanwhile: every pair stays as it is.
func TestReadingThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := authority.Named(t, "root", nil) // in here, where it is another day
		dir := t.TempDir()
		hangs := writePair(t, dir, "hangs", root.Leaf(t, "a.example.com"))
		other := writePair(t, dir, "other", root.Leaf(t, "b.example.com"))
		f := mustLoad(t, nil, hangs, other)
		first, second := f.leafOf(0), f.leafOf(1)
		free := make(chan struct{})
		err := hang.Do(t.Context(), &f.hangs, hangs.Cert, func() error { <-free; return nil }) // one that does not end
		if hanging := (*hang.Error)(nil); !errors.As(err, &hanging) {
			t.Fatal(err)
		}
		writePair(t, dir, "other", root.Leaf(t, "b.example.com"))
		core, logs := observer.New(zapcore.DebugLevel)
		began := time.Now()
		f.reload(t.Context(), time.Now(), zap.New(core))
		f.reload(t.Context(), time.Now(), zap.New(core))
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		if logs.FilterMessageSnippet("not taken").Len() != 2 || !f.failing.Load() {
			t.Errorf("failing %v, logged %v", f.failing.Load(), logs.All())
		}
		if string(f.leafOf(0)) != string(first) || string(f.leafOf(1)) != string(second) {
			t.Error("a pair was replaced although the file system hangs")
		}
		close(free)
		synctest.Wait()
		f.reload(t.Context(), time.Now(), zap.New(core))
		if f.failing.Load() || string(f.leafOf(1)) == string(second) {
			t.Error("it is not taken again after it has ended")
		}
	})
}
