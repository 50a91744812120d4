package main

import (
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/test/bench/floor"
)

// serve serves over TLS until the test ends.
func serve(t *testing.T, b *bench, h http.Handler, n int) side {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := floor.NewServer("", h)
	go srv.ServeTLS(ln, b.cert.certFile, b.cert.keyFile) //nolint:errcheck // the client's error says more
	t.Cleanup(func() { _ = srv.Close() })
	return side{label: "it", issuers: n, server: &server{address: ln.Addr().String()}}
}

// The floor must do the same work as keypostd; one that does other work must be noticed.
func TestFloorAnswersLikeKeypostd(t *testing.T) {
	const n = 20 // more than there are connections
	dir, p := published(t, n)
	b := &bench{dir: filepath.Dir(dir)}
	var err error
	if b.cert, err = newCertificate(b.dir); err != nil {
		t.Fatal(err)
	}
	own := serve(t, b, issuer.NewHandler(p, nil), n)
	rec, err := b.record(t.Context(), own)
	if err != nil || len(rec.Pages) != n {
		t.Fatalf("%d pages, %v", len(rec.Pages), err)
	}
	if err := b.check(t.Context(), own, rec); err != nil {
		t.Error(err)
	}
	if err := b.check(t.Context(), serve(t, b, floor.NewHandler(rec), n), rec); err != nil {
		t.Error(err)
	}
	one := newTarget("", n, nil).path(n - 1)
	rec.Pages[one] = floor.Page{ETag: rec.Pages[one].ETag, Body: []byte("x")}
	if err := b.check(t.Context(), own, rec); !errors.Is(err, errOtherAnswer) {
		t.Errorf("another body: %v", err)
	}
	if _, err := b.record(t.Context(), side{label: "it", issuers: n + 1, server: own.server}); err == nil {
		t.Error("a missing issuer is recorded")
	}
}

func TestFloorAllocatesNothing(t *testing.T) {
	rec := new(floor.Recording)
	if err := rec.Add("/a", http.Header{"Etag": {"x"}, "Content-Type": {"text/plain"}}, []byte("a")); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodGet, "https://"+host+"/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := allocations(floor.NewHandler(rec), r, http.StatusOK); err != nil || n != 0 {
		t.Errorf("%v allocations, %v; want none, or keypostd looks better than it is", n, err)
	}
}
