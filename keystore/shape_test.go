package keystore

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// hostile are documents of at most the largest size that are small to write and dear to read.
func hostile(t *testing.T) map[string]string {
	t.Helper()
	doc := encode(t, newSet(t, Policy{}))
	room := MaxDocument - len(doc) - 4096
	member := func(text string) string { return doc + "\nx: " + text + "\n" }
	deepMap := func(key, n int) string {
		return strings.Repeat("{"+strings.Repeat("k", key)+": ", n) + "1" + strings.Repeat("}", n)
	}
	var distinct, chain strings.Builder
	for i := range room / 11 {
		fmt.Fprintf(&distinct, "\n  k%x:", i)
	}
	chain.WriteString("\n  - &a0 [x]\n")
	for i := range 20000 {
		fmt.Fprintf(&chain, "  - &a%d [*a%d]\n", i+1, i)
	}
	var indented strings.Builder
	for i := range 1300 {
		indented.WriteString("\n" + strings.Repeat(" ", i+1) + "a:")
	}
	lists := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	return map[string]string{
		"deep maps":               member(deepMap(5, 9990)),
		"deep maps, long keys":    member(deepMap(90, 9990)),
		"deep lists":              member(lists),
		"many deep lists":         member("[" + strings.Repeat(lists+",", room/(len(lists)+1)) + "]"),
		"lists not closed":        member(strings.Repeat("[", room)),
		"closers in comments":     member(strings.Repeat("[ # ]\n  ", 9000) + strings.Repeat("]", 9000)),
		"closers in quotes":       member(strings.Repeat(`[ "]", `, 9000) + strings.Repeat("]", 9000)),
		"closers in long quotes":  member(strings.Repeat("[ \"\n ]\n \", ", 9000) + strings.Repeat("]", 9000)),
		"closers in words":        member(strings.Repeat(`[ a" b, "]", `, 9000) + strings.Repeat("]", 9000)),
		"closers in tags":         member(strings.Repeat("[ !x] ,", 9000) + strings.Repeat("]", 9000)),
		"a quote in a text first": doc + "\ny: |\n  [ '\nx: " + lists + "\nz: ''\n",
		"compact lists":           doc + "\nx:\n" + strings.Repeat("- ", 9990) + "1\n",
		"compact keys":            doc + "\nx:\n" + strings.Repeat("? - ", 4990) + "1\n",
		"indented maps":           member(indented.String()),
		"distinct keys":           member(distinct.String()),
		"duplicate keys":          member(strings.Repeat("\n  a:", room/5)),
		"flow sets":               member("{" + strings.Repeat("a,", room/2) + "}"),
		"chained aliases":         member(chain.String()),
		"JSON, deep":              `{"x":` + strings.Repeat(`{"kkkk":`, 9990) + "1" + strings.Repeat("}", 9990) + "}",
		"JSON, distinct keys":     `{"x":` + string(must(json.Marshal(distinctMap(room/28)))) + "}",
	}
}

func distinctMap(n int) map[string]int {
	m := map[string]int{}
	for i := range n {
		m[fmt.Sprintf("k%x", i)] = 1
	}
	return m
}

// allocated is how many bytes f allocates. Work on a document allocates as it goes, and unlike time this does not
// depend on what else the machine does.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestHostileShapesTakeBoundedWork(t *testing.T) {
	for name, doc := range hostile(t) {
		if len(doc) > MaxDocument {
			t.Fatalf("%s: %d bytes", name, len(doc))
		}
		var err error
		var took time.Duration
		bytes := allocated(func() { took = cpu(t, func() { _, err = Parse("prod-a", []byte(doc)) }) })
		if most := uint64(1<<20 + 256*len(doc)); err == nil || bytes > most {
			t.Errorf("%s: %d bytes of text took %d of memory, at most %d (%v, error %v)", name, len(doc), bytes, most, took, err)
		}
		if os.Getenv("KEYPOST_LONG") != "" {
			t.Logf("%s: %d bytes of text, %d of memory, %v, error %v", name, len(doc), bytes, took, err)
		}
	}
}

// What people write is read, however many brackets it has.
func TestOrdinaryBracketsAreRead(t *testing.T) {
	doc := encode(t, newSet(t, Policy{}))
	text := strings.Repeat(`{"a": [{"b": "c"}]},`, 500)
	for name, more := range map[string]string{
		"lists in lines":      "\nx:" + strings.Repeat("\n- {a: b, c: [d, 'it''s', \"e\"], u: https://a.b/c}", 2000) + "\n",
		"JSON in a line":      "\nx: '[" + text + "1]'\n",
		"JSON in a text":      "\nx: |\n  [" + text + "1]\n",
		"empty lists":         "\nx:" + strings.Repeat("\n- []\n- {}", 2000) + "\n",
		"a tree of ten":       "\nx: " + strings.Repeat("[", 10) + strings.Repeat("]", 10) + "\n",
		"prose":               "\nx: see [1], (and {2}), don't\n",
		"a few open brackets": "\nx: |\n" + strings.Repeat("  [ don't\n", 100),
	} {
		if _, err := Parse("prod-a", []byte(doc+more)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := tree(t, newSet(t, Policy{}))
	d["metadata"].(map[string]any)["annotations"] = map[string]any{"a": strings.Repeat("[ ", 5000)} //nolint:forcetypeassert // the test wrote it
	s, err := parseTree(d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Encode(s); err != nil {
		t.Errorf("what was read as JSON cannot be written: %v", err)
	}
}

// JSON may have a number, and text, that YAML has in two readings: what is read is written so that it can be read again.
func TestSortedYAMLCanBeRead(t *testing.T) {
	for name, value := range map[string]any{"a large number": 1e21, "words": []string{"on", "y", "1e3", "<<", "x,\nno\n"}, "names": map[string]int{"<<": 1, "no": 2, "010": 3}} {
		d := tree(t, newSet(t, Policy{}))
		specOf(d)["fromTheFuture"] = value
		want, err := parseTree(d)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := Parse("prod-a", must(SortedYAML(must(json.Marshal(d)))))
		if err != nil || got.Digest() != want.Digest() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPrivateMaterialInCommentsIsRefused(t *testing.T) {
	t.Parallel()
	doc, key := encode(t, newSet(t, Policy{})), secrets(t)["PKCS#8, EC"]
	for _, form := range []string{"OpenPGP", "SSH.COM", "PuTTY"} { // PEM is among the broken documents
		if _, err := Parse("prod-a", []byte(doc+"\n# "+strings.ReplaceAll(secrets(t)[form], "\n", "\n# ")+"\n")); !errors.Is(err, ErrPrivateKey) {
			t.Errorf("%s in a comment: error %v", form, err)
		}
	}
	for _, tagged := range []string{"!!binary " + key, "!<tag:yaml.org,2002:binary> " + key, "!!b%69nary " + key} {
		if _, err := Parse("prod-a", []byte(doc+"\nx: "+tagged+"\n")); err == nil || !strings.Contains(err.Error(), "YAML tag") {
			t.Errorf("%.12s: error %v", tagged, err)
		}
	}
	if _, err := Parse("prod-a", []byte("# the private key is in the safe; its kid: see below, kty: EC\n"+doc)); err != nil {
		t.Errorf("a comment that speaks of keys: %v", err)
	}
}
