package strictyaml

import (
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const limit = 1 << 20

func TestToJSON(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"a mapping":              {"a: 1\nb: [x, 'y', \"z\", 1.5, true, ~]\n", `{"a":1,"b":["x","y","z",1.5,true,null]}`},
		"JSON":                   {`{"a":{"b":[]}}`, `{"a":{"b":[]}}`},
		"a document's markers":   {"# first\n---\na: 1\n...\n", `{"a":1}`},
		"a rule in a text":       {"a: |\n  x\n  ---\n  y\n", `{"a":"x\n---\ny\n"}`},
		"a byte order mark":      {"\ufeffa: 1\n", `{"a":1}`},
		"keys that are no text":  {"1: a\ntrue: b\n-7: c\n1.5: d\n18446744073709551615: e\n", `{"-7":"c","1":"a","1.5":"d","18446744073709551615":"e","true":"b"}`},
		"a time":                 {"a: 2026-01-02T03:04:05Z\n", `{"a":"2026-01-02T03:04:05Z"}`},
		"a large integer":        {"a: 9007199254740993\n", `{"a":9007199254740993}`},
		"numbers and times":      {"a: [0, -7, +7, 0.5, 1.5e+3, 0x10, 10, 03:04:05, 2026-01-02T03:04:05Z]\nb: -0\n", `{"a":[0,-7,7,0.5,1500,16,10,"03:04:05","2026-01-02T03:04:05Z"],"b":0}`},
		"true and false":         {"a: [true, False, TRUE]\ntrue: 1\n", `{"a":[true,false,true],"true":1}`},
		"texts like words":       {"a: ['yes', \"on\", no way, it is on, yes-no, Yes sir]\nb: >-\n  yes,\n  no\n'y': off, on # no\nc: |-\n  on\n", `{"a":["yes","on","no way","it is on","yes-no","Yes sir"],"b":"yes, no","c":"on","y":"off, on"}`},
		"texts like exponents":   {"a: ['1e3', 1e3x, 1e3 and 1e4, e3]\n", `{"a":["1e3","1e3x","1e3 and 1e4","e3"]}`},
		"no merge keys":          {"'<<': {a: 1}\nb: <<\n", `{"\u003c\u003c":{"a":1},"b":"\u003c\u003c"}`},
		"JSON, numbers, words":   {`{"a":[1e3,0.1e2,1E5,-1e-3,"on , no","yes"],"<<":{"b":1},"y":"n"}`, `{"\u003c\u003c":{"b":1},"a":[1000,10,100000,-0.001,"on , no","yes"],"y":"n"}`},
		"texts like numbers":     {"a: ['010', \"1_0\", 0_x, 010.1.1]\n'010': ticket 0815, 1_000\nb: |\n  010\n# 010\n", `{"010":"ticket 0815, 1_000","a":["010","1_0","0_x","010.1.1"],"b":"010\n"}`},
		"texts like tags":        {"a: clé perdue !\nb: wow!!int, no!int\nc: really?!\nd: 'x !y'\n", `{"a":"clé perdue !","b":"wow!!int, no!int","c":"really?!","d":"x !y"}`},
		"an alias":               {"a: &x {k: v}\nb: *x\n", `{"a":{"k":"v"},"b":{"k":"v"}}`},
		"brackets in JSON texts": {`{"a":"` + strings.Repeat("[", 1000) + `"}`, `{"a":"` + strings.Repeat("[", 1000) + `"}`},
		"as deep as may be":      {strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)},
		"many flat lists":        {strings.Repeat("- [a, {b: c}]\n", 1000), "[" + strings.TrimSuffix(strings.Repeat(`["a",{"b":"c"}],`, 1000), ",") + "]"},
	} {
		got, tree, err := ToJSON([]byte(tt.in), limit)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		if again, err := json.Marshal(tree); err != nil || string(again) != tt.want {
			t.Errorf("%s: the tree is %s, %v", name, again, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"nothing":                   {"", "it is empty"},
		"blanks":                    {" \n\n", "it is empty"},
		"a comment":                 {"# x\n", "it is empty"},
		"too large":                 {"a: " + strings.Repeat("x", limit), "it is larger than 1048576 bytes"},
		"too large as JSON":         {"a: \"" + strings.Repeat("<", limit/2) + "\"", "its content is larger than 1048576 bytes"},
		"not UTF-8":                 {"a: \xff", "it is not UTF-8"},
		"UTF-16":                    {"\xff\xfea\x00", "it is not UTF-8"},
		"not YAML":                  {"a: b: c\n", "it is not valid YAML: mapping values"},
		"a key twice":               {"a: 1\nb: 2\na: 3\n", `it is not valid YAML: line 3: key "a" already set in map`},
		"a key twice, deeper":       {"x:\n- {a: 1, a: 1}\n", `it is not valid YAML: line 2: key "a" already set in map`},
		"a key twice, as a number":  {"1: a\n\"1\": b\n", `key "1" is in one mapping twice`},
		"a key twice, by a merge":   {"a: &a {k: 1}\nb:\n  <<: *a\n  k: 2\n", `key "k" already set in map`},
		"a key that is no text":     {"~: 1\n", "it has a key that is no text"},
		"a key that is no number":   {"{.nan}\n", "it has a key that is no text"},
		"a key that is a list":      {"? [a]\n: 1\n", "it is not valid YAML: invalid map key"},
		"two documents":             {"a: 1\n---\nb: 2\n", "it holds more than one YAML document"},
		"two documents, one empty":  {"a: 1\n---\n", "it holds more than one YAML document"},
		"two documents, one broken": {"a: 1\n---\n]\n", "it holds more than one YAML document"},
		"no number of JSON":         {"a: .inf\n", "a number that JSON does not have"},
		"a tag":                     {"a: !!binary aGVsbG8=\n", "it has a YAML tag"},
		"a tag of one's own":        {"a: !int 10\n", "it has a YAML tag"},
		"a tag that says nothing":   {"a: ! 10\n", "it has a YAML tag"},
		"a verbatim tag":            {"a: !<tag:yaml.org,2002:int> 10\n", "it has a YAML tag"},
		"a tag in a flow":           {"{a:!int 10}\n", "it has a YAML tag"},
		"a tag in a flow, 2":        {"[a,!int 10]\n", "it has a YAML tag"},
		"a tag in a flow, 3":        {"{?!int 10: a}\n", "it has a YAML tag"},
		"a tag on a line":           {"a:\n  !int 10\n", "it has a YAML tag"},
		"a tag in a list":           {"- !int 10\n", "it has a YAML tag"},
		"a tag of a key":            {"? !int 10\n: a\n", "it has a YAML tag"},
		"a tag behind an anchor":    {"a: &x !int 10\n", "it has a YAML tag"},
		"a tag of a document":       {"--- !int 10\n", "it has a YAML tag"},
		"octal or decimal":          {"generation: 010\n", "it has the number 010, which YAML 1.1 and 1.2 read differently"},
		"octal or decimal, deeper":  {"a:\n- {b: -010}\n", "it has the number -010, which"},
		"octal or decimal, anchor":  {"a: [&x 010, *x]\n", "it has the number 010, which"},
		"octal or decimal, merged":  {"a: &x {k: 010}\nb: {<<: *x}\n", "it has the number 010, which"},
		"octal or decimal, a key":   {"a: {010: x}\n", "it has the number 010, which"},
		"octal or decimal, flow":    {"{\"a\":010}\n", "it has the number 010, which"},
		"octal or decimal, no text": {"a: 018\n", "it has the number 018, which"},
		"octal":                     {"a: 0o10\n", "it has the number 0o10, which"},
		"binary":                    {"a: 0b11\n", "it has the number 0b11, which"},
		"digits in groups":          {"a: 1_000\n", "it has the number 1_000, which"},
		"digits in groups, hex":     {"a: 0x1_0\n", "it has the number 0x1_0, which"},
		"digits in groups, power":   {"a: 1e1_0\n", "it has the number 1e1_0, which"},
		"digits behind a sign":      {"a: -_1\n", "it has the number -_1, which"},
		"digits in groups, float":   {"a: 1.0_0\n", "it has the number 1.0_0, which"},
		"a power":                   {"a: 1e3\n", "it has the number 1e3, which YAML 1.1 and 1.2 read differently; write it in decimal"},
		"a power without a sign":    {"a: [0.1e2]\n", "it has the number 0.1e2, which"},
		"a power without a point":   {"a: -1e-3\n", "it has the number -1e-3, which"},
		"a power, a key":            {"? 1E3\n: a\n", "it has the number 1E3, which"},
		"hexadecimal with a sign":   {"a: -0x1F\n", "it has the number -0x1F, which"},
		"a number behind a BOM":     {"\ufeff010: a\n", "it has the number 010, which"},
		"a number behind ?":         {"{?010: a}\n", "it has the number 010, which"},
		"two like keys":             {"{010: a, \"\ue03010\": b}\n", "which YAML 1.1 and 1.2 read differently"},
		"a masked text beside it":   {"{a: 010, b: \"\\uE03001\"}\n", "which YAML 1.1 and 1.2 read differently"},
		"a word":                    {"a: on\n", "it has the word on, which is true or false to YAML 1.1 and text to 1.2; write true or false"},
		"a word, deep":              {"a: [{b: [x, &a No ]}]\n", "it has the word No, which"},
		"a word, flow":              {"{\"a\":yes}\n", "it has the word yes, which"},
		"a word, a key":             {"y: 1\n", "it has the word y, which"},
		"a word before a comment":   {"a:\n  OFF # x\n", "it has the word OFF, which"},
		"a word alone":              {"n", "it has the word n, which"},
		"a merge":                   {"a: &a {k: 1}\nb:\n  <<: *a\n", "it has the merge key <<, which YAML 1.2 does not know"},
		"a merge of nothing":        {"a: {<<: {}}\n", "it has the merge key <<, which"},
		"a merge, explicit":         {"? <<\n: {a: b}\n", "it has the merge key <<, which"},
		"a merge of several":        {"a: &a {x: b}\nb: {<< : [*a]}\n'<<': x\n", "it has the merge key <<, which"},
		"a directive behind a BOM":  {"\ufeff%TAG ! tag:yaml.org,2002:\n---\na: !binary aGVsbG8=\n", "directive"},
		"a directive behind a CR":   {"# c\r%TAG ! tag:yaml.org,2002:\n---\na: !binary aGVsbG8=\n", "line break"},
		"a directive behind NEL":    {"# c\u0085%TAG ! tag:yaml.org,2002:\n---\na: !binary aGVsbG8=\n", "line break"},
		"a directive behind LS":     {"# c\u2028%TAG ! tag:yaml.org,2002:\n---\na: !binary aGVsbG8=\n", "line break"},
		"a directive behind PS":     {"# c\u2029%TAG ! tag:yaml.org,2002:\n---\na: !binary aGVsbG8=\n", "line break"},
		"a directive":               {"%YAML 1.1\n---\na: 1\n", "it has a YAML tag (!!int and the like) or directive"},
		"deep":                      {strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), "it is nested deeper than 64"},
		"deep JSON":                 {strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1), "it is nested deeper than 64"},
		"deep by indentation":       {deepBlock(maxDepth + 1), "it is nested deeper than 64"},
		"deep on one line":          {strings.Repeat("- ", maxDepth+1) + "x\n", "its lists are nested deeper than 64"},
		"deep by an alias":          {"a: &a " + nested(40) + "\nb: &b " + strings.Replace(nested(40), "[]", "[*a]", 1) + "\n", "it is nested deeper than 64"},
		"open brackets":             {strings.Repeat("[", 1000), "it has more than 256 brackets"},
		"closers in comments":       {"a: " + strings.Repeat("[ # ]\n  ", 1000) + strings.Repeat("]", 1000) + "\n", "it is nested deeper than 64"},
		"closers in quotes":         {"a: " + strings.Repeat(`["]",`, 1000) + strings.Repeat("]", 1000) + "\n", "it is nested deeper than 64"},
		"itself":                    {"a: &a [*a]\n", "it is not valid YAML"},
		"anchors":                   {strings.Repeat("- &a x\n", 100), "it has more than 64 YAML anchors"},
		"a long text, often":        {"a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a, ", 100) + "]\n", "its aliases expand to more than 2097152 bytes"},
		"a long key, often":         {"a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("{*a : 1}, ", 100) + "]\n", "its aliases expand to more than 2097152 bytes"},
		"many tokens":               {"a: [" + strings.Repeat("x,", 300_000) + "]\n", "it has more than 200000 lines"},
	} {
		asJSON, tree, err := ToJSON([]byte(tt.in), limit)
		if err == nil || !strings.Contains(err.Error(), tt.want) || asJSON != nil || tree != nil {
			t.Errorf("%s: %.80s, %v, %v", name, asJSON, tree, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%s: a reason of %d bytes", name, len(err.Error()))
		}
	}
}

