package fetch

import (
	"strings"
	"testing"
)

func TestUnique(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"sound", `{"keys":[{"kid":"a","n":"x"},{"kid":"b","n":"y"}],"more":{"kid":1},"x":1e999}`, ""},
		{"a value that looks like a name", `{"kid":"keys","alg":"keys","use":["keys","keys"]}`, ""},
		{"no object", `["a","a"]`, ""},
		{"twice, far apart", `{"keys":[{"a":{"b":[1]}}],"x":{},"keys":[]}`, `"keys" twice`},
		{"twice inside a key", `{"keys":[{"kid":"a","n":"x","n":"y"}]}`, `"n" twice`},
		{"twice after escapes", `{"keys":[],"k\u0065ys":[]}`, `"keys" twice`},
		{"other case beside it", `{"keys":[],"KEYS":[]}`, `"KEYS" twice`},
		{"Kelvin sign", `{"keys":[],"\u212Aeys":[]}`, "eys\" twice"},
		{"after a number that no float64 holds", `{"x":1e999,"keys":[],"keys":[]}`, `"keys" twice`},
		{"too deep", strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), "not valid JSON"},
		{"two texts", `{"keys":[]}}`, "not valid JSON"},
	} {
		if err := checkUnique([]byte(tt.body)); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}
