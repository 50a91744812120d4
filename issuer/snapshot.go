package issuer

import (
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// snapshot is everything that is known, and served, at one time. It is immutable. A change copies the maps, not the documents.
type snapshot struct {
	entries  map[keystore.Name]*entry
	pages    map[keystore.Route]*page // of the last good versions
	complete bool                     // every issuer there is was once read and found good: what is not here does not exist
	ready    bool                     // for good
	first    time.Time                // when the first complete listing was taken; zero for never
	last     time.Time                // when the last one was
	failing  bool                     // the last listing failed (so that one line is logged per change of state)
}

// entry is what is known of one key set. It is immutable.
type entry struct {
	revision keystore.Revision   // of the stored version that was looked at last; empty when there is none
	served   *version            // the last good one; nil when there was none
	rejected *lastgood.Rejection // why the stored version is not the served one, or that there is none; nil when it is served
}

// page is what is served below one issuer URL. It is immutable.
type page struct {
	at              keystore.Route
	owner           keystore.Name
	cacheControl    [1]string
	jwks, discovery content
}

// pagesOf returns what key sets serve. A lastgood.Judge gives each URL to one of them.
func pagesOf(entries map[keystore.Name]*entry) map[keystore.Route]*page {
	all := make(map[keystore.Route]*page, len(entries))
	for _, e := range entries {
		if e.served == nil {
			continue
		}
		for i := range e.served.pages {
			all[e.served.pages[i].at] = &e.served.pages[i]
		}
	}
	return all
}

// start returns how far reading has come.
func (s *snapshot) start(now time.Time, allowEmpty bool) lastgood.Start {
	start := lastgood.Start{Waited: now.Sub(s.first), AllowEmpty: allowEmpty}
	for _, e := range s.entries {
		start.Count(e.served != nil, e.rejected)
	}
	return start
}

// Good is part of [lastgood.State].
func (s *snapshot) Good(n keystore.Name) *lastgood.Summary {
	if e := s.entries[n]; e != nil && e.served != nil {
		return &e.served.Summary
	}
	return nil
}

// Owner is part of [lastgood.State].
func (s *snapshot) Owner(r keystore.Route) (n keystore.Name, owned bool) {
	if p := s.pages[r]; p != nil {
		return p.owner, true
	}
	return "", false
}

// find returns the document at host and path, and reports whether there is one.
//
// An issuer URL never contains the names of documents (keystore.ParseIssuerURL). So cutting one off the end of the path
// cannot turn one issuer's document into another's.
func (s *snapshot) find(host, path string) (document, kind, bool) {
	issuerPath, k := split(path)
	p := s.pages[keystore.Route{Host: host, Path: issuerPath}]
	if p == nil {
		return document{}, k, false
	}
	d := document{content: &p.jwks, contentType: typeJSON, cacheControl: p.cacheControl[:]}
	switch k {
	case kindRoot:
		d.content, d.contentType = &root, typeText
	case kindDiscovery:
		d.content = &p.discovery
	}
	return d, k, true
}

// kind is which document below an issuer URL a request asks for.
type kind int

const (
	kindRoot kind = iota // the issuer URL itself
	kindDiscovery
	kindJWKS
	kindJWKSAlias
	kinds
)

// kindNames are label values of a metric.
var kindNames = [kinds]string{"issuer", "discovery", "jwks", "jwks_alias"}

// split splits a request's path into that of an issuer URL and the document below it.
func split(path string) (issuerPath string, k kind) {
	if p, ok := strings.CutSuffix(path, JWKSPath); ok {
		return p, kindJWKS
	}
	if p, ok := strings.CutSuffix(path, DiscoveryPath); ok {
		return p, kindDiscovery
	}
	if p, ok := strings.CutSuffix(path, JWKSAliasPath); ok {
		return p, kindJWKSAlias
	}
	if path == "/" {
		return "", kindRoot // HTTP has no empty path
	}
	return path, kindRoot
}
