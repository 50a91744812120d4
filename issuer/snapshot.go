package issuer

import (
	"hash/maphash"
	"strings"

	"github.com/keypost/keypost/keystore"
)

// shards is how many parts a snapshot has. A change copies the parts that it touches and 256 pointers, not those
// of all issuers.
const shards = 256

// place is what a request is looked up by: the host in lower case without its port, and the escaped path byte for byte.
type place struct{ host, path string }

// Snapshot is everything that is served at one time. It is immutable; a nil Snapshot serves nothing.
type Snapshot struct {
	seed    maphash.Seed
	parts   [shards]*part
	settled bool // every issuer there is has once been read and found good: what is not here does not exist
}

func newSnapshot() *Snapshot { return &Snapshot{seed: maphash.MakeSeed()} }

func (s *Snapshot) hash(at place) uint64 {
	return maphash.String(s.seed, at.path) ^ maphash.String(s.seed, at.host)*31
}

// slot returns where a place is, nil when it is nowhere.
func (s *Snapshot) slot(at place) (*part, *slot) {
	h := s.hash(at)
	p := s.parts[h%shards]
	return p, p.find(upper(h), at)
}

// owner returns the key set that a place is served for.
func (s *Snapshot) owner(at place) (keystore.Name, bool) {
	p, found := s.slot(at)
	if found == nil {
		return "", false
	}
	return p.owner(found), true
}

// issuers returns how many issuer URLs are served.
func (s *Snapshot) issuers() int {
	n := 0
	for _, p := range s.parts {
		if p != nil {
			n += p.count
		}
	}
	return n
}

// edit is a set of changes to a snapshot: a nil page takes a place out.
type edit map[place]*page

// with returns a new snapshot that differs by e. Parts that e does not touch are shared.
func (s *Snapshot) with(e edit) *Snapshot {
	n := &Snapshot{seed: s.seed, parts: s.parts, settled: s.settled}
	touched := map[uint64]edit{}
	for at, pg := range e {
		i := s.hash(at) % shards
		if touched[i] == nil {
			touched[i] = edit{}
		}
		touched[i][at] = pg
	}
	for i, e := range touched {
		n.parts[i] = s.parts[i].with(e, func(at place) uint32 { return upper(s.hash(at)) })
	}
	return n
}

// kind sorts requests for metrics.
type kind int

const (
	kindNone kind = iota
	kindRoot
	kindDiscovery
	kindJWKS
	kindJWKSAlias
	kinds
)

var kindNames = [kinds]string{"none", "issuer", "discovery", "jwks", "jwks_alias"}

// find returns the document at host and path; kindNone when there is none.
//
// An issuer URL never contains the names of documents (keystore.ParseIssuerURL), so that cutting one off the end of
// the path cannot turn one issuer's document into another's.
func (s *Snapshot) find(host, path string) (Document, kind) {
	at, k := split(path)
	p, found := s.slot(place{host, at})
	if found == nil {
		return Document{}, kindNone
	}
	return p.document(found, k), k
}

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