func TestToJSONWithWords(t *testing.T) {
	for in, want := range map[string]string{"mode: off\ny: on\n": `{"mode":false,"true":true}`, "a: on\nb: 010\n": "number 010", "a: {<<: {b: on}}\n": "merge key"} {
		got, _, err := ToJSONWithWords([]byte(in), limit)
		if string(got) != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %s, %v", in, got, err)
		}
	}
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func deepBlock(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// The YAML reader's own bound on depth is 10,000: what passes the checks of the text costs at most so much.
func TestCost(t *testing.T) {
	group := func(opening string, levels int) string {
		return strings.Repeat(opening, levels) + strings.Repeat("]", levels) + ",\n"
	}
	const levels = 9000
	for name, in := range map[string]string{
		"deep lists":           group("[", levels),
		"many deep lists":      strings.Repeat(group("[", levels), 50),
		"closers in quotes":    group(`["]",`, levels),
		"closers in quotes, n": strings.Repeat(group(`["]",`, levels), 19),
		"closers in tags":      group("[!] ", levels),
		"closers in tags, n":   strings.Repeat(group("[!] ", levels), 23),
		"closers in comments":  strings.Repeat(group("[#]\n", levels), 21),
		"empty lists":          strings.Repeat("[],", 90_000),
		"carriage returns":     "]\r" + strings.Repeat("- \r", 349_000),
		"empty keys":           strings.Repeat("? \r", 349_000),
		"single zeros":         "'01'," + strings.Repeat("0,", 199_000),
		"small lists, a zero":  "'01'," + strings.Repeat("[a],", 95_000),
		"small maps, a zero":   "'01'," + strings.Repeat("{a: b},", 60_000),
		"deep lists, a zero":   "'01'," + strings.Repeat(strings.Repeat("[", 60)+strings.Repeat("]", 60)+",", 1500),
		"single words":         strings.Repeat("y,", 199_000),
		"single words, a key":  "{y: 1}," + strings.Repeat("a,", 190_000),
		"single powers":        strings.Repeat("1e3,", 199_000),
		"merge keys":           strings.Repeat("{<<: {}},", 60_000),
		"words in a text":      "'" + strings.Repeat("y\n", 199_000) + "'",
		"a long number":        "'" + strings.Repeat(" 0"+strings.Repeat("1", 5000), 100) + "'," + strings.Repeat("1", 400_000),
		"single letters":       strings.Repeat("a,", 199_000),
	} {
		if !strings.HasPrefix(in, "]") && !strings.HasPrefix(in, "?") {
			in = "[" + in + "]"
		}
		in = strings.TrimPrefix(in, "]\r")
		if len(in) > limit {
			t.Fatalf("%s: %d bytes", name, len(in))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := ToJSON([]byte(in), limit)
		runtime.ReadMemStats(&after)
		if cost := after.TotalAlloc - before.TotalAlloc; cost > uint64(1<<20+256*len(in)) {
			t.Errorf("%s: %d bytes of text took %d of memory, %d for each (%v)", name, len(in), cost, cost/uint64(len(in)), err)
		}
	}
}

// Whatever is accepted means what sigs.k8s.io/yaml makes of it.
func FuzzToJSON(f *testing.F) {
	for _, seed := range []string{"a: 1\n", "# x\n---\na: [b, {c: d}]\n...\n", "a: &a [1]\nb: *a\n", `{"a":[]}`, "1: a\n1.5: b\n", "a: |\n  ---\n", "- - x\n", "a: 1\n---\n", "[!] ", "{a: .nan}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, tree, err := ToJSON([]byte(in), limit)
		if err != nil {
			if got != nil || tree != nil || len(err.Error()) > 500 {
				t.Fatalf("%s and error %v", got, err)
			}
			return
		}
		want, err := yaml.YAMLToJSONStrict([]byte(in))
		if err != nil {
			t.Fatalf("%q is accepted, and refused by sigs.k8s.io/yaml: %v", in, err)
		}
		var a, b any
		if json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%q is %s, and %s to sigs.k8s.io/yaml", in, got, want)
		}
	})
}

