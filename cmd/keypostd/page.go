package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/internal/build"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/page"
	"github.com/keypost/keypost/keystore"
)

const (
	// maxPages is how many pages are made or written at once: each is kept until its client has taken it, some hundred KiB.
	maxPages = 8
	// certificateSoon is when a certificate needs attention, and mirrorLate how old a copy may be: as the chart's alerts have them by
	// default. Another monitoring.rules.certificateDays or staleSeconds changes the alert and not the page.
	certificateSoon = 14 * 24 * time.Hour
	mirrorLate      = 5 * time.Minute
)

// pages serves the operator's page. Documents are read when they are asked for: what is kept of those that are served is what serving
// takes, and a page is to show what is stored as well.
type pages struct {
	d     *daemon
	slots chan struct{}
	turn  chan struct{} // held while a page is made: no number of clients takes more than one core
}

func newPages(d *daemon) *pages {
	return &pages{d, make(chan struct{}, maxPages), make(chan struct{}, 1)}
}

// ServeHTTP implements http.Handler.
func (s *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.slots <- struct{}{}:
	case <-r.Context().Done():
		return
	}
	defer func() { <-s.slots }()
	status, contentType, body, err := s.make(r.Context(), r.URL)
	if err != nil {
		if r.Context().Err() == nil {
			s.d.log.Error("show a page", zap.Error(err))
		}
		http.Error(w, "the page cannot be made; see the log", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Content-Security-Policy", page.Policy()+"; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone away
}

// make makes the page at an address.
func (s *pages) make(ctx context.Context, at *url.URL) (status int, contentType string, body []byte, err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, "", nil, ctx.Err()
	}
	defer func() { <-s.turn }()
	var p any
	switch name := strings.TrimSuffix(at.Path, ".html"); {
	case strings.HasSuffix(at.Path, ".yaml"):
		if doc := s.document(ctx, at.Path); doc != nil {
			return http.StatusOK, "application/yaml", doc, nil
		}
	default:
		p = s.find(ctx, name)
	}
	if p == nil {
		return http.StatusNotFound, "text/plain; charset=utf-8", []byte("not found\n"), nil
	}
	body, err = page.HTML(p)
	return http.StatusOK, "text/html; charset=utf-8", body, err
}

// document returns the document at a path, where the directory holds the version that is served; else nil.
func (s *pages) document(ctx context.Context, path string) []byte {
	name, below := strings.CutPrefix(path, "/keysets/")
	name, is := strings.CutSuffix(name, ".yaml")
	status, _, known := s.d.publisher.Of(keystore.Name(name))
	if !below || !is || !known {
		return nil
	}
	set, _, err := s.d.publishing.Source.Load(ctx, keystore.Name(name))
	if err != nil {
		return nil
	}
	doc, err := keystore.Encode(set)
	if err != nil || set.Digest().String() != status.Digest {
		return nil
	}
	return doc
}

// find returns the page at a path without its suffix, or nil.
func (s *pages) find(ctx context.Context, path string) any {
	about := s.about(time.Now())
	if path == "/" || path == "/index" {
		return s.list(ctx, about)
	}
	if name, below := strings.CutPrefix(path, "/keysets/"); below && keystore.Name(name).Check() == nil {
		if status, kids, ok := s.d.publisher.Of(keystore.Name(name)); ok {
			return page.Of(about, s.input(ctx, status, kids))
		}
	}
	return nil
}

// about returns what every page says.
func (s *pages) about(now time.Time) page.About {
	d := s.d
	a := page.About{Made: now.UTC().Truncate(time.Second), Build: "keypostd " + build.Version() + ", " + runtime.Version(), Source: "the directory " + d.c.Dir}
	if host, err := os.Hostname(); err == nil {
		a.Source += " on " + host
	}
	a.Complete = d.publisher.Complete().UTC().Truncate(time.Second)
	trouble := func(runbook, format string, args ...any) {
		a.Trouble = append(a.Trouble, page.Trouble{Text: fmt.Sprintf(format, args...), Runbook: runbook})
	}
	if d.publisher.Failing() {
		trouble(page.RunbookReading, "The key sets cannot be listed; what was read before stays served.")
	}
	if err := d.ready(); err != nil {
		trouble(page.RunbookReady, "This keypostd is not ready: %v.", err)
	}
	switch note, err := d.heartbeat.now(); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		trouble(page.RunbookMirror, "The note of keypost mirror in the directory cannot be read.")
	default:
		a.Mirror = &page.Mirror{Store: note.Store, Complete: note.Complete, KeySets: note.KeySets, Refused: note.Refused}
		if now.Sub(note.Complete) > mirrorLate {
			trouble(page.RunbookMirror, "The mirror has made no whole copy for more than %v: changes and revocations do not arrive.", keystore.Duration(mirrorLate))
		}
	}
	if d.certificates == nil {
		return a
	}
	for _, c := range d.certificates.InUse() {
		a.Certificates = append(a.Certificates, page.Certificate{Names: c.Names, From: c.From, Until: c.Until})
		if d.dev == "" && c.Until.Sub(now) < certificateSoon {
			trouble(page.RunbookCertificate, "The certificate for %s has expired, or does within two weeks.", strings.Join(c.Names, ", "))
		}
	}
	return a
}

// list returns the list. Only the documents of the key sets that it names are read.
func (s *pages) list(ctx context.Context, about page.About) page.List {
	all := s.d.publisher.Report().Issuers
	l := page.List{About: about, KeySets: len(all)}
	for i, st := range all {
		l.Issuers += len(st.Issuers)
		if i < page.MaxRows {
			l.Rows = append(l.Rows, page.Of(about, s.input(ctx, st, nil)))
		}
		if st.Rejected == "" {
			continue
		}
		if l.Attention++; l.Attention <= page.MaxAttention {
			l.First = append(l.First, page.Of(about, input(st, nil)))
		}
	}
	return l
}

// input returns what is known of a key set, with its document.
func (s *pages) input(ctx context.Context, st issuer.Status, kids []keystore.KeyID) page.Input {
	in := input(st, kids)
	switch set, _, err := s.d.publishing.Source.Load(ctx, st.Name); {
	case errors.Is(err, keystore.ErrNotFound):
	case err != nil:
		in.Unread = err.Error()
	default:
		in.Set = &set
	}
	return in
}

// input returns what a publisher knows of a key set.
func input(st issuer.Status, kids []keystore.KeyID) page.Input {
	in := page.Input{Name: st.Name, Served: page.Served{Generation: st.Generation, Digest: st.Digest, Withdrawn: st.Generation > 0 && !st.Served, Issuers: st.Issuers, Kids: kids}}
	if st.Rejected != "" {
		in.Rejected = &page.Rejected{Reason: st.Rejected, Message: st.Message}
	}
	return in
}
