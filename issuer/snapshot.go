package issuer

import (
	"maps"
	"strings"

	"github.com/keypost/keypost/keystore"
)

// snapshot is everything that is served at one time. It is immutable. A change copies the map, not the documents.
type snapshot struct {
	pages    map[keystore.Route]*page
	complete bool // every issuer there is was once read and found good: what is not here does not exist
}

// page is what is served below one issuer URL. It is immutable.
type page struct {
	owner           keystore.Name
	cacheControl    [1]string
	jwks, discovery content
}

// edit is a set of changes to a snapshot: a nil page removes a key.
type edit map[keystore.Route]*page

// with returns a new snapshot that differs by e.
func (s *snapshot) with(e edit) *snapshot {
	next := &snapshot{pages: s.pages, complete: s.complete}
	if len(e) == 0 {
		return next
	}
	next.pages = make(map[keystore.Route]*page, len(s.pages)+len(e))
	maps.Copy(next.pages, s.pages)
	for k, p := range e {
		if p == nil {
			delete(next.pages, k)
		} else {
			next.pages[k] = p
		}
	}
	return next
}

// owner returns the key set whose page is looked up by k, and reports whether there is one.
func (s *snapshot) owner(k keystore.Route) (keystore.Name, bool) {
	p := s.pages[k]
	if p == nil {
		return "", false
	}
	return p.owner, true
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
