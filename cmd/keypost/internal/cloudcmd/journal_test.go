package cloudcmd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/provision/install"
)

// Where lines do not change, a wait is told of at its beginning and now and then; on a terminal, in one line.
func TestProgress(t *testing.T) {
	tell := func(tty bool) string {
		var b strings.Builder
		j := newJournal(&b)
		j.tty = tty
		start := time.Now()
		for s := range 40 {
			j.wait(install.Event{Kind: install.Wait, At: start.Add(time.Duration(s) * time.Second), Phase: "waiting", Text: fmt.Sprintf("waiting: %d s left", 40-s)})
		}
		j.wait(install.Event{Kind: install.Wait, At: start.Add(40 * time.Second), Phase: "another", Text: "another wait"})
		j.printf("done")
		return b.String()
	}
	if plain := tell(false); strings.Count(plain, "\n") != 6 || strings.Contains(plain, "\x1b") || !strings.Contains(plain, "30 s left") {
		t.Errorf("told in lines:\n%s", plain)
	}
	if line := tell(true); strings.Count(line, "\n") != 1 || strings.Count(line, "\r") != 42 || !strings.HasSuffix(line, "done\n") {
		t.Errorf("told on a terminal: %q", line)
	}
}
