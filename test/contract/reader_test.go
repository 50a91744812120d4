package contract

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/process"
)

// Who ends the reader of the log does not end the server.
func TestReaderOfTheLogEnds(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	admin := process.FreeAddress(t)
	e.extra = fmt.Sprintf("admin: {address: %q}\n", admin)
	e.settings.write(t)
	reader, writer, err := os.Pipe()
	must(t, err)
	cmd := exec.Command(keypostd, "--config", e.config)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = writer
	v := &server{Process: process.Start(t, cmd), settings: e.settings, admin: admin}
	must(t, writer.Close())
	for lines := bufio.NewScanner(reader); lines.Scan() && !strings.Contains(lines.Text(), "ready"); {
	}
	must(t, reader.Close())
	v.Await(t, "ready", v.isReady)
	e.mend() // which is logged
	v.awaitMended(t)
	if code := v.stop(t); code != 0 {
		t.Errorf("exit %d after SIGTERM", code)
	}
}
