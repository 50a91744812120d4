package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/keystore"
)

// What is told about the key set is what happened to it.
func TestStopped(t *testing.T) {
	root := &cobra.Command{Use: "keypost"}
	for _, words := range [][]string{{"key", "list", "add"}, {"aws", "create-all"}, {"export"}} {
		group := &cobra.Command{Use: words[0]}
		for _, name := range words[1:] {
			group.AddCommand(&cobra.Command{Use: name})
		}
		root.AddCommand(group)
	}
	for name, tt := range map[string]struct {
		command string
		write   error // of Put; nil is a write that succeeds
		written bool
		want    string
	}{
		"nothing":   {command: "key list", want: "interrupted; nothing was changed"},
		"stored":    {command: "key add", written: true, want: `interrupted; key set "prod-a" is changed and stored`},
		"conflict":  {command: "key add", written: true, write: keystore.ErrConflict, want: "interrupted; nothing was changed"},
		"read-only": {command: "key add", written: true, write: keystore.ErrReadOnly, want: "interrupted; nothing was changed"},
		"doubtful":  {command: "key add", written: true, write: context.Canceled, want: `whether key set "prod-a" was changed is unknown`},
		"export":    {command: "export", want: "interrupted; what is done so far stays"},
		"aws":       {command: "aws create-all", want: "interrupted; what is done so far stays"},
	} {
		f := &Factory{}
		if tt.written {
			_, _ = noting{failing{tt.write}, &f.writes}.Put(t.Context(), "prod-a", "", nil)
		}
		cmd, _, err := root.Find(strings.Fields(tt.command))
		if err != nil {
			t.Fatal(err)
		}
		got := f.stopped(cmd, Interruption{os.Interrupt})
		if !strings.HasPrefix(got.Error(), tt.want) && !strings.Contains(got.Error(), tt.want) {
			t.Errorf("%s: %v", name, got)
		}
		if i, is := errors.AsType[Interruption](got); !is || i.Code() != ExitInterrupted {
			t.Errorf("%s: %v is not an interruption", name, got)
		}
	}
}

// failing is a backend whose writes end with an error, or none.
type failing struct{ err error }

func (failing) List(context.Context) (map[keystore.Name]keystore.Revision, error) { return nil, nil }

func (failing) Get(context.Context, keystore.Name) ([]byte, keystore.Revision, error) {
	return nil, "", nil
}

func (f failing) Put(context.Context, keystore.Name, keystore.Revision, []byte) (keystore.Revision, error) {
	return "1", f.err
}
