package listen

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// Alerts and faults that Go's own client cannot be made to cause.
func TestHandshakeReasonText(t *testing.T) {
	for text, want := range map[string]string{
		"remote error: tls: unrecognized name":   "unknown_sni",
		"EOF":                                    "eof",
		"remote error: tls: unknown certificate": "bad_certificate",
		"remote error: tls: protocol version not supported":                           "no_shared_version",
		"write tcp 192.0.2.2:8443->192.0.2.1:1: write: broken pipe":                   "reset",
		"tls: client requested unsupported application protocols ([\"broken pipe\"])": "no_shared_protocol",
		"tls: something new": "other",
		"":                   "other",
	} {
		if got := reason(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestOtherTroubleIsAWarning(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	fmt.Fprintln(newErrorLog(zap.New(core)), "http: Accept error: too many open files; retrying in 1s")
	if logs.Len() != 1 || logs.All()[0].Level != zapcore.WarnLevel {
		t.Errorf("got %v", logs.All())
	}
}

func TestEveryReasonStartsAtZero(t *testing.T) {
	n := newErrorLog(zap.NewNop())
	if got, want := testutil.CollectAndCount(n.handshakes), len(handshakeFailures)+1; got != want {
		t.Errorf("got %d series, want %d", got, want)
	}
}
