package issuer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// witness remembers what was ever published and holds every later moment against it. It reads what is in public and
// what is in the store, nothing else.
type witness struct {
	generation map[keystore.Name]int64           // of the version published last
	gone       map[keystore.Name]map[string]bool // kids that any published version named as gone
	owner      map[string]keystore.Name          // by issuer URL that must be served
	keys       map[string][]string               // by issuer URL: the kids served last
}

func newWitness() *witness {
	return &witness{map[keystore.Name]int64{}, map[keystore.Name]map[string]bool{}, map[string]keystore.Name{}, map[string][]string{}}
}

// look learns what was published since the last look, and then checks everything that must be served.
func (w *witness) look(b *bench) error {
	for _, st := range b.Report().Issuers {
		if err := w.note(b, st); err != nil {
			return err
		}
	}
	for u := range w.owner {
		if err := w.check(b, u); err != nil {
			return err
		}
	}
	return nil
}

// note learns of a version that was published: the one in the store, since the walk looks after every step.
func (w *witness) note(b *bench, st Status) error {
	switch last := w.generation[st.Name]; {
	case st.Generation < last:
		return fmt.Errorf("%s went back from generation %d to %d", st.Name, last, st.Generation)
	case st.Generation == last:
		return nil
	}
	set, _, err := b.store.Load(b.t.Context(), st.Name)
	if err == nil && set.Generation() != st.Generation {
		err = fmt.Errorf("its generation is %d", set.Generation())
	}
	if err != nil {
		return fmt.Errorf("%s serves generation %d, which is not in the store: %w", st.Name, st.Generation, err)
	}
	w.generation[st.Name] = st.Generation
	if w.gone[st.Name] == nil {
		w.gone[st.Name] = map[string]bool{}
	}
	for _, g := range set.Gone() {
		w.gone[st.Name][string(g.ID)] = true
	}
	if set.Withdrawn() {
		maps.DeleteFunc(w.owner, func(_ string, n keystore.Name) bool { return n == st.Name })
		return nil
	}
	return w.noteOwner(st.Name, set.Issuers())
}

func (w *witness) noteOwner(n keystore.Name, issuers []keystore.IssuerURL) error {
	for _, u := range issuers {
		switch other, taken := w.owner[u.String()]; {
		case taken && other != n:
			return fmt.Errorf("%s was taken from %s and given to %s", u, other, n)
		case !taken:
			w.owner[u.String()], w.keys[u.String()] = n, nil
		}
	}
	return nil
}

func (w *witness) check(b *bench, u string) error {
	owner := w.owner[u]
	status, body := b.get(u)
	if status != http.StatusOK {
		return fmt.Errorf("%s of %s answers %d", u, owner, status)
	}
	now := kids(b.t, body)
	for _, kid := range now {
		if w.gone[owner][kid] {
			return fmt.Errorf("%s of %s serves key %s, which is gone", u, owner, kid)
		}
	}
	for _, kid := range w.keys[u] {
		if !slices.Contains(now, kid) && !w.gone[owner][kid] {
			return fmt.Errorf("%s of %s lost key %s without a line in gone", u, owner, kid)
		}
	}
	w.keys[u] = now
	return nil
}

// walker does to a store what people, tools and attackers do.
type walker struct {
	b   *bench
	rnd *rand.Rand
	old []doc // everything ever written, for restoring backups
	now map[string]doc
}

var walkNames = []string{"a", "b", "c"}

// step changes the store, mostly in ways that are forbidden.
func (w *walker) step(t *testing.T) string {
	name := walkNames[w.rnd.IntN(len(walkNames))]
	d, ok := w.now[name]
	if !ok {
		d = doc{name: name, issuers: []string{"https://oidc.example.com/" + name}}
	}
	d.generation++
	switch what := w.rnd.IntN(14); what {
	case 0, 1, 2:
		k := key(t, int64(1+w.rnd.IntN(12)))
		d.keys = append(d.keys[:len(d.keys):len(d.keys)], k) // may be there already, or gone: then it is broken
		return w.write(d, "add a key")
	case 3, 4:
		return w.write(w.bury(d), "remove a key")
	case 5:
		d.keys = nil
		return w.write(d, "drop all keys")
	case 6:
		d.gone = nil
		return w.write(d, "forget what is gone")
	case 7:
		d.issuers = append(d.issuers[:len(d.issuers):len(d.issuers)], urlShared)
		return w.write(d, "claim the shared URL")
	case 8:
		d.issuers = d.issuers[:1]
		return w.write(d, "drop a URL")
	case 9:
		d.withdrawn = !d.withdrawn
		return w.write(d, "withdraw or reopen")
	case 10:
		w.b.store.Delete(keystore.Name(name))
		return "delete " + name
	case 11:
		w.b.store.Set(keystore.Name(name), []byte("junk"))
		return "break " + name
	case 12:
		if len(w.old) == 0 {
			return "nothing"
		}
		back := w.old[w.rnd.IntN(len(w.old))]
		return w.write(back, "restore a backup")
	default:
		d.generation += int64(w.rnd.IntN(3)) - 1
		return w.write(d, "write another generation")
	}
}

func (w *walker) bury(d doc) doc {
	if len(d.keys) > 0 {
		d.gone = append(d.gone[:len(d.gone):len(d.gone)], d.keys[0])
		d.keys = d.keys[1:]
	}
	return d
}

func (w *walker) write(d doc, what string) string {
	w.now[d.name], w.old = d, append(w.old, d)
	w.b.put(d)
	return fmt.Sprintf("%s: %s (generation %d)", d.name, what, d.generation)
}

// Whatever happens to the store: what was served stays served until a tombstone is published, and a key that is gone
// is never served again.
func TestRandomWalkKeepsThePromises(t *testing.T) {
	walks, steps := 15, 60
	if testing.Short() {
		walks = 5
	}
	published := 0
	for seed := range walks {
		b := newBench(t)
		w := &walker{b: b, rnd: rand.New(rand.NewPCG(uint64(seed), 1)), now: map[string]doc{}}
		seen, trail := newWitness(), []string{}
		for range steps {
			trail = append(trail, w.step(t))
			if w.rnd.IntN(8) == 0 {
				b.store.Inject(failing([]string{storetest.OpList, storetest.OpGet}[w.rnd.IntN(2)], fmt.Errorf("input/output error")))
			}
			_ = b.Refresh(t.Context()) // failures are part of the walk
			b.store.Inject(nil)
			if err := seen.look(b); err != nil {
				t.Fatalf("walk %d: %v, after:\n%q", seed, err, trail)
			}
		}
		published += len(seen.generation)
	}
	if published < walks {
		t.Fatalf("only %d key sets were published in %d walks: the walk proves little", published, walks)
	}
}
