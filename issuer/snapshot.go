package issuer

import (
	"strings"

	"github.com/keypost/keypost/issuer/internal/routes"
	"github.com/keypost/keypost/keystore"
)

// routeKey is what a request is looked up by.
type routeKey = routes.Key

// snapshot is everything that is served at one time. It is immutable.
type snapshot struct {
	table    *routes.Table
	complete bool // every issuer there is was once read and found good: what is not here does not exist
}

// edit is a set of changes to a snapshot: a nil page removes a key.
type edit map[routeKey]*routes.Page

// with returns a new snapshot that differs by e.
func (s *snapshot) with(e edit) *snapshot {
	return &snapshot{table: s.table.With(e), complete: s.complete}
}

// owner returns the key set whose page is looked up by k, and reports whether there is one.
func (s *snapshot) owner(k routeKey) (keystore.Name, bool) {
	e, ok := s.table.Find(k)
	if !ok {
		return "", false
	}
	return keystore.Name(e.Owner()), true
}

// issuers returns how many issuer URLs are served.
func (s *snapshot) issuers() int { return s.table.Len() }

// find returns the document at host and path, and reports whether there is one.
//
// An issuer URL never contains the names of documents (keystore.ParseIssuerURL). So cutting one off the end of the path
// cannot turn one issuer's document into another's.
func (s *snapshot) find(host, path string) (document, kind, bool) {
	issuerPath, k := split(path)
	e, ok := s.table.Find(routeKey{Host: host, Path: issuerPath})
	if !ok {
		return document{}, k, false
	}
	return newDocument(e, k), k, true
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
