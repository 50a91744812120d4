package listen

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// MaxChallengers is how many connections a listener for challenges is to have at most. A CA makes a few at once, from several places.
// Each that says nothing keeps its slot for two seconds at most, so with 64 of them 32 strangers a second kept the CA out.
const MaxChallengers = 500

// Challenges answers the CA's challenges http-01 (RFC 8555, section 8.3), and 404 to all else: no redirect ever leads a
// relying party to an issuer that it did not name.
func (a *ACME) Challenges() http.Handler {
	tokens := a.answers.HTTPHandler(http.NotFoundHandler())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &codeWriter{ResponseWriter: w, code: http.StatusOK}
		defer func() { a.asked.WithLabelValues(outcomeOf(r, seen.code)).Inc() }()
		w = seen
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		tokens.ServeHTTP(w, r)
	})
}

const (
	challengeAnswered = "answered"
	challengeUnknown  = "unknown"
	challengeOther    = "other"
)

// newChallengeRequests has every outcome from the start: one that never happens is 0 and not absent.
func newChallengeRequests() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keypost_tls_challenge_requests_total",
		Help: "Requests to the listener for challenges http-01, by outcome: answered, unknown (no such challenge) or other (whatever is no challenge for a host of this server).",
	}, []string{"outcome"})
	for _, outcome := range []string{challengeAnswered, challengeUnknown, challengeOther} {
		c.WithLabelValues(outcome)
	}
	return c
}

// outcomeOf tells what became of a request, from the code of its answer.
func outcomeOf(r *http.Request, code int) string {
	switch challenge := strings.HasPrefix(r.URL.Path, "/.well-known/acme-challenge/"); {
	case challenge && code == http.StatusOK:
		return challengeAnswered
	case challenge && code == http.StatusNotFound:
		return challengeUnknown
	default:
		return challengeOther
	}
}

// codeWriter notes the code of an answer.
type codeWriter struct {
	http.ResponseWriter
	code int
}

func (s *codeWriter) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}
