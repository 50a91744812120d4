// Package floor is the least that a net/http server costs that has the same documents as keypostd: the same bytes and
// headers, found in a plain map by their path. It has the same timeouts and does nothing else: no limit, no counter,
// no host name, no ETag that is compared. What keypostd costs is measured against it.
package floor

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
)

// Host is that of the issuers.
const Host = "bench.keypost.test"

// Publish reads a directory as keypostd does.
func Publish(ctx context.Context, dir string) (*issuer.Publisher, error) {
	store, err := filestore.Open(dir)
	if err != nil {
		return nil, err
	}
	pattern, err := issuer.ParsePattern("https://"+Host+"/{name}", false)
	if err != nil {
		return nil, err
	}
	p := issuer.NewPublisher(issuer.Config{Source: keystore.NewStore(store), Patterns: []issuer.Pattern{pattern}, Cache: keystore.DefaultCache(), Log: zap.NewNop()})
	for p.Ready() != nil { // a refresh leaves to the next one what it had no time for
		if err := p.Refresh(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Handler answers as keypostd did. It keeps header values in the form in which net/http keeps them, so that it
// allocates nothing: any other way of setting them would flatter what is compared with it.
type Handler map[string]document // by path

type document struct {
	header []field
	body   []byte
}

type field struct {
	name   string
	values []string
}

// NewHandler returns a handler that answers as another one does now, for the JWKS of key sets.
func NewHandler(h http.Handler, names []string) Handler {
	all := Handler{}
	for _, name := range names {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "https://"+Host+"/"+name+issuer.JWKSPath, http.NoBody)
		h.ServeHTTP(w, r)
		d := document{body: w.Body.Bytes()}
		for name, values := range w.Header() {
			d.header = append(d.header, field{name, values})
		}
		all[r.URL.Path] = d
	}
	return all
}

// ServeHTTP implements http.Handler.
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d, ok := h[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	for i := range d.header {
		header[d.header[i].name] = d.header[i].values
	}
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
