// Package errorlog makes metrics and lines of a log of what net/http reports in text.
package errorlog

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/keypost/keypost/issuer/listen/internal/clientca"
)

// Log receives what net/http logs. What a client can cause at will is counted
// and never logged: a scanner would fill the disk and hide the one line that
// matters. net/http offers text only, so lines are matched; the tests compare the
// patterns with real handshakes.
type Log struct {
	log        *zap.Logger
	handshakes *prometheus.CounterVec
	http2      prometheus.Counter
}

// New returns one whose lines go to log, and whose metrics all start at zero.
func New(log *zap.Logger) *Log {
	l := &Log{
		log: log,
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keypost_tls_handshake_errors_total",
			Help: "TLS handshakes that failed, by reason.",
		}, []string{"reason"}),
		http2: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keypost_http2_connection_errors_total",
			Help: "HTTP/2 connections closed because the client broke the protocol or stopped answering.",
		}),
	}
	for _, f := range handshakeFailures { // a rate needs the zero before the first failure
		l.handshakes.WithLabelValues(f.reason)
	}
	for _, reason := range []string{otherReason, clientca.Expired, clientca.Untrusted, clientca.Unfit} {
		l.handshakes.WithLabelValues(reason)
	}
	return l
}

// Collectors returns its metrics.
func (l *Log) Collectors() []prometheus.Collector {
	return []prometheus.Collector{l.handshakes, l.http2}
}

// Write takes one message of an http.Server's ErrorLog.
func (l *Log) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	switch {
	case strings.HasPrefix(text, "http: TLS handshake error from "):
		l.handshakes.WithLabelValues(handshakeReason(text)).Inc()
	case hasAnyPrefix(text, http2Faults):
		l.http2.Inc()
	case hasAnyPrefix(text, panics):
		l.log.Error("the handler panicked", zap.String("detail", text))
	default:
		l.log.Warn("the HTTP server reports trouble", zap.String("detail", text))
	}
	return len(p), nil
}

const otherReason = "other"

// handshakeReason maps "http: TLS handshake error from ADDRESS: TEXT" to a label.
func handshakeReason(line string) string {
	_, text, _ := strings.Cut(line, " from ")
	_, text, _ = strings.Cut(text, ": ") // an IPv6 address holds no ": "
	if reason := clientca.Refusal(text); reason != "" {
		return reason
	}
	for _, f := range handshakeFailures {
		for _, part := range f.parts {
			if strings.Contains(text, part) {
				return f.reason
			}
		}
	}
	return otherReason
}

// handshakeFailures is matched in order. The parts come from crypto/tls, net and
// the kernel; "remote error" is an alert that the client sent.
var handshakeFailures = []struct {
	reason string
	parts  []string
}{
	// Text that quotes the client comes first: what it quotes must not match below.
	{"no_shared_protocol", []string{"unsupported application protocols"}},
	{"no_shared_version", []string{"client offered only unsupported versions", "protocol version not supported", "inappropriate protocol fallback"}},
	{"no_shared_cipher", []string{"no cipher suite supported by both", "no key exchanges supported by both", "peer doesn't support any of the certificate's signature algorithms", "remote error: tls: handshake failure"}},
	{"bad_certificate", []string{"remote error: tls: bad certificate", "unknown certificate", "expired certificate", "revoked certificate", "unsupported certificate"}},
	{"unknown_sni", []string{"unrecognized name"}},
	{"not_tls", []string{"does not look like a TLS handshake", "HTTP request to an HTTPS server", "unsupported SSLv2 handshake", "oversized record received"}},
	{"timeout", []string{"i/o timeout", "deadline exceeded"}},
	{"reset", []string{"connection reset by peer", "broken pipe"}},
	{"eof", []string{"EOF", "use of closed network connection"}},
}

// http2Faults begin lines of net/http's HTTP/2 server that a client can cause.
var http2Faults = []string{
	"http2: server connection error from ",
	"http2: server: error reading preface from client ",
	"http2: server closing client connection: ",
	"http2: received GOAWAY ",
	"timeout waiting for SETTINGS frames from ",
	"timeout waiting for PING response",
}

var panics = []string{"http: panic serving ", "http2: panic serving "}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
