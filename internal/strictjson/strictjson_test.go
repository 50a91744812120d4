package strictjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestUnambiguous(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"sound", `{"keys":[{"kid":"a","n":"x"},{"kid":"b","n":"y"}],"more":{"kid":1}}`, ""},
		{"a value that looks like a name", `{"kid":"keys","alg":"keys","use":["keys","keys"]}`, ""},
		{"no object", `["a","a"]`, ""},
		{"scalar", `7`, ""},
		{"twice", `{"keys":[],"keys":[]}`, `"keys" twice`},
		{"twice, far apart", `{"keys":[{"a":{"b":[1]}}],"x":{},"keys":[]}`, `"keys" twice`},
		{"twice inside a key", `{"keys":[{"kid":"a","n":"x","n":"y"}]}`, `"n" twice`},
		{"twice after escapes", `{"keys":[],"k\u0065ys":[]}`, `"keys" twice`},
		{"an unknown one twice", `{"keys":[],"x":1,"x":2}`, `"x" twice`},
		{"other case beside it", `{"keys":[],"KEYS":[]}`, `"keys" and "KEYS"`},
		{"only other case", `{"Keys":[]}`, `"Keys", which some relying parties read as "keys"`},
		{"Kelvin sign", `{"keys":[],"\u212Aeys":[]}`, "\"keys\" and \"\u212Aeys\""},
		{"only long s", `{"key\u017F":[]}`, "\"key\u017F\", which some relying parties read as \"keys\""},
		{"deep", `{"keys":[{"x":[[{"kid":1,"KID":2}]]}]}`, `"kid" and "KID"`},
		{"after a number that no float64 holds", `{"x":1e999,"keys":[],"keys":[]}`, `"keys" twice`},
		{"after a long number", `{"x":-123456789012345678901234567890.5E-9999,"kid":1,"KID":2}`, `"kid" and "KID"`},
		{"cut short, which the reader before it refuses", `{"keys":[`, ""},
		{"two texts", `{"keys":[]}}`, "not valid JSON"},
		{"text direction", `{"a\u202e":1,"a\u202e":2}`, `"a?" twice`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Check([]byte(tt.body), []string{"keys", "kid", "n"})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// FuzzUnambiguous: what passes is read alike by a reader that takes any case and the last of two, and by one that goes
// by the letter.
func FuzzUnambiguous(f *testing.F) {
	for _, seed := range []string{`{"keys":[1]}`, `{"KEYS":[1],"keys":[2]}`, `{"keys":[1],"keys":[2]}`, `{"\u212aeys":[1]}`, `{"a":{"keys":[1]},"keys":[2]}`, `{"keys":[1]}{"keys":[2]}`, `{"x":1e999,"keys":[1],"keys":[2]}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var loose struct {
			Keys json.RawMessage `json:"keys"`
		}
		var strict map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &loose) != nil || json.Unmarshal([]byte(body), &strict) != nil {
			return
		}
		if Check([]byte(body), []string{"keys", "kty", "alg", "use", "kid", "n", "e", "crv", "x", "y"}) == nil && !bytes.Equal(loose.Keys, strict["keys"]) {
			t.Errorf("%q: one reads %s, the other %s", body, loose.Keys, strict["keys"])
		}
	})
}
