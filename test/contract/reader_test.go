package contract

import (
	"bufio"
	"fmt"
	"net/http"
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
	v.Await(t, "ready", func() error {
		if status, body := v.ask(t, "/readyz"); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	e.mend() // which is logged
	v.Await(t, "the next change", func() error {
		if s := v.statusOf(t, "prod-a"); s.Generation != 9 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if code := v.stop(t); code != 0 {
		t.Errorf("exit %d after SIGTERM", code)
	}
}
