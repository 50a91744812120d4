package contract

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// Where the CA's challenges cannot be answered the start ends before the CA is asked: an order that must fail uses up what the CA allows.
func TestNoOrderWithoutTheChallengeListener(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = busy.Close() }()
	ca, asked := victim(t)
	s := newSettings(t)
	s.withACME(t, fmt.Sprintf(", httpAddress: %q", busy.Addr()))
	text, err := os.ReadFile(s.config)
	must(t, err)
	must(t, os.WriteFile(s.config, []byte(strings.Replace(string(text), "127.0.0.1:1/", ca+"/", 1)), 0o644))
	code, stdout, stderr := run(t, "--config", s.config)
	if code != 1 || !strings.Contains(stderr, "address already in use") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the CA was asked %d times", n)
	}
}