// Every bound is exact: what just fits is read, and one more of whatever is counted is refused for that reason.
func TestExactBounds(t *testing.T) {
	repeat := strings.Repeat
	for name, tt := range map[string]struct {
		text func(n int) string
		fits int
		want string
	}{
		"bytes":           {func(n int) string { return "a: b #" + repeat("x", n) }, limit - 6, "it is larger than 1048576 bytes"},
		"bytes as JSON":   {func(n int) string { return "a: '" + repeat("<", n/6) + repeat("x", n%6) + "'" }, limit - len(`{"a":""}`), "its content is larger than 1048576 bytes"},
		"lines":           {func(n int) string { return repeat("\n", n-1) + "a: b" }, maxTokens, "it has more than 200000 lines"},
		"commas":          {func(n int) string { return "a: '" + repeat(",", n-1) + "'" }, maxTokens, "it has more than 200000 lines"},
		"colons":          {func(n int) string { return "a: '" + repeat(":", n-1) + "'" }, maxTokens, "it has more than 200000 lines"},
		"brackets":        {func(n int) string { return "a: '" + repeat("[]", n-1) + "'" }, maxTokens, "it has more than 200000 lines"},
		"braces":          {func(n int) string { return "a: '" + repeat("{}", n-1) + "'" }, maxTokens, "it has more than 200000 lines"},
		"open brackets":   {func(n int) string { return "a: '" + repeat("[", n) + "'" }, maxOpen, "it has more than 256 brackets"},
		"open braces":     {func(n int) string { return "a: '" + repeat("]", 9) + repeat("{", n) + "'" }, maxOpen, "it has more than 256 brackets"},
		"lists on a line": {func(n int) string { return repeat("- ", n) + "x\n" }, maxDepth, "its lists are nested deeper than 64"},
		"keys on a line": {func(n int) string {
			return "a: b\nc: d\n# " + repeat("? ", 99) + "\ne: |\n  " + repeat("? ", n) + "x\n  - y\n"
		}, maxDepth, "its lists are nested deeper than 64"},
		"anchors":         {func(n int) string { return repeat("- &a x\n", n) }, maxAnchors, "it has more than 64 YAML anchors"},
		"depth":           {func(n int) string { return deepBlock(n) }, maxDepth, "it is nested deeper than 64"},
		"depth of a flow": {func(n int) string { return "a: " + repeat("[", n-1) + repeat("]", n-1) + "\n" }, maxDepth + 1, "it is nested deeper than 64"},
	} {
		if _, _, err := ToJSON([]byte(tt.text(tt.fits)), limit); err != nil {
			t.Errorf("%s, %d: %v", name, tt.fits, err)
		}
		if _, _, err := ToJSON([]byte(tt.text(tt.fits+1)), limit); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s, %d: %v, want %q", name, tt.fits+1, err, tt.want)
		}
	}
}

// What aliases may expand to is twice the limit: a byte for each value, and for each key beside its own.
func TestExactExpansion(t *testing.T) {
	const long, most = 100, 205 // {a: long, b: [long, long, long]} costs 1 + 2 + 101 + 2 + 1 + 3*101 = 410
	for key, want := range map[string]string{"b": "its content is larger than 205 bytes", "bb": "its aliases expand to more than 410 bytes"} {
		if _, _, err := ToJSON([]byte("a: &a "+strings.Repeat("x", long)+"\n"+key+": [*a, *a, *a]\n"), most); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", key, err, want)
		}
	}
}
