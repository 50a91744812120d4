package routes

import (
	"iter"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// shard is an open hash table with linear probing. It is immutable; a nil shard is empty.
//
// At 10,000 issuers lookups are bound by cache misses. The cells of all shards fit in the L2 cache; each hit then reads
// one slot, which is one cache line, and one contiguous text. There are few pointers for the garbage collector to walk.
type shard struct {
	cells  []cell // len is a power of two
	slots  []slot // of the cells with the same number
	count  int
	text   string   // of each page: host, path, ETags, JWKS, discovery document, owner
	values []string // header values, which many pages have in common
}

// cell has a key's hash, and where its page's text begins. One with text 0 is free.
type cell struct {
	hash uint32
	text uint32 // plus 1
}

// slot has the lengths of the pieces of a page's text.
type slot struct {
	at                      uint32 // where the text begins
	host, path, etag, owner uint8  // an issuer URL has at most 255 bytes
	jwks, discovery         uint32

	// Indices of header values.
	cacheControl, jwksLength, discoveryLength uint32

	etags [2]string // in text: of the JWKS, of the discovery document. net/http is given slices of it
}

func (s *slot) pathAt() uint32      { return s.at + uint32(s.host) }
func (s *slot) etagsAt() uint32     { return s.pathAt() + uint32(s.path) }
func (s *slot) jwksAt() uint32      { return s.etagsAt() + 2*uint32(s.etag) }
func (s *slot) discoveryAt() uint32 { return s.jwksAt() + s.jwks }
func (s *slot) ownerAt() uint32     { return s.discoveryAt() + s.discovery }
func (s *slot) end() uint32         { return s.ownerAt() + uint32(s.owner) }

// find returns the slot of a key with the given hash, or nil.
func (s *shard) find(hash uint32, k Key) *slot {
	if s == nil {
		return nil
	}
	for i := s.first(hash); s.cells[i].text != 0; i = s.next(i) {
		if s.cells[i].hash != hash {
			continue
		}
		prefetch(s.text[s.cells[i].text-1:])
		if found := &s.slots[i]; s.key(found) == k {
			return found
		}
	}
	return nil
}

func (s *shard) first(hash uint32) int { return int(hash) & (len(s.cells) - 1) }
func (s *shard) next(i int) int        { return (i + 1) & (len(s.cells) - 1) }

func (s *shard) key(at *slot) Key {
	return Key{s.text[at.at:at.pathAt()], s.text[at.pathAt():at.etagsAt()]}
}

func (s *shard) len() int {
	if s == nil {
		return 0
	}
	return s.count
}

// prefetch reads a byte of every cache line of a text that is about to be compared and written. The processor then
// waits for all of them, and for the slot, at once instead of one after the other.
func prefetch(text string) {
	const line, most = 64, 1152 // a JWKS of two RSA-2048 keys, and what comes before it
	var seen byte
	for i := 0; i < min(len(text), most); i += line {
		seen |= text[i]
	}
	runtime.KeepAlive(seen)
}

// all returns the slots that are taken, and their hashes.
func (s *shard) all() iter.Seq2[uint32, *slot] {
	return func(yield func(uint32, *slot) bool) {
		if s == nil {
			return
		}
		for i, c := range s.cells {
			if c.text != 0 && !yield(c.hash, &s.slots[i]) {
				return
			}
		}
	}
}

// with returns a shard that differs by changes, all of whose keys belong here; nil when nothing is left. hash is that
// of a key, as find takes it.
func (s *shard) with(changes map[Key]*Page, hash func(Key) uint32) *shard {
	b := builder{indices: map[string]uint32{}}
	for h, at := range s.all() {
		if _, changed := changes[s.key(at)]; !changed {
			b.keep(s, h, at)
		}
	}
	for k, page := range changes {
		if page != nil {
			b.add(hash(k), k, page)
		}
	}
	return b.shard()
}

// builder collects the pages of a shard. It starts without header values, so that those of documents that are no longer
// served do not pile up.
type builder struct {
	values  []string
	indices map[string]uint32 // of values
	hashes  []uint32
	slots   []slot
	text    strings.Builder
}

// index returns the index of a header value.
func (b *builder) index(value string) uint32 {
	i, ok := b.indices[value]
	if !ok {
		i = uint32(len(b.values)) //nolint:gosec // at most three for each page
		b.indices[value], b.values = i, append(b.values, value)
	}
	return i
}

// keep copies a page of another shard.
func (b *builder) keep(from *shard, hash uint32, old *slot) {
	s := *old
	s.at = b.here()
	for _, i := range []*uint32{&s.cacheControl, &s.jwksLength, &s.discoveryLength} {
		*i = b.index(from.values[*i])
	}
	b.text.WriteString(from.text[old.at:old.end()])
	b.hashes, b.slots = append(b.hashes, hash), append(b.slots, s)
}

func (b *builder) add(hash uint32, k Key, page *Page) {
	length := func(s string) uint32 { return uint32(len(s)) } //nolint:gosec // a document has at most 1 MiB
	short := func(s string) uint8 { return uint8(len(s)) }    //nolint:gosec // see slot
	b.hashes = append(b.hashes, hash)
	b.slots = append(b.slots, slot{
		at:   b.here(),
		host: short(k.Host), path: short(k.Path), etag: short(page.JWKS.ETag), owner: short(page.Owner),
		jwks: length(page.JWKS.Body), discovery: length(page.Discovery.Body),
		cacheControl:    b.index(page.CacheControl),
		jwksLength:      b.index(strconv.Itoa(len(page.JWKS.Body))),
		discoveryLength: b.index(strconv.Itoa(len(page.Discovery.Body))),
	})
	for _, s := range []string{k.Host, k.Path, page.JWKS.ETag, page.Discovery.ETag, page.JWKS.Body, page.Discovery.Body, page.Owner} {
		b.text.WriteString(s)
	}
}

func (b *builder) here() uint32 { return uint32(b.text.Len()) } //nolint:gosec // 4 GiB in one of 256 shards

// shard returns the shard; nil when it is empty.
func (b *builder) shard() *shard {
	n := len(b.slots)
	if n == 0 {
		return nil
	}
	size := 2
	for size < n+n/2 {
		size *= 2
	}
	made := &shard{cells: make([]cell, size), slots: make([]slot, size), count: n, text: strings.Clone(b.text.String()), values: slices.Clone(b.values)}
	for n, s := range b.slots {
		etags := made.text[s.etagsAt():s.jwksAt()]
		s.etags = [2]string{etags[:s.etag], etags[s.etag:]}
		i := made.first(b.hashes[n])
		for made.cells[i].text != 0 {
			i = made.next(i)
		}
		made.cells[i], made.slots[i] = cell{b.hashes[n], s.at + 1}, s
	}
	return made
}
