package strictyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const limit = 1 << 20

func TestToJSON(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, want string }{
		"a mapping":              {"a: 1\nb: [x, 'y', \"z\", 1.5, true, ~]\n", `{"a":1,"b":["x","y","z",1.5,true,null]}`},
		"JSON":                   {`{"a":{"b":[]}}`, `{"a":{"b":[]}}`},
		"a document's markers":   {"# first\n---\na: 1\n...\n# last\n", `{"a":1}`},
		"a rule in a text":       {"a: |\n  x\n  ---\n  y\n", `{"a":"x\n---\ny\n"}`},
		"a byte order mark":      {"\ufeffa: 1\n", `{"a":1}`},
		"keys that are not text": {"1: a\ntrue: b\n", `{"1":"a","true":"b"}`},
		"a large integer":        {"a: 9007199254740993\n", `{"a":9007199254740993}`},
		"words, as kubectl does": {"a: [yes, off, 'on']\n", `{"a":[true,false,"on"]}`},
		"no anchor":              {"a: this & that\nb: '&x'\nc: a&b\n# &x\n", `{"a":"this \u0026 that","b":"\u0026x","c":"a\u0026b"}`},
	} {
		got, err := ToJSON([]byte(tt.in), limit)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, want string }{
		"nothing":                  {"", "it is empty"},
		"a comment":                {"# x\n", "it is empty"},
		"too large":                {"a: " + strings.Repeat("x", limit), "it is larger than 1048576 bytes"},
		"too large as JSON":        {"a: \"" + strings.Repeat("<", limit/2) + "\"", "its content is larger than 1048576 bytes"},
		"not UTF-8":                {"a: \xff", "it is not UTF-8"},
		"not YAML":                 {"a: b: c\n", "it is not valid YAML: mapping values"},
		"a key twice":              {"a: 1\nb: 2\na: 3\n", `it is not valid YAML: line 3: key "a" already set in map`},
		"a key twice, deeper":      {"x:\n- {a: 1, a: 1}\n", `it is not valid YAML: line 2: key "a" already set in map`},
		"two documents":            {"a: 1\n---\nb: 2\n", "it holds more than one YAML document"},
		"two documents, no marker": {"a: 1\n...\nb: 2\n", "it holds more than one YAML document"},
		"two documents, as JSON":   {"{\"a\": 1}\n{\"b\": 2}\n", "it holds more than one YAML document"},
		"an anchor":                {"a: &x 1\n", "it has a YAML anchor"},
		"an alias":                 {"a: &x {k: v}\nb: *x\n", "it has a YAML anchor"},
		"a long text, often":       {"a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a, ", 100) + "]\n", "it has a YAML anchor"},
		"deep":                     {strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), "it is not valid YAML: exceeded max depth"},
	} {
		asJSON, err := ToJSON([]byte(tt.in), limit)
		if err == nil || !strings.Contains(err.Error(), tt.want) || asJSON != nil {
			t.Errorf("%s: %.80s, %v", name, asJSON, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%s: a reason of %d bytes", name, len(err.Error()))
		}
	}
}

// The text of one writer must not take the memory of all: reading it allocates less than 400 bytes for each of its own.
func TestCost(t *testing.T) {
	const size = limit / 8 // enough for a cost that grows faster than the text
	for name, in := range map[string]string{
		"deep lists":       "[" + strings.Repeat(strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+",", size/18_002) + "]",
		"carriage returns": strings.Repeat("- \r", size/3),
		"mappings":         "[" + strings.Repeat("{a: b},", size/7-1) + "]",
		"no anchors":       "[" + strings.Repeat("'&',", size/4-1) + "]",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ToJSON([]byte(in), limit)
		runtime.ReadMemStats(&after)
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 400*uint64(len(in)) {
			t.Errorf("%s: %d bytes of text allocated %d MiB (%v)", name, len(in), cost>>20, err)
		}
	}
}

// Whatever is accepted means what sigs.k8s.io/yaml makes of it, and stays that when it is written and read again.
func FuzzToJSON(f *testing.F) {
	for _, seed := range []string{"a: 1\n", "# x\n---\na: [b, {c: d}]\n...\n", "a: &a [1]\nb: *a\n", `{"a":[]}`, "1: a\n1.5: b\n", "a: |\n  ---\n", "- - x\n", "a: 1\n---\n", "[!] ", "a: x & y\n", "a: \"&\"\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ToJSON([]byte(in), limit)
		if err != nil {
			if got != nil || len(err.Error()) > 500 {
				t.Fatalf("%s and error %v", got, err)
			}
			return
		}
		want, err := yaml.YAMLToJSONStrict([]byte(in))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q is %s, and %s (%v) to sigs.k8s.io/yaml", in, got, want, err)
		}
		written, err := yaml.JSONToYAML(got)
		if err != nil {
			t.Skip(err)
		}
		again, err := ToJSON(written, 10*limit)
		var a, b any
		if errors.Is(err, ErrEmpty) || json.Unmarshal(got, &a) != nil {
			return
		}
		if err != nil || json.Unmarshal(again, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%s is written as %q, which is read as %s (%v)", got, written, again, err)
		}
	})
}
