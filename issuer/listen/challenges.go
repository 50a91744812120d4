package listen

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"path"
	"strings"

	"golang.org/x/crypto/acme"
)

// MaxChallengers is how many connections a listener for challenges is to have at most. A CA makes a few at once, from several places.
// Each that says nothing keeps its slot for two seconds at most, so with 64 of them 32 strangers a second kept the CA out.
const MaxChallengers = 500

// The types of challenges that are answered (RFC 8737, section 3; RFC 8555, section 8.3).
const (
	tlsALPN01 = "tls-alpn-01"
	http01    = "http-01"
)

// Names in the cache end with these where a challenge is under way. Whichever replica is asked answers from there.
const (
	tlsALPN01Suffix = "+token"   // after the host
	http01Suffix    = "+http-01" // after the token
)

// provide puts the answer to a challenge into the cache. The function that it returns takes it away.
func (a *ACME) provide(client *acme.Client, c *acme.Challenge, host string) (remove func(), err error) {
	var answer []byte
	name := host + tlsALPN01Suffix
	if c.Type == http01 {
		name = path.Base(c.Token) + http01Suffix
		text, err := client.HTTP01ChallengeResponse(c.Token)
		if err != nil {
			return nil, err
		}
		answer = []byte(text)
	} else {
		cert, err := client.TLSALPN01ChallengeCert(c.Token, host)
		if err != nil {
			return nil, err
		}
		if answer, err = encode(cert); err != nil {
			return nil, err
		}
	}
	return func() { _ = a.remove(name) }, a.put(name, answer)
}

// challengeCertificate answers a challenge tls-alpn-01 (RFC 8737).
func (a *ACME) challengeCertificate(h *acmeHost) (*tls.Certificate, error) {
	text, err := a.read(h.name + tlsALPN01Suffix)
	if err != nil {
		return nil, errors.New("no challenge is under way")
	}
	pair, err := tls.X509KeyPair(text, text)
	return &pair, err
}

// Challenges answers the CA's challenges http-01 (RFC 8555, section 8.3), and 404 to all else: no redirect ever leads a
// relying party to an issuer that it did not name.
func (a *ACME) Challenges() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		token, challenge := strings.CutPrefix(r.URL.Path, "/.well-known/acme-challenge/")
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		case !challenge || a.find(host) == nil:
			http.NotFound(w, r)
		default:
			answer, err := a.read(path.Base(token) + http01Suffix)
			if err != nil {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write(answer) // the CA reports an answer that has not come
		}
	})
}
