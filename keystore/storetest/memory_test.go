package storetest

import (
	"context"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
)

// complaints is a testing.TB that notes errors instead of failing.
type complaints struct {
	testing.TB
	text strings.Builder
}

func (c *complaints) Errorf(format string, args ...any) {
	c.text.WriteString(format)
	for _, a := range args {
		if s, ok := a.(string); ok {
			c.text.WriteString(" " + s)
		}
	}
}

func TestMemoryComplains(t *testing.T) {
	a, b := Key(t), Key(t)
	set := KeySet(t, "prod-a", a, b)
	for _, c := range []struct {
		name, want string
		next       func(t *testing.T) keystore.KeySet
	}{
		{"generation not growing", "generation", func(*testing.T) keystore.KeySet { return set }},
		{"key dropped", "without a line in gone", func(t *testing.T) keystore.KeySet {
			return edit(t, KeySet(t, "prod-a", a), "generation: 1", "generation: 2")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			heard := &complaints{TB: t}
			m := NewMemory(heard)
			rev := m.Set("prod-a", []byte(Text(t, set)))
			if _, err := m.Put(t.Context(), "prod-a", rev, []byte(Text(t, c.next(t)))); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(heard.text.String(), c.want) {
				t.Errorf("it said %q, want something about %q", heard.text.String(), c.want)
			}
		})
	}
}

func TestRegressionsSeeGoneShrink(t *testing.T) {
	full := Full(t, "full")
	shrunk := edit(t, full, `kid: "0x1F"`, `kid: "0x20"`)
	bad := regressions(full, shrunk)
	if len(bad) != 2 || !strings.Contains(bad[1], "0x1F in gone was lost") {
		t.Errorf("Regressions = %q, want the generation and the lost line", bad)
	}
}

func TestRegressionsSeeAKeyChange(t *testing.T) {
	set := KeySet(t, "prod-a", SyntheticRSA(t, 1))
	changed := edit(t, set, "generation: 1", "generation: 2")
	if bad := regressions(set, changed); len(bad) != 0 {
		t.Errorf("Regressions = %q, want none", bad)
	}
	other := Text(t, KeySet(t, "prod-a", SyntheticRSA(t, 2)))
	other = strings.Replace(other, "kid: "+string(SyntheticRSA(t, 2).ID()), "kid: "+string(set.Keys()[0].ID())+"\n    importedKid: true", 1)
	swapped, err := keystore.Parse("prod-a", []byte(strings.Replace(other, "generation: 1", "generation: 2", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if bad := regressions(set, swapped); len(bad) != 1 || !strings.Contains(bad[0], "is another one") {
		t.Errorf("Regressions = %q, want that the key is another one", bad)
	}
}

// edit changes a document as an editor does.
func edit(t *testing.T, s keystore.KeySet, from, to string) keystore.KeySet {
	t.Helper()
	text := Text(t, s)
	if !strings.Contains(text, from) {
		t.Fatalf("the document does not contain %s:\n%s", from, text)
	}
	text = strings.ReplaceAll(text, from, to)
	changed, err := keystore.Parse(s.Name(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func TestMemoryComplainsOfLyingFaults(t *testing.T) {
	heard := &complaints{TB: t}
	m := NewMemStore(heard)
	m.Inject(func(context.Context, Op) (bool, error) { return false, nil })
	_, _ = m.Replace(t.Context(), "", KeySet(t, "prod-a"))
	if !strings.Contains(heard.text.String(), "reported success") {
		t.Errorf("it said %q", heard.text.String())
	}
}
