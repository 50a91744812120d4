package issuer

import (
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/keypost/keypost/keystore"
)

// part is one of the parts of a Snapshot. It is immutable; a nil part is empty.
//
// What a request costs beyond net/http is mostly waiting for memory: among thousands of issuers, whatever is looked at
// is in no cache. So the index is small enough to stay in one, and says where the two pieces are that a request needs: a
// slot of one cache line, and all text of an issuer. The garbage collector has little to walk either.
type part struct {
	index []cell // an open hash table with linear probing; len is a power of two
	slots []slot // of the cells with the same number
	count int    // entries that are taken
	text  string // of each issuer: host, path, ETags, JWKS, discovery document, owner

	values []string // header values, which many issuers have in common
}

// cell says where an issuer's text begins. One with text 0 is free.
type cell struct {
	hash uint32 // of the place, its upper half; the lower one has chosen the part
	text uint32 // where it begins, plus 1
}

// slot says how long the pieces of an issuer's text are.
type slot struct {
	at                uint32 // where it begins
	host, path, owner uint8  // an issuer URL has at most 255 bytes, a name 63
	jwks, discovery   uint32

	// Where these header values are in those of the part.
	cacheControl, jwksLength, discoveryLength uint32

	etags [2]string // in text: of the JWKS, of the discovery document. net/http is given slices of it
}

// etagLength is that of every ETag (newContent).
const etagLength = 24

func (s *slot) pathAt() uint32  { return s.at + uint32(s.host) }
func (s *slot) etagsAt() uint32 { return s.pathAt() + uint32(s.path) }
func (s *slot) jwksAt() uint32  { return s.etagsAt() + 2*etagLength }
func (s *slot) discAt() uint32  { return s.jwksAt() + s.jwks }
func (s *slot) ownerAt() uint32 { return s.discAt() + s.discovery }
func (s *slot) end() uint32     { return s.ownerAt() + uint32(s.owner) }

func upper(hash uint64) uint32 { return uint32(hash >> 32) }

// find returns the slot of a place whose hash is given, nil when there is none.
func (p *part) find(hash uint32, at place) *slot {
	if p == nil {
		return nil
	}
	for i := p.first(hash); p.index[i].text != 0; i = p.next(i) {
		if p.index[i].hash != hash {
			continue
		}
		fetch(p.text[p.index[i].text-1:])
		if s := &p.slots[i]; p.place(s) == at {
			return s
		}
	}
	return nil
}

func (p *part) first(hash uint32) int { return int(hash) & (len(p.index) - 1) }
func (p *part) next(i int) int        { return (i + 1) & (len(p.index) - 1) }

// fetch looks at every line of a text that is about to be compared and written, so that the processor waits for all of
// them, and for the slot, at once and not for one after the other.
func fetch(text string) {
	const line, most = 64, 1152 // a JWKS of two RSA-2048 keys, and what comes before it
	var seen byte
	for i := 0; i < min(len(text), most); i += line {
		seen |= text[i]
	}
	runtime.KeepAlive(seen)
}

func (p *part) place(s *slot) place {
	return place{p.text[s.at:s.pathAt()], p.text[s.pathAt():s.etagsAt()]}
}

func (p *part) owner(s *slot) keystore.Name { return keystore.Name(p.text[s.ownerAt():s.end()]) }

// document returns one of the documents of an issuer.
func (p *part) document(s *slot, k kind) Document {
	d := Document{contentType: typeJSON, cacheControl: one(p.values, int(s.cacheControl))}
	switch k {
	case kindRoot:
		d.contentType = typeText
		d.body, d.etag, d.length = rootLine, rootETag, rootLength
	case kindDiscovery:
		d.body, d.etag, d.length = p.text[s.discAt():s.ownerAt()], one(s.etags[:], 1), one(p.values, int(s.discoveryLength))
	default:
		d.body, d.etag, d.length = p.text[s.jwksAt():s.discAt()], one(s.etags[:], 0), one(p.values, int(s.jwksLength))
	}
	return d
}

// one returns a header value as net/http wants it. It cannot grow into its neighbour.
func one(values []string, i int) []string { return values[i : i+1 : i+1] }

// with returns a part that differs by e, all of whose places belong here; nil when nothing is left. hash is that of a
// place, as find takes it.
func (p *part) with(e edit, hash func(place) uint32) *part {
	b := builder{numbers: map[string]uint32{}}
	if p != nil {
		for i, in := range p.index {
			s := &p.slots[i]
			if _, changed := e[p.place(s)]; in.text != 0 && !changed {
				b.keep(p, in.hash, s)
			}
		}
	}
	for at, pg := range e {
		if pg != nil {
			b.add(hash(at), at, pg)
		}
	}
	return b.part()
}

// builder collects the issuers of a part. It starts with no header values, so that those of documents that are no
// longer served do not pile up.
type builder struct {
	values  []string
	numbers map[string]uint32 // of values: their indices
	hashes  []uint32
	slots   []slot
	text    strings.Builder
}

// number returns where a header value is in values.
func (b *builder) number(value string) uint32 {
	i, ok := b.numbers[value]
	if !ok {
		i = uint32(len(b.values)) //nolint:gosec // at most three for each issuer
		b.numbers[value], b.values = i, append(b.values, value)
	}
	return i
}

func (b *builder) keep(p *part, hash uint32, was *slot) {
	s := *was
	s.at = b.here()
	for _, i := range []*uint32{&s.cacheControl, &s.jwksLength, &s.discoveryLength} {
		*i = b.number(p.values[*i])
	}
	b.text.WriteString(p.text[was.at:was.end()])
	b.hashes, b.slots = append(b.hashes, hash), append(b.slots, s)
}

func (b *builder) add(hash uint32, at place, pg *page) {
	length := func(s string) uint32 { return uint32(len(s)) } //nolint:gosec // a document has at most 1 MiB
	short := func(s string) uint8 { return uint8(len(s)) }    //nolint:gosec // see slot
	b.hashes = append(b.hashes, hash)
	b.slots = append(b.slots, slot{
		at:   b.here(),
		host: short(at.host), path: short(at.path), owner: short(string(pg.owner)),
		jwks: length(pg.jwks.body), discovery: length(pg.discovery.body),
		cacheControl:    b.number(pg.cacheControl),
		jwksLength:      b.number(strconv.Itoa(len(pg.jwks.body))),
		discoveryLength: b.number(strconv.Itoa(len(pg.discovery.body))),
	})
	for _, s := range []string{at.host, at.path, pg.jwks.etag, pg.discovery.etag, pg.jwks.body, pg.discovery.body, string(pg.owner)} {
		b.text.WriteString(s)
	}
}

func (b *builder) here() uint32 { return uint32(b.text.Len()) } //nolint:gosec // 4 GiB in one of 256 parts

func (b *builder) part() *part {
	n := len(b.slots)
	if n == 0 {
		return nil
	}
	size := 2
	for size < n+n/2 {
		size *= 2
	}
	p := &part{index: make([]cell, size), slots: make([]slot, size), count: n, text: strings.Clone(b.text.String()), values: slices.Clone(b.values)}
	for n, s := range b.slots {
		tags := p.text[s.etagsAt():s.jwksAt()]
		s.etags = [2]string{tags[:etagLength], tags[etagLength:]}
		i := p.first(b.hashes[n])
		for p.index[i].text != 0 {
			i = p.next(i)
		}
		p.index[i], p.slots[i] = cell{b.hashes[n], s.at + 1}, s
	}
	return p
}
