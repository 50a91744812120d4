package regular

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const limit = 100

// Whatever has the name of a file, reading it returns.
func TestRead(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, os.WriteFile("file", []byte("content"), 0o600))
	must(t, os.WriteFile("full", bytes.Repeat([]byte("x"), limit), 0o600))
	must(t, os.WriteFile("large", bytes.Repeat([]byte("x"), limit+1), 0o600))
	must(t, os.WriteFile("empty", nil, 0o600))
	must(t, os.Symlink("file", "link"))
	must(t, os.Symlink("nowhere", "dangling"))
	must(t, os.Mkdir("dir", 0o700))
	must(t, syscall.Mkfifo("pipe", 0o600))
	must(t, os.Symlink("/dev/zero", "device"))
	must(t, os.Symlink("/proc/uptime", "kernel")) // claims to be a regular file without a byte
	l, err := net.Listen("unix", "socket")
	must(t, err)
	defer l.Close()
	root, err := os.OpenRoot(".")
	must(t, err)
	defer root.Close()
	for _, tt := range []struct {
		name string
		size int
		err  error
	}{
		{"file", 7, nil}, {"full", limit, nil}, {"link", 7, nil}, {"empty", 0, nil}, {"kernel", 0, nil},
		{"large", 0, ErrUnfit}, {"dir", 0, ErrUnfit}, {"pipe", 0, ErrUnfit}, {"device", 0, ErrUnfit}, {"socket", 0, ErrUnfit},
		{"dangling", 0, fs.ErrNotExist}, {"absent", 0, fs.ErrNotExist},
	} {
		for how, read := range map[string]func() ([]byte, error){
			"Read":   func() ([]byte, error) { return Read(filepath.Join(".", tt.name), limit) },
			"ReadIn": func() ([]byte, error) { return ReadIn(root, tt.name, limit) },
		} {
			if how == "ReadIn" && (tt.name == "device" || tt.name == "kernel") { // which lead out of root
				if data, err := within(t, read); err == nil || data != nil {
					t.Errorf("%s %s: %q, %v", how, tt.name, data, err)
				}
				continue
			}
			if data, err := within(t, read); len(data) != tt.size || !errors.Is(err, tt.err) {
				t.Errorf("%s %s: %d bytes, %v", how, tt.name, len(data), err)
			}
		}
	}
}

func within(t *testing.T, read func() ([]byte, error)) (data []byte, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); data, err = read() }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("it waits")
	}
	return data, err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
