package listen

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http/httpguts"

	"github.com/keypost/keypost/internal/regular"
)

// ShieldConfig says how a CDN shows that a request comes through it. With both, a request must show both.
type ShieldConfig struct {
	// Header is the name of a request header that only the CDN knows the value of.
	Header string
	// SecretFiles have one value each, of leastShield characters or more; every one of them is accepted, so that the CDN
	// can change from one to the next.
	SecretFiles []string
	// ClientCAFile has the PEM certificates of the CAs that sign the CDN's client certificate.
	ClientCAFile string
}

// Shield refuses requests that did not come through a CDN, so that nobody can go round its limits and its log. It protects
// no secret: what is served is public. NewShield makes one.
type Shield struct {
	header  string
	secrets [][sha256.Size]byte
	clients *x509.CertPool
	refused *prometheus.CounterVec
}

const (
	// leastShield is the length of the shortest secret: 128 bits in hexadecimal digits are 32, in base64 22.
	leastShield      = 16
	maxShield        = 4096 // bytes of a file
	wantsHeader      = "header"
	wantsCertificate = "certificate"
)

// NewShield reads the files, once: a change needs a restart.
func NewShield(c ShieldConfig) (*Shield, error) {
	s := &Shield{refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keypost_shield_refused_total", Help: "Requests that were refused (403) since they did not come through the CDN, by what they lack: header or certificate.",
	}, []string{"lacks"})}
	if err := errors.Join(s.readSecrets(c), s.readClients(c.ClientCAFile)); err != nil {
		return nil, fmt.Errorf("set up the origin shield: %w", err)
	}
	if s.header == "" && s.clients == nil {
		return nil, errors.New("set up the origin shield: it needs a header with its secret, or the CA of client certificates")
	}
	return s, nil
}

// notForShield are headers that every client sends, or that an HTTP hop takes out.
var notForShield = []string{"Host", "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "User-Agent", "Accept"}

func (s *Shield) readSecrets(c ShieldConfig) error {
	if c.Header == "" && len(c.SecretFiles) == 0 {
		return nil
	}
	if c.Header == "" || len(c.SecretFiles) == 0 {
		return errors.New("a header needs its name and at least one file with its value")
	}
	s.header = textproto.CanonicalMIMEHeaderKey(c.Header)
	if !httpguts.ValidHeaderFieldName(c.Header) || slices.Contains(notForShield, s.header) {
		return fmt.Errorf("%q is no header that only a CDN sends; choose a name of your own, such as X-Origin-Secret", c.Header)
	}
	for _, file := range c.SecretFiles {
		text, err := regular.Read(file, maxShield)
		if err != nil {
			return fmt.Errorf("read the value of %s: %w", s.header, err)
		}
		secret := strings.TrimRight(string(text), "\r\n")
		if len(secret) < leastShield || !httpguts.ValidHeaderFieldValue(secret) || strings.TrimSpace(secret) != secret {
			return fmt.Errorf("%s does not hold the value of a header: one line of %d characters or more", file, leastShield) // never what it holds
		}
		s.secrets = append(s.secrets, sha256.Sum256([]byte(secret)))
	}
	s.refused.WithLabelValues(wantsHeader)
	return nil
}

func (s *Shield) readClients(file string) error {
	if file == "" {
		return nil
	}
	pool, err := readPool(file, "the CA that signs the CDN's client certificate")
	if err != nil {
		return fmt.Errorf("read the CA of client certificates: %w", err)
	}
	s.clients = pool
	s.refused.WithLabelValues(wantsCertificate)
	return nil
}

// guard answers 403 to every request that does not show what the shield wants, whatever it asks for.
func (s *Shield) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lacks := s.lacks(r)
		if lacks == "" {
			next.ServeHTTP(w, r)
			return
		}
		s.refused.WithLabelValues(lacks).Inc()
		h := w.Header()
		h.Set("Cache-Control", "no-store") // a CDN that lost its secret must not keep this
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte("this server answers its CDN only\n")) // the client may have gone away
	})
}

// lacks returns what a request does not show, or "".
func (s *Shield) lacks(r *http.Request) string {
	if s.header != "" {
		values := r.Header[s.header]
		if len(values) != 1 || !s.knows(values[0]) { // a client's own value beside the CDN's is no proof
			return wantsHeader
		}
	}
	if s.clients != nil && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
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

// apply makes a TLS configuration ask for client certificates. One of another CA ends the handshake; a client without one
// gets through it and is refused with 403, so that the CA's challenge tls-alpn-01 needs none.
func (s *Shield) apply(c *tls.Config) {
	if s.clients != nil {
		c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, s.clients
	}
}
