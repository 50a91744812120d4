package admin

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// sharedPage serves a page that is expensive to make. It is made for one request at a time; requests that come meanwhile
// share the next one, which is never older than they are. So CPU and memory do not grow with the number of requests, and a
// client that does not take its page delays nobody.
type sharedPage struct {
	of   http.Handler
	turn chan struct{} // held while the page is made

	mu   sync.Mutex
	next *page // the one that is not begun yet; nil when nobody waits for it
}

// page is complete once made is closed.
type page struct {
	made   chan struct{}
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

func share(of http.Handler) *sharedPage { return &sharedPage{of: of, turn: make(chan struct{}, 1)} }

// ServeHTTP serves all clients the same text, whatever they accept.
func (s *sharedPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := s.join(r)
	select {
	case <-p.made:
	case <-r.Context().Done():
		return
	}
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(p.text.Len()))
	w.WriteHeader(p.status)
	_, _ = w.Write(p.text.Bytes()) // the client may have gone away
}

func (s *sharedPage) join(r *http.Request) *page {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &page{made: make(chan struct{}), header: http.Header{}, status: http.StatusOK}
		go s.make(s.next, &http.Request{Method: http.MethodGet, URL: r.URL, Header: http.Header{}})
	}
	return s.next
}

func (s *sharedPage) make(p *page, r *http.Request) {
	s.turn <- struct{}{}
	s.mu.Lock()
	s.next = nil // requests from here on get the page after this one
	s.mu.Unlock()
	began := time.Now()
	s.of.ServeHTTP(p, r)
	close(p.made)
	time.Sleep(min(restFactor*time.Since(began), longestRest))
	<-s.turn
}
