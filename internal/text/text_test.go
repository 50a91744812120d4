package text

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// What may not reach a terminal, one of each kind.
var bad = map[string]string{
	"escape sequence":  "\x1b[2J",
	"C1 control":       "\u009b2J",
	"delete":           "\x7f",
	"null":             "\x00",
	"override":         "\u202e",
	"isolate":          "\u2066",
	"LRM":              "\u200e",
	"zero-width space": "\u200b",
	"byte order mark":  "\ufeff",
	"soft hyphen":      "\u00ad",
	"line separator":   "\u2028",
	"next line":        "\u0085",
	"Hangul filler":    "\u3164",
	"variation":        "\ufe0f",
	"tag":              "\U000e0041",
	"private use":      "\ue000",
	"not UTF-8":        "\xff",
	"replacement":      "\ufffd",
	"new line":         "\n",
	"tab":              "\t",
	"no-break space":   "\u00a0",
}

func TestOneLine(t *testing.T) {
	for name, s := range bad {
		got := OneLine("a"+s+"b", 0)
		if strings.Contains(got, s) || !strings.HasPrefix(got, "a") || !strings.HasSuffix(got, "b") || got == "ab" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for s, want := range map[string]string{
		"":                 "",
		"plain text, 100%": "plain text, 100%",
		"Größe 日本語 – “quoted” שלום": "Größe 日本語 – “quoted” שלום",
		" \n a\tb\r\nc ":    "a b  c",
		"x\x1b[31mred":      "x?[31mred",
		"safe\u202egpj.exe": "safe?gpj.exe",
	} {
		if got := OneLine(s, 0); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestOneLineIsBounded(t *testing.T) {
	for _, tt := range []struct {
		s     string
		limit int
		want  string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"äöü", 3, "äöü"}, {"äöüß", 3, "äöü…"}, {"abcd", 0, "abcd"}, {"\xff\xff\xff", 2, "??…"},
	} {
		if got := OneLine(tt.s, tt.limit); got != tt.want {
			t.Errorf("OneLine(%q, %d) = %q, want %q", tt.s, tt.limit, got, tt.want)
		}
	}
}

// Escaped text has no unprintable character and means the same to a reader of JSON or YAML.
func TestEscape(t *testing.T) {
	for name, c := range bad {
		if !utf8.ValidString(c) {
			continue // no JSON encoder writes these
		}
		want := map[string]string{"why": "a" + c + "b", c: "ok"}
		data, err := json.MarshalIndent(want, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		var asJSON, asYAML map[string]string
		j, y := EscapeJSON(data), EscapeYAML(data)
		if err := json.Unmarshal(j, &asJSON); err != nil || !maps.Equal(asJSON, want) {
			t.Errorf("%s: JSON %s reads %q, %v", name, j, asJSON, err)
		}
		if err := yaml.Unmarshal(y, &asYAML); err != nil || !maps.Equal(asYAML, want) {
			t.Errorf("%s: YAML %s reads %q, %v", name, y, asYAML, err)
		}
		for _, r := range string(j) + string(y) {
			if r != '\n' && !Printable(r) {
				t.Errorf("%s: %U is left", name, r)
			}
		}
	}
	if plain := []byte("{\n  \"a\": \"größer\"\n}\n"); &EscapeJSON(plain)[0] != &plain[0] {
		t.Error("a harmless text is copied")
	}
}

// A log line means the same, and nothing in it obeys a terminal. The writer reports the bytes that it was given.
func TestLogWriter(t *testing.T) {
	var b strings.Builder
	line := []byte("{\"file\":\"a\u202eb\u2028\"}\n")
	if n, err := LogWriter(&b).Write(line); n != len(line) || err != nil || b.String() != `{"file":"a\u202eb\u2028"}`+"\n" {
		t.Errorf("%d, %v: %q", n, err, b.String())
	}
	if n, err := LogWriter(broken{}).Write(line); n != 0 || err == nil {
		t.Errorf("a writer that fails: %d, %v", n, err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 3, errors.New("full") }

func FuzzOneLine(f *testing.F) {
	for _, s := range bad {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		got := OneLine(s, limit)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		if limit > 0 && utf8.RuneCountInString(got) > limit+1 {
			t.Fatalf("%q is longer than %d", got, limit)
		}
		for _, r := range got {
			if !Printable(r) {
				t.Fatalf("%q holds %U", got, r)
			}
		}
		if again := OneLine(got, 0); again != strings.TrimSpace(got) {
			t.Fatalf("%q becomes %q", got, again)
		}
	})
}

// A text with a credential, a part of one, or the beginning of either is not shown.
func TestHide(t *testing.T) {
	const credential = "hvs.CAESIJabcdefghijklmnopqrstuv.0123456789abcdefXYZ"
	for _, s := range []string{"it was " + credential, "hvs.CAESIJabcdef", "CAESIJabcdefghij", "0123456789abcdef"} {
		if got := Hide("you sent "+s+"!", credential); strings.Contains(got, s) {
			t.Error(got)
		}
	}
	for s, credential := range map[string]string{"of 0123456789abcde": credential, "whatever": "", "hvs.": credential} {
		if got := Hide(s, credential); got != s {
			t.Errorf("%q is shown as %q", s, got)
		}
	}
	if got := Hide("my s3cret", "s3cret"); strings.Contains(got, "s3cret") {
		t.Error(got)
	}
}
