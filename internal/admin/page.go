package admin

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/singleflight"
)

// sharedPage serves a page that is expensive to make. It is made for one request at a time; requests that come meanwhile share it. So CPU
// and memory do not grow with the number of requests, and a client that does not take its page delays nobody.
type sharedPage struct {
	of     http.Handler
	making singleflight.Group
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

// ServeHTTP serves all clients the same text, whatever they accept.
func (s *sharedPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	made, _, _ := s.making.Do("", func() (any, error) {
		began, p := time.Now(), &page{header: http.Header{}, status: http.StatusOK}
		s.of.ServeHTTP(p, &http.Request{Method: http.MethodGet, URL: r.URL, Header: http.Header{}})
		time.Sleep(min(restFactor*time.Since(began), longestRest))
		return p, nil
	})
	p := made.(*page)
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Length", strconv.Itoa(p.text.Len()))
	w.WriteHeader(p.status)
	_, _ = w.Write(p.text.Bytes()) // the client may have gone away
}
