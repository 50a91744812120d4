package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadFileIsBounded(t *testing.T) {
	f := &Factory{In: strings.NewReader("12345")}
	if data, err := f.ReadFile("-", 4); err == nil || !strings.Contains(err.Error(), "larger than 4 bytes") {
		t.Errorf("ReadFile = %q, %v", data, err)
	}
	f.In = strings.NewReader("1234")
	if data, err := f.ReadFile("-", 4); err != nil || string(data) != "1234" {
		t.Errorf("ReadFile = %q, %v", data, err)
	}
}

// A file that a flag names may be a device, which never ends, or the pipe that a shell makes for <(command).
func TestFilesOfFlagsAreBounded(t *testing.T) {
	dir := t.TempDir()
	endless, pipe := filepath.Join(dir, "endless"), filepath.Join(dir, "pipe")
	for _, err := range []error{os.Symlink("/dev/zero", endless), syscall.Mkfifo(pipe, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	reads := map[string]func(file string) error{
		"--ca-file":            func(file string) error { _, err := ReadRoots(file); return err },
		"a client certificate": func(file string) error { _, err := ReadPath(file, 1<<20); return err },
	}
	for flag, read := range reads {
		if err := read(endless); err == nil || !strings.Contains(err.Error(), "read "+endless+": it is larger than") {
			t.Errorf("%s of a device: %v", flag, err)
		}
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, []byte("no certificate"), 0) }()
	if err := reads["--ca-file"](pipe); err == nil || !strings.Contains(err.Error(), "it holds no certificate in PEM") {
		t.Errorf("--ca-file of a pipe: %v", err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}
