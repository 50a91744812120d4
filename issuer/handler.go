package issuer

import (
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Handler answers requests from the current snapshot. Nothing in an answer is derived from the request: host and
// path choose a document, If-None-Match chooses between it and 304, and no other header is looked at.
//
// There is no http.ServeMux, since it redirects unclean paths, and no limit per client: AWS STS that is throttled is
// AWS STS that fails.
type Handler struct {
	snapshot func() *Snapshot
	aliases  map[string]string
	counters [kinds]map[int]prometheus.Counter // by status; of every answer that is given
	requests *prometheus.CounterVec
}

// The statuses of answers: with a document, and without one.
var (
	foundStatuses  = [...]int{http.StatusOK, http.StatusNotModified}
	absentStatuses = [...]int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusServiceUnavailable}
)

// NewHandler serves what snapshot returns. aliases maps host names under which a CDN reaches this server to the host
// of the issuer URLs; both in lower case without a port.
func NewHandler(snapshot func() *Snapshot, aliases map[string]string) *Handler {
	h := &Handler{snapshot: snapshot, aliases: aliases, requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keypost_http_requests_total",
		Help: "Requests on the public listener, by the document they asked for and the status of the answer.",
	}, []string{"document", "code"})}
	for k := range kinds {
		statuses := foundStatuses[:]
		if k == kindNone {
			statuses = absentStatuses[:]
		}
		h.counters[k] = map[int]prometheus.Counter{}
		for _, status := range statuses {
			h.counters[k][status] = h.counter(k, status)
		}
	}
	return h
}

func (h *Handler) counter(k kind, status int) prometheus.Counter {
	return h.requests.WithLabelValues(kindNames[k], strconv.Itoa(status))
}

// Describe and Collect make the Handler a prometheus.Collector of its request counter.
func (h *Handler) Describe(ch chan<- *prometheus.Desc) { h.requests.Describe(ch) }

// Collect implements prometheus.Collector.
func (h *Handler) Collect(ch chan<- prometheus.Metric) { h.requests.Collect(ch) }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.count(h.answer(w, r))
}

// count also counts an answer that nobody foresaw: a mistake in this package is to show in a metric, not as a panic or
// as a request that never was.
func (h *Handler) count(k kind, status int) {
	c := h.counters[k][status]
	if c == nil {
		c = h.counter(k, status)
	}
	c.Inc()
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request) (kind, int) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header()["Allow"] = allow
		return kindNone, refuse(w, r, notAllowed)
	}
	s := h.snapshot()
	if host := h.host(r); host != "" && s != nil {
		if d, k := s.find(host, r.URL.EscapedPath()); k != kindNone {
			return k, d.write(w, r)
		}
	}
	if s == nil || !s.settled {
		return kindNone, refuse(w, r, starting)
	}
	return kindNone, refuse(w, r, notFound)
}

// host returns the host that the request is for, or "" when it names none in a way that an issuer URL could. net/http
// has already preferred the host of an absolute-form target over the Host field (RFC 9112, section 3.2.2).
func (h *Handler) host(r *http.Request) string {
	if u := r.URL; u.User != nil || u.Scheme != "" && u.Host == "" { // the second covers opaque targets (https:a)
		return ""
	}
	host := r.Host
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	if !isASCII(host) { // ToLower turns the Kelvin sign into a k
		return ""
	}
	host = strings.ToLower(host) // returns its argument when nothing is to be done
	if to, ok := h.aliases[host]; ok {
		return to
	}
	return host
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// refusal is an answer that is no document. It says nothing about what exists.
type refusal struct {
	status       int
	body         []byte
	length       []string
	cacheControl []string
}

func newRefusal(status int, body, cacheControl string) refusal {
	return refusal{status, []byte(body), []string{strconv.Itoa(len(body))}, []string{cacheControl}}
}

var allow = []string{"GET, HEAD"}

// Indices of refusals.
const (
	notFound = iota
	notAllowed
	starting
)

var refusals = [...]refusal{
	// May be cached for a minute at most: an issuer that is published next would be hidden for that long.
	notFound:   newRefusal(http.StatusNotFound, "not found\n", "public, max-age=60"),
	notAllowed: newRefusal(http.StatusMethodNotAllowed, "method not allowed\n", "no-store"),
	// 503 and not 404, since a CDN keeps a 404 and serves stale copies instead of a 503.
	starting: newRefusal(http.StatusServiceUnavailable, "not ready\n", "no-store"),
}

func refuse(w http.ResponseWriter, r *http.Request, why int) int {
	f, h := &refusals[why], w.Header()
	h["Content-Type"] = typeText
	h["Content-Length"] = f.length
	h["Cache-Control"] = f.cacheControl
	h["X-Content-Type-Options"] = noSniff
	h["Strict-Transport-Security"] = hsts
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		w.Write(f.body) //nolint:errcheck // the client went away: nobody is left to tell
	}
	return f.status
}
