package listen

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// errorLog counts TLS handshakes that fail, by reason, and logs what net/http reports. What a client can cause at will is never logged: a
// scanner would fill the disk and hide the one line that matters.
type errorLog struct {
	log        *zap.Logger
	handshakes *prometheus.CounterVec
}

// newErrorLog returns one whose lines go to log, and whose metrics all start at zero.
func newErrorLog(log *zap.Logger) *errorLog {
	l := &errorLog{
		log: log,
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keypost_tls_handshake_errors_total",
			Help: "TLS handshakes that failed, by reason.",
		}, []string{"reason"}),
	}
	for _, f := range handshakeFailures { // a rate needs the zero before the first failure
		l.handshakes.WithLabelValues(f.reason)
	}
	l.handshakes.WithLabelValues(otherReason)
	return l
}

// Write takes one message of an http.Server's ErrorLog.
func (l *errorLog) Write(p []byte) (int, error) {
	text := zap.String("detail", strings.TrimSpace(string(p)))
	if strings.HasPrefix(text.String, "http: panic serving ") {
		l.log.Error("the handler panicked", text)
	} else {
		l.log.Warn("the HTTP server reports trouble", text)
	}
	return len(p), nil
}

// handshake counts one that failed.
func (l *errorLog) handshake(err error) { l.handshakes.WithLabelValues(reason(err.Error())).Inc() }

const (
	otherReason = "other"
	unverified  = "tls: failed to verify certificate: "
)

// reason maps an error's text to a label: crypto/tls offers text only. The tests compare it with real handshakes.
func reason(text string) string {
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
	// The client's own certificate, or its CA's (package shield).
	{"client_certificate_expired", []string{unverified + "x509: certificate has expired or is not yet valid"}},
	{"client_certificate_untrusted", []string{unverified + "x509: certificate signed by unknown authority"}},
	{"client_certificate_unfit", []string{unverified}},
	{"no_shared_version", []string{"client offered only unsupported versions", "protocol version not supported", "inappropriate protocol fallback"}},
	{"no_shared_cipher", []string{"no cipher suite supported by both", "no key exchanges supported by both", "peer doesn't support any of the certificate's signature algorithms", "remote error: tls: handshake failure"}},
	{"bad_certificate", []string{"remote error: tls: bad certificate", "unknown certificate", "expired certificate", "revoked certificate", "unsupported certificate"}},
	{"unknown_sni", []string{"unrecognized name"}},
	{"not_tls", []string{"does not look like a TLS handshake", "unsupported SSLv2 handshake", "oversized record received"}},
	{"timeout", []string{"i/o timeout", "deadline exceeded"}},
	{"reset", []string{"connection reset by peer", "broken pipe"}},
	{"eof", []string{"EOF", "use of closed network connection"}},
}
