package issuer

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// NotFoundMaxAge is how long an answer 404 may be cached. An issuer that is published next may be hidden for that long.
const NotFoundMaxAge = time.Minute

// Handler answers requests with what a Publisher publishes. Nothing in an answer is derived from the request: host and
// path choose a document, If-None-Match chooses between it and 304, and no other header has a say.
//
// There is no http.ServeMux, since it redirects unclean paths, and no limit per client: all of AWS STS looks like a few
// clients, and throttled token exchanges fail.
type Handler struct {
	current *atomic.Pointer[snapshot]
	aliases map[string]string

	// Every answer is counted.
	requests                     *prometheus.CounterVec
	served, unchanged            [kinds]prometheus.Counter
	notFound, notAllowed, notYet refusal
}

// NewHandler returns a handler that serves what p publishes. aliases maps host names under which a CDN reaches this
// server to the host of the issuer URLs; both in lower case without a port.
func NewHandler(p *Publisher, aliases map[string]string) *Handler {
	h := &Handler{current: &p.current, aliases: aliases, requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keypost_http_requests_total",
		Help: "Requests on the public listener, by the document they asked for and the status of the answer.",
	}, []string{"document", "code"})}
	counter := func(document string, status int) prometheus.Counter {
		return h.requests.WithLabelValues(document, strconv.Itoa(status))
	}
	for k, name := range kindNames {
		h.served[k], h.unchanged[k] = counter(name, http.StatusOK), counter(name, http.StatusNotModified)
	}
	refuse := func(status int, body, cacheControl string) refusal {
		return refusal{status, body, []string{strconv.Itoa(len(body))}, []string{cacheControl}, counter("none", status)}
	}
	h.notFound = refuse(http.StatusNotFound, "not found\n", fmt.Sprintf("public, max-age=%d", int(NotFoundMaxAge.Seconds())))
	h.notAllowed = refuse(http.StatusMethodNotAllowed, "method not allowed\n", "no-store")
	// 503 and not 404, since a CDN keeps a 404 and serves stale copies instead of a 503.
	h.notYet = refuse(http.StatusServiceUnavailable, "not ready\n", "no-store")
	return h
}

// Describe implements prometheus.Collector.
func (h *Handler) Describe(ch chan<- *prometheus.Desc) { h.requests.Describe(ch) }

// Collect implements prometheus.Collector.
func (h *Handler) Collect(ch chan<- prometheus.Metric) { h.requests.Collect(ch) }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header()["Allow"] = allow
		h.notAllowed.write(w, r)
		return
	}
	s := h.current.Load()
	if host := h.host(r); host != "" {
		if d, k, ok := s.find(host, r.URL.EscapedPath()); ok {
			if d.write(w, r) {
				h.unchanged[k].Inc()
			} else {
				h.served[k].Inc()
			}
			return
		}
	}
	if s.complete {
		h.notFound.write(w, r)
	} else {
		h.notYet.write(w, r)
	}
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
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) { // ToLower turns the Kelvin sign into a k
		return ""
	}
	// Apache forwards the dot and keeps the answer under the name without it: a 404 would be given to everybody.
	host = strings.TrimSuffix(strings.ToLower(host), ".") // both return their argument when nothing is to be done
	if to, ok := h.aliases[host]; ok {
		return to
	}
	return host
}

// refusal is an answer that is not a document. It reveals nothing about what exists.
type refusal struct {
	status       int
	body         string
	length       []string
	cacheControl []string
	counter      prometheus.Counter
}

var allow = []string{"GET, HEAD"}

func (f *refusal) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["Content-Type"] = typeText
	h["Content-Length"] = f.length
	h["Cache-Control"] = f.cacheControl
	h["X-Content-Type-Options"] = noSniff
	h["Strict-Transport-Security"] = hsts
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		io.WriteString(w, f.body) //nolint:errcheck // the client has gone away
	}
	f.counter.Inc()
}
