package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
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

func (f *Files) leafOf(i int) []byte { return f.inUse.Load().certs[i].TLS.Leaf.Raw }

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
		}, `no longer for "oidc.example.com"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := writePair(t, t.TempDir(), "tls", inner.Leaf(t, host), inner)
			f := mustLoad(t, []string{host}, p)
			first := f.leafOf(0)
			core, logs := observer.New(zapcore.DebugLevel)
			now := soon.Add(time.Minute)
			tc.spoil(t, p)
			f.reload(t.Context(), now, zap.New(core))
			f.reload(t.Context(), now, zap.New(core)) // says nothing new
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

func TestReloadTellsEachChangeOfState(t *testing.T) {
	root := authority.Named(t, "root", nil)
	dir := t.TempDir()
	p := writePair(t, dir, "tls", root.Leaf(t, "a.example"))
	f := mustLoad(t, []string{"a.example"}, p)
	core, logs := observer.New(zapcore.DebugLevel)
	log := zap.New(core)

	f.reload(t.Context(), time.Now(), log)
	if logs.Len() != 0 {
		t.Fatalf("nothing has changed, yet: %v", logs.All())
	}
	writeFile(t, p.Cert, nil)
	f.reload(t.Context(), time.Now(), log)
	checkOneLine(t, logs, "tls.crt")
	writePair(t, dir, "tls", root.Leaf(t, "b.example"))
	f.reload(t.Context(), time.Now(), log)
	checkOneLine(t, logs, `no longer for "a.example"`)
	writePair(t, dir, "tls", root.Leaf(t, "a.example"))
	f.reload(t.Context(), time.Now(), log)
	checkOneLine(t, logs, "")
	original, _ := os.ReadFile(p.Cert)
	writeFile(t, p.Cert, nil)
	f.reload(t.Context(), time.Now(), log)
	checkOneLine(t, logs, "tls.crt")
	writeFile(t, p.Cert, original)
	f.reload(t.Context(), time.Now(), log)
	checkOneLine(t, logs, "")
	if failingMetric(t, f) != 0 {
		t.Error("still failing")
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

	oldA, oldB = f.leafOf(0), f.leafOf(1)
	writePair(t, dir, "a", root.Leaf(t, "a.example", "y.example"))
	writePair(t, dir, "b", root.Leaf(t, "b.example"))
	f.reload(t.Context(), time.Now(), log)
	if string(f.leafOf(0)) == string(oldA) || string(f.leafOf(1)) != string(oldB) {
		t.Error("only the pair that loses x.example is to be refused")
	}
}

// watched serves a pair with its Watch running; served tells which leaf a new
// connection gets.
func watched(t *testing.T, p Pair) (served func() string, logs *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	address, _ := start(t, Config{Handler: okHandler, Certificates: mustLoad(t, []string{"a.example"}, p), Log: zap.New(core)})
	return func() string {
		conn, err := tls.Dial("tcp", address, &tls.Config{ServerName: "a.example", InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return string(conn.ConnectionState().PeerCertificates[0].Raw)
	}, logs
}

func TestWatchSeesAPlainRewrite(t *testing.T) {
	root := authority.Named(t, "root", nil)
	dir := t.TempDir()
	served, logs := watched(t, writePair(t, dir, "tls", root.Leaf(t, "a.example")))

	writeFile(t, filepath.Join(dir, "tls.crt"), []byte("rubbish"))
	eventually(t, "the bad pair is reported", func() bool { return logs.FilterLevelExact(zapcore.WarnLevel).Len() == 1 })
	served() // still a handshake

	next := root.Leaf(t, "a.example")
	writePair(t, dir, "tls", next)
	eventually(t, "the new pair is served", func() bool { return served() == string(next.Cert.Raw) })
}

func TestWatchSeesARenamedFile(t *testing.T) {
	root := authority.Named(t, "root", nil)
	dir, staging := t.TempDir(), t.TempDir()
	served, _ := watched(t, writePair(t, dir, "tls", root.Leaf(t, "a.example")))
	for range 2 { // the second time no watch on the first file would still tell
		next := root.Leaf(t, "a.example")
		p := writePair(t, staging, "tls", next)
		for _, from := range []string{p.Key, p.Cert} {
			if err := os.Rename(from, filepath.Join(dir, filepath.Base(from))); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the new pair is served", func() bool { return served() == string(next.Cert.Raw) })
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

func TestWatchSeesASecretUpdate(t *testing.T) {
	root := authority.Named(t, "root", nil)
	dir := t.TempDir()
	mountSecret(t, dir, "..v0", root.Leaf(t, "a.example"))
	p := Pair{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	for _, f := range []string{p.Cert, p.Key} {
		if err := os.Symlink(filepath.Join("..data", filepath.Base(f)), f); err != nil {
			t.Fatal(err)
		}
	}
	served, _ := watched(t, p)
	for _, version := range []string{"..v1", "..v2"} {
		next := root.Leaf(t, "a.example")
		mountSecret(t, dir, version, next)
		eventually(t, "the new pair is served", func() bool { return served() == string(next.Cert.Raw) })
	}
}

func TestNoticesOutliveTheirDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	p := Pair{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	n, err := newFileWatch(t.Context(), []Pair{p})
	if err == nil {
		t.Error("a missing directory is not reported")
	}
	defer n.close()
	for range 2 {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := n.add(t.Context()); err != nil {
			t.Fatal(err)
		}
		writeFile(t, p.Cert, nil)
		eventually(t, "a notice arrives", func() bool { return arrived(n) })
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the watch on the removed directory is gone", func() bool { arrived(n); return len(n.watcher.WatchList()) == 0 })
		for arrived(n) { // what was told of the first directory must not count for the second
		}
	}
}

func arrived(n *fileWatch) bool {
	select {
	case <-n.changed:
		return true
	default:
		return false
	}
}

func TestWatchReadsFilesThatChangedBeforeIt(t *testing.T) {
	root := authority.Named(t, "root", nil)
	dir := t.TempDir()
	f := mustLoad(t, nil, writePair(t, dir, "tls", root.Leaf(t, "a.example")))
	next := root.Leaf(t, "a.example")
	writePair(t, dir, "tls", next)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Watch(ctx, zap.NewNop()) }()
	eventually(t, "the new pair is served", func() bool { return string(f.leafOf(0)) == string(next.Cert.Raw) })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// following runs the reload loop in a synctest bubble, with changes as its only notices.
func following(t *testing.T, f *Files, changes chan fsnotify.Event) *observer.ObservedLogs {
	core, logs := observer.New(zapcore.DebugLevel)
	go f.follow(t.Context(), &fileWatch{changed: changes}, zap.New(core))
	time.Sleep(quietFor + 1) // past the first look
	synctest.Wait()
	return logs
}

func TestPollFindsWhatNobodyAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := authority.Named(t, "root", nil)
		dir := t.TempDir()
		f := mustLoad(t, nil, writePair(t, dir, "tls", root.Leaf(t, "a.example")))
		following(t, f, nil)
		next := root.Leaf(t, "a.example")
		writePair(t, dir, "tls", next)
		time.Sleep(pollEvery)
		synctest.Wait()
		if string(f.leafOf(0)) != string(next.Cert.Raw) {
			t.Error("the new pair is not in use after a poll")
		}
	})
}

func TestPollNoticesThatTimeHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := authority.Named(t, "root", nil)
		f := mustLoad(t, nil, writePair(t, t.TempDir(), "tls", leafUntil(t, root, time.Now().Add(time.Hour), "a.example")))
		logs := following(t, f, nil)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if failingMetric(t, f) != 1 {
			t.Error("an expired certificate in use raises no alarm")
		}
		checkOneLine(t, logs, "expired at")
	})
}

func TestAPairWrittenInTwoStepsIsJudgedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := authority.Named(t, "root", nil)
		p := writePair(t, t.TempDir(), "tls", root.Leaf(t, "a.example"))
		f := mustLoad(t, nil, p)
		changes := make(chan fsnotify.Event)
		logs := following(t, f, changes)
		next := root.Leaf(t, "a.example")
		writeFile(t, p.Cert, authority.ChainPEM(next))
		changes <- fsnotify.Event{Name: p.Cert}
		time.Sleep(quietFor - 1)
		writeFile(t, p.Key, next.KeyPEM(t))
		changes <- fsnotify.Event{Name: p.Key}
		time.Sleep(quietFor + 1)
		synctest.Wait()
		if string(f.leafOf(0)) != string(next.Cert.Raw) {
			t.Error("the new pair is not in use")
		}
		checkOneLine(t, logs, "")
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
