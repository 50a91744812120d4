package admin

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// sharedPage serves a page that is expensive to make. It is made for one request at a time; requests that come meanwhile
// share the next one, which is never older than they are. So CPU and memory do not grow with the number of requests, and a
// client that does not take its page delays nobody.
type sharedPage struct {
	of http.Handler

	mu    sync.Mutex // held while a page is made, and for a pause after it
	began time.Time  // when the latest one was begun
	page  *page      // it does not change
}

// page is an answer in memory.
type page struct {
	header http.Header
	status int
	text   bytes.Buffer
}

func (p *page) Header() http.Header            { return p.header }
func (p *page) WriteHeader(status int)         { p.status = status }
func (p *page) Write(text []byte) (int, error) { return p.text.Write(text) }

const (
	// restFactor is how long the maker pauses after a page, in multiples of the time that the page took: no number of
	// clients takes more than a fifth of a core for a page that is made quickly.
	restFactor = 4
	// longestRest bounds the pause on a busy machine, where each page takes long.
	longestRest = 50 * time.Millisecond
)

func share(of http.Handler) *sharedPage { return &sharedPage{of: of} }

// ServeHTTP serves all clients the same text, whatever they accept.
func (s *sharedPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := s.since(time.Now(), r)
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Length", strconv.Itoa(p.text.Len()))
	w.WriteHeader(p.status)
	_, _ = w.Write(p.text.Bytes()) // the client may have gone away
}

// since returns a page that was begun after a time.
func (s *sharedPage) since(asked time.Time, r *http.Request) *page {
	s.mu.Lock()
	if s.began.After(asked) {
		defer s.mu.Unlock()
		return s.page
	}
	p := &page{header: http.Header{}, status: http.StatusOK}
	s.began, s.page = time.Now(), p
	// A handler that panics must not leave the lock held: nobody would get a page again.
	defer func() { time.AfterFunc(min(restFactor*time.Since(s.began), longestRest), s.mu.Unlock) }()
	s.of.ServeHTTP(p, &http.Request{Method: http.MethodGet, URL: r.URL, Header: http.Header{}})
	return p
}
