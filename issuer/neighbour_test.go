package issuer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/replicate"
	"github.com/keypost/keypost/keystore/storetest"
)

// neighbour returns a random document that the writer of key set b puts beside key set a, whose URLs and keys are public. Without
// patterns nothing tells whose a URL is that two documents in use have, so that there b has none of a's unless it is a tombstone.
func neighbour(t *testing.T, rng *rand.Rand, patterns bool) []byte {
	t.Helper()
	some := func(n int64) (all []keystore.VerificationKey) {
		for k := range n {
			if rng.IntN(2) == 0 {
				all = append(all, key(t, k))
			}
		}
		return all
	}
	d := doc{
		name: "b", generation: []int64{1, 2, 3, 1 << 30, keystore.MaxGeneration}[rng.IntN(5)], issuers: []string{urlB},
		keys: some(5), withdrawn: rng.IntN(2) == 0, dev: rng.IntN(8) == 0,
	}
	for _, k := range some(6) {
		if !slices.ContainsFunc(d.keys, func(p keystore.VerificationKey) bool { return p.ID() == k.ID() }) {
			d.gone = append(d.gone, k)
		}
	}
	if patterns || d.withdrawn {
		d.issuers = [][]string{{urlB}, {urlA}, {urlA, urlB}, {urlB, "https://a.oidc.example.com", urlA}}[rng.IntN(4)]
	}
	for range rng.IntN(3) * 100 {
		d.history = append(d.history, keystore.Event{At: storetest.Time(time.Duration(rng.Int64())), What: "x"})
	}
	text := d.text(t)
	switch rng.IntN(8) {
	case 0:
		return []byte("junk")
	case 1:
		return bytes.ReplaceAll(text, []byte("keypost.dev/v1"), []byte("keypost.dev/v2"))
	case 2:
		if patterns || !slices.Contains(d.issuers, urlA) {
			return bytes.ReplaceAll(text, []byte("active"), []byte("x"))
		}
	case 3:
		return bytes.ReplaceAll(text, []byte("removed"), []byte("revoked"))
	}
	return text
}

// No document of one key set changes the verdict on another, in a server and a mirror that begin with nothing and in later versions,
// in a copy of the store and an export; and none makes a server or a mirror wait.
func TestNoDocumentOfANeighbourChangesAVerdict(t *testing.T) {
	first := doc{name: "a", generation: 1, issuers: []string{urlA, "https://a.oidc.example.com"}, keys: []keystore.VerificationKey{key(t, 0)}}
	second := first
	second.generation, second.keys, second.gone = 2, []keystore.VerificationKey{key(t, 1), key(t, 2)}, first.keys
	for seed := range uint64(20) {
		for _, patterns := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, patterns %v", seed, patterns), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, 1))
				b := newBench(t)
				m, to := neighbourMirror(t, b, patterns)
				for _, d := range []doc{first, second} {
					b.put(d)
					b.store.Set("b", neighbour(t, rng, patterns))
					b.poll()
					if why := b.reason("a"); patterns && (why != "" || b.Ready() != nil) {
						t.Errorf("generation %d: served: %q, ready: %v", d.generation, why, b.Ready())
					}
					_ = m.Pass(t.Context())
					if text, _, _ := to.Get(t.Context(), "a"); !bytes.Equal(text, d.text(t)) || m.Ready() != nil {
						t.Errorf("generation %d: the mirror has %d bytes, refused: %v, ready: %v", d.generation, len(text), m.Status().Refused, m.Ready())
					}
					if !patterns {
						copiedAndExported(t, b.store)
					}
				}
			})
		}
	}
}

// neighbourMirror returns a mirror of b's store, with the same patterns or none, and its copy.
func neighbourMirror(t *testing.T, b *bench, patterns bool) (*replicate.Mirror, *storetest.MemStore) {
	t.Helper()
	admission := Admission{AnyURL: true}
	if patterns {
		admission = b.admission
	}
	to := storetest.NewMemStore(t)
	return replicate.NewMirror(replicate.MirrorConfig{
		From: b.store, To: to, Admit: admission.Admit, Permitted: admission.Permitted(), Poll: time.Minute, Log: zap.NewNop(),
	}), to
}

// copiedAndExported fails unless key set a is copied to an empty store, and exported. Neither knows patterns.
func copiedAndExported(t *testing.T, st keystore.Backend) {
	t.Helper()
	outcomes, err := replicate.Copy(t.Context(), st, storetest.NewMemStore(t), false)
	if err != nil || outcomes[0].Verdict != replicate.Copied {
		t.Errorf("copied: %+v, %v", outcomes, err)
	}
	c, err := catalog.ReadAll(t.Context(), keystore.NewStore(st))
	if err != nil || c.Rejected()["a"] != nil {
		t.Errorf("exported: %+v, %v", c.Rejected()["a"], err)
	}
}
