package issuer

import (
	"hash/maphash"
	"maps"
	"strings"
)

// shards is how many parts a snapshot has. A change copies the parts that it touches and 256 pointers, not the map
// of all issuers.
const shards = 256

// place is what a request is looked up by: the host in lower case without its port, and the escaped path byte for byte.
type place struct{ host, path string }

// Snapshot is everything that is served at one time. It is immutable; a nil Snapshot serves nothing.
type Snapshot struct {
	seed    maphash.Seed
	parts   [shards]map[place]*page
	settled bool // every issuer there is has once been read and found good: what is not here does not exist
}

func newSnapshot() *Snapshot { return &Snapshot{seed: maphash.MakeSeed()} }

func (s *Snapshot) part(p place) uint64 {
	return (maphash.String(s.seed, p.path) ^ maphash.String(s.seed, p.host)*31) % shards
}

// edit is a set of changes to a snapshot: a nil page takes a place out.
type edit map[place]*page

// with returns a new snapshot that differs by e. Parts that e does not touch are shared.
func (s *Snapshot) with(e edit, settled bool) *Snapshot {
	n := &Snapshot{seed: s.seed, parts: s.parts, settled: settled}
	copied := map[uint64]bool{}
	for at, pg := range e {
		i := s.part(at)
		if !copied[i] {
			n.parts[i], copied[i] = maps.Clone(n.parts[i]), true
		}
		if pg == nil {
			delete(n.parts[i], at)
			continue
		}
		if n.parts[i] == nil {
			n.parts[i] = map[place]*page{}
		}
		n.parts[i][at] = pg
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

// find returns the document at host and path, nil when there is none.
//
// An issuer URL never contains the names of documents (keystore.ParseIssuerURL), so that cutting one off the end of
// the path cannot turn one issuer's document into another's.
func (s *Snapshot) find(host, path string) (*Document, kind) {
	at, k := split(path)
	p := place{host, at}
	pg := s.parts[s.part(p)][p]
	if pg == nil {
		return nil, kindNone
	}
	switch k {
	case kindDiscovery:
		return &pg.discovery, k
	case kindRoot:
		return &pg.root, k
	}
	return &pg.jwks, k
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
