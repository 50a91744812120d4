package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	maxPages = 2
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
}

func newPages(d *daemon) *pages { return &pages{d, make(chan struct{}, maxPages)} }

// ServeHTTP implements http.Handler.
func (s *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.slots <- struct{}{}:
	case <-r.Context().Done():
		return
	}
	defer func() { <-s.slots }()
	h := w.Header()
	if document, is := strings.CutSuffix(r.URL.Path, ".yaml"); is {
		h.Set("Content-Type", "application/yaml")
		s.write(w, s.document(r.Context(), document))
		return
	}
	var body []byte
	if p := s.find(r.Context(), strings.TrimSuffix(r.URL.Path, ".html")); p != nil {
		var err error
		if body, err = page.HTML(p); err != nil {
			s.d.log.Error("show a page", zap.Error(err))
			http.Error(w, "the page cannot be made; see the log", http.StatusInternalServerError)
			return
		}
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", page.Policy()+"; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	s.write(w, body)
}

// write answers with a body, or that there is none.
func (s *pages) write(w http.ResponseWriter, body []byte) {
	if body == nil {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // the client may have gone away
}

// keySet returns what a report tells of the key set whose page or document is at a path without its suffix.
func keySet(r issuer.Report, path string) (issuer.Status, bool) {
	name, below := strings.CutPrefix(path, "/keysets/")
	status, known := r.Of(keystore.Name(name))
	return status, below && known
}

// document returns the document at a path, where the directory holds the version that is served; else nil.
func (s *pages) document(ctx context.Context, path string) []byte {
	status, known := keySet(s.d.publisher.Report(), path)
	if !known {
		return nil
	}
	set, _, err := s.d.publishing.Source.Load(ctx, status.Name)
	if err != nil || set.Digest().String() != status.Digest {
		return nil
	}
	doc, err := keystore.Encode(set)
	if err != nil {
		return nil
	}
	return doc
}

// find returns the page at a path without its suffix, or nil. It makes one report, which takes long for many key sets.
func (s *pages) find(ctx context.Context, path string) any {
	report := s.d.publisher.Report()
	if path == "/" || path == "/index" {
		return s.list(ctx, report)
	}
	if status, known := keySet(report, path); known {
		return s.about(ctx, s.head(report, time.Now()), status)
	}
	return nil
}

// head returns what every page says.
func (s *pages) head(report issuer.Report, now time.Time) page.About {
	d := s.d
	a := page.About{Made: now.UTC().Truncate(time.Second), Build: "keypostd " + build.Version() + ", " + runtime.Version(), Source: "the directory " + d.c.Dir}
	if host, err := os.Hostname(); err == nil {
		a.Source += " on " + host
	}
	a.Complete = report.Complete.UTC().Truncate(time.Second)
	trouble := func(runbook, format string, args ...any) {
		a.Trouble = append(a.Trouble, page.Trouble{Text: fmt.Sprintf(format, args...), Runbook: runbook})
	}
	if report.Failing {
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
func (s *pages) list(ctx context.Context, report issuer.Report) page.List {
	l := page.List{About: s.head(report, time.Now()), KeySets: len(report.Issuers)}
	for i, st := range report.Issuers {
		l.Issuers += len(st.Issuers)
		if i < page.MaxRows {
			l.Rows = append(l.Rows, s.about(ctx, l.About, st))
		}
		if st.Rejected == "" {
			continue
		}
		if l.Attention++; l.Attention <= page.MaxAttention {
			l.First = append(l.First, page.Of(l.About, st, nil, ""))
		}
	}
	return l
}

// about returns the page about a key set, with what is stored.
func (s *pages) about(ctx context.Context, head page.About, st issuer.Status) page.KeySet {
	switch set, _, err := s.d.publishing.Source.Load(ctx, st.Name); {
	case errors.Is(err, keystore.ErrNotFound):
		return page.Of(head, st, nil, "")
	case err != nil:
		return page.Of(head, st, nil, err.Error())
	default:
		return page.Of(head, st, &set, "")
	}
}
