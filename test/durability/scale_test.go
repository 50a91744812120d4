package durability

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
)

// many writes n documents with two RSA keys each, as something else than the store would.
func many(t *testing.T, dir string, n int) {
	t.Helper()
	text := storetest.Text(t, storetest.KeySet(t, "template", storetest.SyntheticRSA(t, 1), storetest.SyntheticRSA(t, 2)))
	for i := range n {
		issuer := fmt.Sprintf("prod-%05d", i)
		path := filepath.Join(dir, issuer+".yaml")
		must(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "template", issuer)), 0o644))
	}
}

// The figures are printed, and only what holds on any machine is asserted.
func TestTenThousandKeySets(t *testing.T) {
	const n = 10000
	dir := t.TempDir()
	many(t, dir, n)
	st, err := filestore.Open(dir)
	must(t, err)
	first := timedList(t, st, "first List, which reads every document")
	timedList(t, st, "second List, of documents that are new")
	loadAll(t, st, first)
	time.Sleep(2100 * time.Millisecond) // the age from which times are trusted; nothing to wait for but the clock
	timedList(t, st, "List of documents that are settled")
	before := timedList(t, st, "List of what did not change")

	start := time.Now()
	_, err = keystore.Update(t.Context(), keystore.NewStore(st), "prod-04711", storetest.Mark("x"))
	must(t, err)
	t.Logf("Update of one: %v", time.Since(start))
	after := timedList(t, st, "List after one change")
	var changed []keystore.Name
	for name, rev := range after {
		if before[name] != rev {
			changed = append(changed, name)
		}
	}
	if len(before) != n || len(after) != n || len(changed) != 1 || changed[0] != "prod-04711" {
		t.Errorf("List has %d names, then %d; changed are %v, want prod-04711", len(before), len(after), changed)
	}
}

func timedList(t *testing.T, st *filestore.Backend, what string) map[keystore.Name]keystore.Revision {
	t.Helper()
	start := time.Now()
	all, err := st.List(t.Context())
	must(t, err)
	t.Logf("%s: %v", what, time.Since(start))
	return all
}

// loadAll loads every key set, or as many as a second allows (the race detector makes parsing YAML twelve times
// slower).
func loadAll(t *testing.T, st *filestore.Backend, all map[keystore.Name]keystore.Revision) {
	t.Helper()
	start, loaded := time.Now(), 0
	for name, rev := range all {
		if _, is, err := keystore.NewStore(st).Load(t.Context(), name); err != nil || is != rev {
			t.Fatalf("Load(%s) = revision %q, %v; List had %q", name, is, err, rev)
		}
		if loaded++; time.Since(start) > time.Second {
			break
		}
	}
	took := time.Since(start)
	t.Logf("Load of %d key sets on one core: %v, %v each", loaded, took, took/time.Duration(loaded))
}
