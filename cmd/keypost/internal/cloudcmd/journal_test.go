package cloudcmd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/install"
)

// Where lines do not change, a wait is told of at its beginning and now and then.
func TestWaits(t *testing.T) {
	var b strings.Builder
	j := newJournal((&cli.Factory{Err: &b}).Live())
	start := time.Now()
	for s := range 40 {
		j.wait(install.Event{Kind: install.Wait, At: start.Add(time.Duration(s) * time.Second), Phase: "waiting", Text: fmt.Sprintf("waiting: %d s left", 40-s)})
	}
	j.wait(install.Event{Kind: install.Wait, At: start.Add(40 * time.Second), Phase: "another", Text: "another wait"})
	j.show(start.Add(41*time.Second), "done")
	if plain := b.String(); strings.Count(plain, "\n") != 6 || strings.Contains(plain, "\x1b") || !strings.Contains(plain, "30 s left") {
		t.Errorf("told in lines:\n%s", plain)
	}
}
