package lastgood

import (
	"maps"
	"slices"

	"github.com/keypost/keypost/keystore"
)

// Index keeps last good versions, by name and by route. It implements [State]. The zero Index is empty. It is not safe for
// concurrent use.
type Index struct {
	good map[keystore.Name]*Summary
	had  map[Route][]keystore.Name // the key sets whose last good version, maybe a tombstone, has an issuer URL there
}

// Put makes a version the last good one of a key set; nil forgets the key set.
func (x *Index) Put(n keystore.Name, version *Summary) {
	if x.good == nil {
		x.good, x.had = map[keystore.Name]*Summary{}, map[Route][]keystore.Name{}
	}
	was := x.good[n]
	delete(x.good, n)
	if version != nil {
		x.good[n] = version
		for r := range version.Routes() {
			if !slices.Contains(x.had[r], n) {
				x.had[r] = append(x.had[r], n)
			}
		}
	}
	if was == nil {
		return
	}
	for r := range was.Routes() {
		if version != nil && version.has(r) {
			continue
		}
		if x.had[r] = slices.DeleteFunc(x.had[r], func(m keystore.Name) bool { return m == n }); len(x.had[r]) == 0 {
			delete(x.had, r)
		}
	}
}

// Good implements [State].
func (x *Index) Good(n keystore.Name) *Summary { return x.good[n] }

// Had implements [State].
func (x *Index) Had(r Route) []keystore.Name { return x.had[r] }

// Owner implements [State]. If two key sets have the URL, written by hand, the first that was put owns it.
func (x *Index) Owner(r Route) (n keystore.Name, owned bool) {
	for _, n := range x.had[r] {
		if !x.good[n].Withdrawn() {
			return n, true
		}
	}
	return "", false
}

// Names returns the key sets with a last good version, sorted.
func (x *Index) Names() []keystore.Name {
	return slices.Sorted(maps.Keys(x.good))
}
