package replicate_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/replicate"
	"github.com/keypost/keypost/keystore/storetest"
)

// verdicts copies and returns "VERDICT" or "VERDICT REASON" by name.
func verdicts(t *testing.T, from, to *storetest.MemStore, dryRun bool) map[keystore.Name]string {
	t.Helper()
	all, err := replicate.Copy(t.Context(), from, to, dryRun)
	if err != nil {
		t.Fatal(err)
	}
	got := map[keystore.Name]string{}
	for _, o := range all {
		got[o.Name] = strings.TrimSpace(fmt.Sprint(o.Verdict, " ", o.Reason))
	}
	return got
}

func wantVerdicts(t *testing.T, got, want map[keystore.Name]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("verdicts %v, want %v", got, want)
	}
}

func TestCopy(t *testing.T) {
	m := newMirrored(t)
	tombstone := storetest.KeySet(t, "ended")
	if err := keystore.Create(t.Context(), m.from.Store, tombstone); err != nil {
		t.Fatal(err)
	}
	m.update("ended", func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Withdraw(storetest.Change(365 * 24 * time.Hour))
	})
	m.to.Set("other", []byte(storetest.Text(t, storetest.KeySet(t, "other"))))

	want := map[keystore.Name]string{"prod-a": "copied", "prod-b": "copied", "ended": "copied", "other": "kept"}
	wantVerdicts(t, verdicts(t, m.from, m.to, true), want)
	if n := m.to.Writes(); n != 1 {
		t.Fatalf("a dry run wrote %d times", n-1)
	}
	wantVerdicts(t, verdicts(t, m.from, m.to, false), want)
	m.wantCopied("prod-a", m.current)
	wantVerdicts(t, verdicts(t, m.from, m.to, false), map[keystore.Name]string{"prod-a": "unchanged", "prod-b": "unchanged", "ended": "unchanged", "other": "kept"})

	m.update("prod-a", storetest.Mark("x"))
	m.update("prod-a", storetest.Mark("y")) // two generations at once
	wantVerdicts(t, verdicts(t, m.from, m.to, false), map[keystore.Name]string{"prod-a": "copied", "prod-b": "unchanged", "ended": "unchanged", "other": "kept"})
}

// A restored backup overwrites nothing newer, whatever else it brings back.
func TestCopyRefuses(t *testing.T) {
	m := newMirrored(t)
	verdicts(t, m.from, m.to, false)
	backup := storetest.NewMemStore(t)
	backup.Set("prod-a", []byte(m.first))
	backup.Set("prod-b", []byte("junk"))
	backup.Set("lost", []byte(storetest.Text(t, storetest.KeySet(t, "lost"))))
	backup.Set("thief", []byte(strings.Replace(storetest.Text(t, storetest.KeySet(t, "thief")), "com/thief", "com/prod-b", 1)))
	m.to.Set("spoilt", []byte("junk"))
	backup.Set("spoilt", []byte(storetest.Text(t, storetest.KeySet(t, "spoilt"))))
	want := map[keystore.Name]string{
		"prod-a": "refused older_generation", "prod-b": "failed broken", "lost": "copied", "thief": "refused url_conflict", "spoilt": "refused broken",
	}
	wantVerdicts(t, verdicts(t, backup, m.to, true), want)
	wantVerdicts(t, verdicts(t, backup, m.to, false), want)
	m.wantCopied("prod-a", m.current)
}

// Of two key sets in the destination that have one URL, by hand, the same one goes on each time.
func TestCopyChoosesNoOwnerByChance(t *testing.T) {
	document := storetest.Text(t, storetest.KeySet(t, "prod-a"))
	for range 8 {
		from, to := storetest.NewMemStore(t), storetest.NewMemStore(t)
		for _, n := range []keystore.Name{"prod-a", "prod-b"} {
			text := strings.Replace(document, "name: prod-a", "name: "+string(n), 1)
			to.Set(n, []byte(text))
			from.Set(n, []byte(strings.Replace(text, "generation: 1", "generation: 2", 1)))
		}
		wantVerdicts(t, verdicts(t, from, to, false), map[keystore.Name]string{"prod-a": "copied", "prod-b": "refused url_conflict"})
	}
}

func TestCopyNeedsBothStores(t *testing.T) {
	m := newMirrored(t)
	for which, st := range map[string]*storetest.MemStore{"source": m.from, "destination": m.to} {
		st.Inject(down)
		if all, err := replicate.Copy(t.Context(), m.from, m.to, false); all != nil || err == nil || !strings.Contains(err.Error(), which) {
			t.Errorf("without the %s: %v, %v", which, all, err)
		}
		st.Inject(nil)
	}
}
