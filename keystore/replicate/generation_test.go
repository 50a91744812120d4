package replicate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/storetest"
)

func outOfReach(document string) []byte {
	_, rest, _ := strings.Cut(document, "generation: ")
	generation, _, _ := strings.Cut(rest, "\n")
	return []byte(strings.Replace(document, "generation: "+generation, "generation: 9007199254740991", 1))
}

// Mirror and copy judge as publishers do: a generation that nothing could follow is not taken over, and one that an
// earlier version took over does not stay.
func TestGenerationsOutOfReachAreNotCopied(t *testing.T) {
	m := newMirrored(t)
	m.pass()
	m.from.Set("prod-a", outOfReach(m.current))
	m.from.Set("prod-c", outOfReach(storetest.Text(t, storetest.KeySet(t, "prod-c"))))
	m.pass()
	m.wantCopied("prod-a", m.current)
	m.wantCopied("prod-c", "")
	m.wantRefused(lastgood.ReasonGenerationJump, 2)

	const refused = "refused generation_jump"
	wantVerdicts(t, verdicts(t, m.from, storetest.NewMemStore(t), false), map[keystore.Name]string{"prod-a": refused, "prod-b": "copied", "prod-c": refused})

	m.update("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Accept(storetest.Change(2*time.Hour), 3, nil)
	})
	m.pass()
	if !strings.Contains(m.copied("prod-a"), "generation: 4\n") {
		t.Errorf("what was accepted is not copied: %s", m.copied("prod-a"))
	}

	m.to.Set("prod-b", outOfReach(m.copied("prod-b")))
	m.update("prod-b", storetest.Mark("x"))
	m.pass()
	if !strings.Contains(m.copied("prod-b"), "generation: 2\n") {
		t.Errorf("a copy out of reach stays: %s", m.copied("prod-b"))
	}
}
