package contract

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keypost/keypost/keystore"
)

// withTLS replaces the line of the configuration about certificates.
func (s settings) withTLS(t *testing.T, line string) {
	t.Helper()
	s.write(t)
	text, err := os.ReadFile(s.config)
	must(t, err)
	before, after, found := strings.Cut(string(text), "  tls: {")
	_, after, ends := strings.Cut(after, "\n")
	if !found || !ends {
		t.Fatalf("no line about certificates in %s", text)
	}
	must(t, os.WriteFile(s.config, []byte(before+line+"\n"+after), 0o644))
}

// withACME configures a CA that does not answer.
func (s settings) withACME(t *testing.T, more string) {
	t.Helper()
	s.withTLS(t, fmt.Sprintf("  tls: {mode: acme, acme: {acceptTerms: true, directory: \"https://127.0.0.1:1/dir\", cache: %q, "+
		"hosts: [oidc.example.com, prod-b.oidc.example.com, shared.example.com, d111.example.net, origin.example.net]%s}}", s.beside("cache"), more))
}

// blockedStarts are files that a start reads. Each gets the settings and the path that blocks, which it may put anywhere.
var blockedStarts = map[string]func(t *testing.T, s settings, blocks string){
	"certificate": func(t *testing.T, s settings, blocks string) {
		s.withTLS(t, fmt.Sprintf("  tls: {files: [{cert: %q, key: %q}]}", blocks, s.beside("tls.key")))
	},
	"key": func(t *testing.T, s settings, blocks string) {
		s.withTLS(t, fmt.Sprintf("  tls: {files: [{cert: %q, key: %q}]}", s.beside("tls.crt"), blocks))
	},
	"shield header": func(t *testing.T, s settings, blocks string) {
		s.withTLS(t, fmt.Sprintf("  tls: {files: [{cert: %q, key: %q}]}\n  shield: {header: X-Origin-Secret, secretFiles: [%q]}", s.beside("tls.crt"), s.beside("tls.key"), blocks))
	},
	"shield CA": func(t *testing.T, s settings, blocks string) {
		s.withTLS(t, fmt.Sprintf("  tls: {files: [{cert: %q, key: %q}]}\n  shield: {clientCAFile: %q}", s.beside("tls.crt"), s.beside("tls.key"), blocks))
	},
	"ACME account": func(t *testing.T, s settings, blocks string) {
		s.withACME(t, fmt.Sprintf(", externalAccount: {keyID: k, hmacKeyFile: %q}", blocks))
	},
	"ACME CA": func(t *testing.T, s settings, blocks string) { s.withACME(t, fmt.Sprintf(", caFile: %q", blocks)) },
}

// refuses runs keypostd, which must end by itself with one sentence that names the file.
func refuses(t *testing.T, config, file string) {
	t.Helper()
	began := time.Now()
	code, stdout, stderr := run(t, "--config", config)
	if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "keypostd: ") || !strings.Contains(stderr, file) {
		t.Errorf("exit %d:\n%s%s", code, stdout, stderr)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	t.Log(strings.TrimSpace(stderr))
}

// A start that meets a pipe in place of a file that it needs says so and ends.
func TestStartRefusesPipes(t *testing.T) {
	t.Parallel()
	for name, put := range blockedStarts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSettings(t)
			must(t, syscall.Mkfifo(s.beside("pipe"), 0o644))
			put(t, s, s.beside("pipe"))
			refuses(t, s.config, s.beside("pipe"))
		})
	}
	t.Run("configuration", func(t *testing.T) {
		t.Parallel()
		s := newSettings(t)
		must(t, syscall.Mkfifo(s.config, 0o644))
		refuses(t, s.config, s.config)
	})
}

// bounded fails the test when many threads wait, and asks whether the server is ready and alive.
func (v *server) bounded(t *testing.T) {
	t.Helper()
	n, err := strconv.Atoi(v.metric(t, "go_threads"))
	if err != nil || n > 100 {
		t.Errorf("%d threads, %v", n, err)
	}
	for _, path := range []string{"/readyz", "/livez"} {
		if status, body := v.ask(t, path); status != http.StatusOK {
			t.Errorf("%s answers %d %s", path, status, body)
		}
	}
}

// takesSignals fails the test when the main thread waits for a file system: the kernel gives SIGTERM to that thread, which does not
// take it before the file system answers.
func (v *server) takesSignals(t *testing.T) {
	t.Helper()
	waits, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/wchan", v.PID()))
	must(t, err)
	if !strings.HasPrefix(string(waits), "futex") && string(waits) != "0" { // 0: it runs, or this kernel does not say
		t.Errorf("the main thread waits in %s", waits)
	}
}

