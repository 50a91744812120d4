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
	live map[keystore.Route][]keystore.Name // the key sets whose last good version is in use and has an issuer URL there
}

// Put makes a version the last good one of a key set; nil forgets the key set.
func (x *Index) Put(n keystore.Name, version *Summary) {
	if x.good == nil {
		x.good, x.live = map[keystore.Name]*Summary{}, map[keystore.Route][]keystore.Name{}
	}
	was := x.good[n]
	delete(x.good, n)
	if version != nil {
		x.good[n] = version
	}
	for _, u := range version.served() {
		if !slices.Contains(x.live[u.Route()], n) {
			x.live[u.Route()] = append(x.live[u.Route()], n)
		}
	}
	for _, u := range was.served() {
		r := u.Route()
		if version.serves(r) {
			continue
		}
		if x.live[r] = slices.DeleteFunc(x.live[r], func(m keystore.Name) bool { return m == n }); len(x.live[r]) == 0 {
			delete(x.live, r)
		}
	}
}

// Good implements [State].
func (x *Index) Good(n keystore.Name) *Summary { return x.good[n] }

// Owner implements [State]. If two key sets have the URL, written by hand, the first that was put owns it.
func (x *Index) Owner(r keystore.Route) (n keystore.Name, owned bool) {
	if len(x.live[r]) == 0 {
		return "", false
	}
	return x.live[r][0], true
}

// Names returns the key sets with a last good version, sorted.
func (x *Index) Names() []keystore.Name {
	return slices.Sorted(maps.Keys(x.good))
}
