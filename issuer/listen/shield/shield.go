// Package shield refuses requests that did not come through a CDN, so that nobody can go round its limits and its log: by a header whose
// value only the CDN knows, by its client certificate, or by both. It protects no secret: what is served is public. It judges client
// certificates at a bounded cost, and tells when the CAs that sign them expire: once a CA has, no client that it has signed for gets in,
// and only the clients are told why.
package shield

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http/httpguts"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/issuer/listen/internal/chain"
)

// Config says how a CDN shows that a request comes through it. With both, a request must show both.
type Config struct {
	// Header is the name of a request header that only the CDN knows the value of.
	Header string
	// SecretFiles have one value each, of leastShield characters or more; every one of them is accepted, so that the CDN
	// can change from one to the next.
	SecretFiles []string
	// ClientCAFile has the PEM certificates of the CAs that sign the CDN's client certificate.
	ClientCAFile string
}

// Shield refuses requests that did not come through a CDN. New makes one.
type Shield struct {
	header  string
	secrets [][sha256.Size]byte
	cas     *clientCAs // those of clients; nil: none are asked for
	exposed []string   // files with a secret
	refused *prometheus.CounterVec
}

const (
	// leastShield is the length of the shortest secret: 128 bits in hexadecimal digits are 32, in base64 22.
	leastShield      = 16
	maxShield        = 4096 // bytes of a file
	wantsHeader      = "header"
	wantsCertificate = "certificate"
)

// New reads the files of a configuration that asks for something, once: a change needs a restart.
func New(c Config) (*Shield, error) {
	s := &Shield{refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keypost_shield_refused_total", Help: "Requests that were refused (403) since they did not come through the CDN, by what they do not have: header or certificate.",
	}, []string{"lacks"})}
	if err := errors.Join(s.readSecrets(c), s.readClients(c.ClientCAFile)); err != nil {
		return nil, fmt.Errorf("set up the origin shield: %w", err)
	}
	return s, nil
}

// notForShield are headers that HTTP has a meaning for on each hop, which takes them out or writes them anew, and those that clients send
// of their own accord. The list is not complete: it is for anyone who mistakes one of these for a place of their own.
var notForShield = []string{"Host", "Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "User-Agent", "Accept"}

func (s *Shield) readSecrets(c Config) error {
	if c.Header == "" && len(c.SecretFiles) == 0 {
		return nil
	}
	if c.Header == "" || len(c.SecretFiles) == 0 {
		return errors.New("a header needs its name and at least one file with its value")
	}
	s.header = textproto.CanonicalMIMEHeaderKey(c.Header)
	if !httpguts.ValidHeaderFieldName(c.Header) || slices.Contains(notForShield, s.header) {
		return fmt.Errorf("%q is not a header that only a CDN sends; choose a name of your own, such as X-Origin-Secret", c.Header)
	}
	for _, file := range c.SecretFiles {
		text, err := regular.ReadOnce(file, maxShield)
		if err != nil {
			return fmt.Errorf("read the value of %s: %w", s.header, err)
		}
		secret := strings.TrimRight(string(text), "\r\n")
		if len(secret) < leastShield || !httpguts.ValidHeaderFieldValue(secret) || strings.TrimSpace(secret) != secret {
			return fmt.Errorf("%s does not hold the value of a header: one line of %d characters or more", file, leastShield) // never what it holds
		}
		if strings.HasPrefix(strings.ToLower(secret), strings.ToLower(s.header)+":") || strings.HasPrefix(secret, `"`) && strings.HasSuffix(secret, `"`) {
			return fmt.Errorf("%s holds more than the value of %s: write only the value, without the header's name and without quotation marks", file, s.header)
		}
		if isExposed(file) {
			s.exposed = append(s.exposed, file)
		}
		s.secrets = append(s.secrets, sha256.Sum256([]byte(secret)))
	}
	s.refused.WithLabelValues(wantsHeader)
	return nil
}

// Exposed returns the files of secrets that every user of this machine may read.
func (s *Shield) Exposed() []string { return s.exposed }

// isExposed reports whether every user may read a file.
func isExposed(file string) bool {
	info, err := hang.Await(context.Background(), new(hang.Guard), file, func() (os.FileInfo, error) { return os.Stat(file) })
	return err == nil && info.Mode().Perm()&0o004 != 0 // it was read a moment ago
}

func (s *Shield) readClients(file string) error {
	if file == "" {
		return nil
	}
	text, err := regular.ReadOnce(file, chain.MaxPEM)
	if err != nil {
		return fmt.Errorf("read the CA of client certificates: %w", err)
	}
	if s.cas = parseCAs(text); s.cas == nil {
		return fmt.Errorf("read the CA of client certificates: %s holds no PEM certificate; give the CA that signs the CDN's client certificate", file)
	}
	s.refused.WithLabelValues(wantsCertificate)
	return nil
}

// ExpiredCAs describes the CAs of client certificates that have expired, and reports whether those are all, so that nobody gets in.
func (s *Shield) ExpiredCAs(now time.Time) (which []string, all bool) {
	return s.cas.expired(now)
}

// Collectors returns its metrics.
func (s *Shield) Collectors() []prometheus.Collector {
	if s.cas == nil {
		return []prometheus.Collector{s.refused}
	}
	return []prometheus.Collector{s.refused, s.cas}
}

// Guard answers 403 to every request that does not show what the shield wants, whatever it asks for.
func (s *Shield) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lacks := s.missing(r)
		if lacks == "" {
			next.ServeHTTP(w, r)
			return
		}
		s.refused.WithLabelValues(lacks).Inc()
		w.Header().Set("Cache-Control", "no-store")                     // a CDN that lost its secret must not keep this
		w.Header().Set("Strict-Transport-Security", "max-age=31536000") // as the documents and other refusals have it
		http.Error(w, "this server answers its CDN only", http.StatusForbidden)
	})
}

// missing returns what a request does not show, or "".
func (s *Shield) missing(r *http.Request) string {
	if s.header != "" {
		values := r.Header[s.header]
		if len(values) != 1 || !s.knows(values[0]) { // a client's own value beside the CDN's is not proof
			return wantsHeader
		}
	}
	if s.cas != nil && (r.TLS == nil || len(r.TLS.PeerCertificates) == 0) { // see clientCAs.apply
		return wantsCertificate
	}
	return ""
}

// knows compares with every secret in a time that does not depend on which one matches, or how far.
func (s *Shield) knows(value string) bool {
	sum, found := sha256.Sum256([]byte(value)), 0
	for _, secret := range s.secrets {
		found |= subtle.ConstantTimeCompare(sum[:], secret[:])
	}
	return found == 1
}

// Apply makes a TLS configuration ask for client certificates. A client without one is refused with 403 and not in its handshake, so
// that the CA's challenge tls-alpn-01 needs none.
func (s *Shield) Apply(c *tls.Config) {
	if s.cas != nil {
		s.cas.apply(c)
	}
}