// hungMount mounts a file system whose server never answers over a directory, for this goroutine and the processes that it
// starts. The function that it returns ends that.
func hungMount(t *testing.T, dir string) (end func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	must(t, unix.Mount("hung", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", fd, os.Getuid(), os.Getgid())))
	ended := false
	end = func() {
		if !ended {
			ended = true
			must(t, unix.Close(fd)) // anyone who waits gets an error
			must(t, unix.Unmount(dir, unix.MNT_DETACH))
		}
	}
	t.Cleanup(end)
	return end
}

// notice makes a file in a directory over which something is mounted, so that anyone who watches it looks again.
func notice(t *testing.T, dir *os.File) {
	t.Helper()
	fd, err := unix.Openat(int(dir.Fd()), fmt.Sprintf("notice-%d", time.Now().UnixNano()), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	must(t, err)
	must(t, unix.Close(fd))
}

// ownMounts gives this goroutine, which must be a test's, mounts that no other process of this machine sees.
func ownMounts() error {
	runtime.LockOSThread() // and never unlocks it: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

func needsFUSE(t *testing.T) {
	t.Helper()
	can := make(chan error)
	go func() { can <- ownMounts() }()
	err := <-can
	if err == nil {
		var fd int
		fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Close(fd)
		}
	}
	if err != nil {
		t.Skipf("a file system that hangs needs FUSE and the right to mount it: %v", err)
	}
}

// A mount that hangs, whatever is on it: what was served stays served, probes and metrics answer, and SIGTERM ends the
// process in its time. When it answers again, changes are served again.
func TestHungMount(t *testing.T) {
	needsFUSE(t)
	for name, tc := range map[string]struct {
		dir    string // below the settings
		seen   string // a metric that shows it
		set    func(t *testing.T, s settings)
		mended func(t *testing.T, e *estate, v *server)
	}{
		"key sets": {"keysets", "keypost_key_sets_read_failing", func(t *testing.T, s settings) { s.write(t) }, func(t *testing.T, e *estate, v *server) {
			e.mend()
			v.awaitMended(t)
		}},
		"certificates": {"tls", "keypost_tls_reload_failing", func(t *testing.T, s settings) { s.withTLSApart(t) }, func(t *testing.T, _ *estate, v *server) {
			v.awaitMetric(t, "keypost_tls_reload_failing", "0")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			must(t, ownMounts())
			e := newEstate(t)
			tc.set(t, e.settings)
			v := startWith(t, e.settings, "--config", e.config)
			v.Await(t, "ready", v.isReady)
			p := v.rely(t, urlA, []keystore.VerificationKey{e.stays, e.alsoStays}, []keystore.VerificationKey{e.leaked})
			before, err := os.Open(e.beside(tc.dir))
			must(t, err)
			defer before.Close()
			end := hungMount(t, e.beside(tc.dir))
			notice(t, before)
			v.awaitMetric(t, tc.seen, "1")
			p.more(200)
			v.bounded(t)
			end()
			time.Sleep(100 * time.Millisecond) // in which anyone who waited gets its error
			notice(t, before)
			tc.mended(t, e, v)
			p.more(20)
			hungMount(t, e.beside(tc.dir))
			time.Sleep(1500 * time.Millisecond) // each poll is one of them
			p.more(20)
			p.end()
			v.takesSignals(t)
			began := time.Now()
			if code := v.stop(t); code != 0 {
				t.Errorf("exit %d after SIGTERM", code)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v to end", took)
			}
		})
	}
	t.Run("certificate cache", func(t *testing.T) {
		t.Parallel()
		must(t, ownMounts())
		e := newEstate(t)
		e.withACME(t, "")
		must(t, os.Mkdir(e.beside("cache"), 0o700))
		v := startWith(t, e.settings, "--config", e.config)
		v.Await(t, "ready", v.isReady)
		hungMount(t, e.beside("cache"))
		for range 100 {
			if conn, err := tls.Dial("tcp", v.public, &tls.Config{ServerName: "oidc.example.com", NextProtos: []string{"acme-tls/1"}, InsecureSkipVerify: true}); err == nil {
				_ = conn.Close()
			}
		}
		v.bounded(t)
		v.takesSignals(t)
		if code := v.stop(t); code != 0 {
			t.Errorf("exit %d after SIGTERM", code)
		}
	})
	// These have mounts of their own: while one process waits for a name in a directory, the kernel keeps another that asks for the
	// same name from ending.
	for name, put := range blockedStarts {
		t.Run("start with "+name, func(t *testing.T) {
			t.Parallel()
			must(t, ownMounts())
			s := newSettings(t)
			must(t, os.Mkdir(s.beside("hung"), 0o755))
			hungMount(t, s.beside("hung"))
			put(t, s, s.beside("hung/file"))
			refuses(t, s.config, s.beside("hung/file"))
		})
	}
	t.Run("start with key sets", func(t *testing.T) {
		t.Parallel()
		must(t, ownMounts())
		s := newSettings(t)
		s.write(t)
		hungMount(t, s.dir)
		refuses(t, s.config, s.dir)
	})
	t.Run("start with certificate cache", func(t *testing.T) {
		t.Parallel()
		must(t, ownMounts())
		s := newSettings(t)
		s.withACME(t, "")
		must(t, os.Mkdir(s.beside("cache"), 0o700))
		hungMount(t, s.beside("cache"))
		refuses(t, s.config, s.beside("cache"))
	})
	t.Run("start with configuration", func(t *testing.T) {
		t.Parallel()
		must(t, ownMounts())
		dir := t.TempDir()
		hungMount(t, dir)
		refuses(t, filepath.Join(dir, "keypostd.yaml"), dir)
	})
}

// withTLSApart has the certificates in a directory of their own.
func (s settings) withTLSApart(t *testing.T) {
	t.Helper()
	must(t, os.Mkdir(s.beside("tls"), 0o755))
	for _, name := range []string{"tls.crt", "tls.key"} {
		must(t, os.Rename(s.beside(name), s.beside("tls/"+name)))
	}
	s.withTLS(t, fmt.Sprintf("  tls: {files: [{cert: %q, key: %q}]}", s.beside("tls/tls.crt"), s.beside("tls/tls.key")))
}
