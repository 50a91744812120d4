package claim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T, file string) *Lock {
	t.Helper()
	l, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestOneHasTheLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, file), open(t, file)
	if got := second.Holder(); got != "a process that did not say who it is" {
		t.Errorf("nobody has it: %q", got)
	}
	if err := first.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(t.Context(), 0); !errors.Is(err, ErrBusy) {
		t.Errorf("two have it: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := second.Wait(ended, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("it waits on: %v", err)
	}
	if got := second.Holder(); got != first.Said() || !strings.HasPrefix(got, fmt.Sprintf("process %d on ", os.Getpid())) || second.Said() != "" {
		t.Errorf("the holder is %q, and says %q", got, first.Said())
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(t.Context(), 0); err != nil || second.Said() == first.Said() || second.Holder() != second.Said() {
		t.Errorf("afterwards: %v, the holder is %q", err, second.Holder())
	}
}

// The file may be anybody's who may write to the directory.
func TestHolderIsSafe(t *testing.T) {
	for said, want := range map[string]string{
		"a\x1b[2Jb\n":                     "a?[2Jb",
		"half a line":                     "a process that did not say who it is",
		strings.Repeat("x", 1<<20) + "\n": "a process that did not say who it is",
		"process 1 on a, since x\nmore\n": "process 1 on a, since x",
	} {
		file := filepath.Join(t.TempDir(), "lock")
		if err := os.WriteFile(file, []byte(said), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := open(t, file).Holder(); got != want {
			t.Errorf("%.40q: %q", said, got)
		}
	}
}
