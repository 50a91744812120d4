// Package floor is the least that a net/http server costs that has the same documents as keypostd: the same bytes and
// headers, found in a plain map by their path. It has the same timeouts and does nothing else: no limit, no counter,
// no host name, no ETag that is compared. What keypostd costs is measured against it.
package floor

import (
	"crypto/tls"
	"encoding/gob"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"
)

// Page is what differs between the answers: their ETag and their body.
type Page struct {
	ETag string
	Body []byte
}

// Recording is what a server answers: the headers that all answers share, and the pages by path.
type Recording struct {
	Header http.Header
	Pages  map[string]Page

	etags map[string]string // the path of each
}

// Add records the answer to a request for path. It fails when the answer shares its ETag or its path with another one,
// or differs in another header: the floor would then do other work than the server that was recorded.
func (r *Recording) Add(path string, header http.Header, body []byte) error {
	shared := header.Clone()
	shared.Del("Date")
	etag := shared.Get("Etag")
	shared.Del("Etag")
	if r.Pages == nil {
		r.Header, r.Pages, r.etags = shared, map[string]Page{}, map[string]string{}
	}
	if err := sameHeader(r.Header, shared); err != nil {
		return fmt.Errorf("record %s: %w", path, err)
	}
	if other, ok := r.etags[etag]; ok {
		return fmt.Errorf("record %s: it has the ETag of %s, %s", path, other, etag)
	}
	if _, ok := r.Pages[path]; ok {
		return fmt.Errorf("record %s: it is recorded already", path)
	}
	r.etags[etag], r.Pages[path] = path, Page{etag, body}
	return nil
}

func sameHeader(a, b http.Header) error {
	for name := range b {
		if _, ok := a[name]; !ok {
			return fmt.Errorf("only this answer has %s", name)
		}
	}
	for name := range a {
		if !slices.Equal(a[name], b[name]) {
			return fmt.Errorf("its %s is %q, that of others %q", name, b[name], a[name])
		}
	}
	return nil
}

// Answer returns the header and the body of the recorded answer to a request for path.
func (r *Recording) Answer(path string) (http.Header, []byte) {
	h, p := r.Header.Clone(), r.Pages[path]
	h.Set("Etag", p.ETag)
	return h, p.Body
}

// Write writes the recording to a new file.
func (r *Recording) Write(file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(f).Encode(r), f.Close())
}

// Read reads what Write wrote.
func Read(file string) (*Recording, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	r := new(Recording)
	if err := gob.NewDecoder(f).Decode(r); err != nil {
		return nil, fmt.Errorf("read the recording %s: %w", file, err)
	}
	return r, nil
}

// Handler answers as it was recorded. It keeps header values in the form in which net/http keeps them, so that it
// allocates nothing: any other way of setting them would flatter what is compared with it.
type Handler struct {
	shared    []field
	documents map[string]document
}

type field struct {
	name   string
	values []string
}

type document struct {
	etag []string
	body []byte
}

// NewHandler returns a handler that answers every recorded path.
func NewHandler(r *Recording) *Handler {
	h := &Handler{documents: make(map[string]document, len(r.Pages))}
	for name, values := range r.Header {
		h.shared = append(h.shared, field{name, values})
	}
	for path, p := range r.Pages {
		h.documents[path] = document{[]string{p.ETag}, p.Body}
	}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d, ok := h.documents[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	for i := range h.shared {
		header[h.shared[i].name] = h.shared[i].values
	}
	header["Etag"] = d.etag
	w.Write(d.body) //nolint:errcheck // the client went away: nobody is left to tell
}

// NewServer returns a server with the timeouts that keypostd has of net/http, which a test compares. It closes idle connections itself.
func NewServer(address string, h http.Handler) *http.Server {
	return &http.Server{
		Addr: address, Handler: h, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		ReadTimeout:  5 * time.Second, // of a header too
		WriteTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 8 << 10,
	}
}
