package cel

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func env(t testing.TB) map[string]any {
	t.Helper()
	var assertion map[string]any
	const claims = `{"sub":"system:serviceaccount:ns:sa","aud":["openshift","other"],"n":3,"kubernetes.io":{"namespace":"ns"},"yes":true}`
	if err := json.Unmarshal([]byte(claims), &assertion); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"assertion": assertion, "google": map[string]any{"subject": "s"}, "attribute": map[string]any{}}
}

func TestExpressionsHaveTheirValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		"assertion.sub":                        "system:serviceaccount:ns:sa",
		"assertion['kubernetes.io'].namespace": "ns",
		"assertion['kubernetes.io']['namespace'] + ':' + \"it\\\"s\"": `ns:it"s`,
		"assertion.aud[1]": "other",
		"assertion.aud":    []any{"openshift", "other"},
		"['a', 'b']":       []any{"a", "b"},
		"1 + 2":            3.0,
		"assertion.n < 4 && assertion.n <= 3 && assertion.n > 2 && assertion.n >= 3": true,
		"'a' < 'b' && 'b' > 'a' && 'a' <= 'a' && 'a' >= 'a'":                         true,
		"assertion.n == 3 && assertion.n != 4":                                       true,
		"'openshift' in assertion.aud":                                               true,
		"'x' in assertion.aud":                                                       false,
		"'sub' in assertion && !('x' in assertion)":                                  true,
		"has(assertion.sub) && !has(assertion.absent)":                               true,
		"false && true || true":                                                      true,
		"true || false && false":                                                     true,
		"(true || false) && false":                                                   false,
		"assertion.absent == 1 || true":                                              true,
		"true || assertion.absent == 1":                                              true,
		"false && assertion.absent":                                                  false,
		"assertion.yes ? 'a' : 'b'":                                                  "a",
		"!assertion.yes ? 'a' : 'b'":                                                 "b",
		"google.subject.size() + assertion.aud.size()":                               3.0,
		"assertion.sub.startsWith('system:')":                                        true,
		"assertion.sub.endsWith(':sa') && assertion.sub.contains(':ns:')":            true,
		"assertion.sub.matches('^system:.*:sa$')":                                    true,
		"assertion.sub.extract('serviceaccount:{ns}:')":                              "ns",
		"assertion.sub.extract('serviceaccount:{rest}')":                             "ns:sa",
		"assertion.sub.extract('absent:{x}')":                                        "",
		"assertion.sub.extract('sa{x}?')":                                            "",
		"'Ab'.lowerAscii() + 'Ab'.upperAscii()":                                      "abAB",
	} {
		if got, err := Evaluate(text, env(t)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v %v, want %v", text, got, err, want)
		}
	}
}

func TestWhatIsNoExpressionDoesNotCompile(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "assertion.", "assertion.1", "assertion.sub ==", "(assertion.sub", "[1, 2", "[1 2]", "assertion[1", "sub", "'a", "a ? b", "true ? 1",
		"true ? 1 :", "assertion.sub assertion.sub", "assertion.sub.dance()", "assertion.sub.startsWith()", "has(1, 2)", "#", "99999999999999999999999999" + strings.Repeat("9", 400)} {
		if _, err := Compile(text); err == nil {
			t.Errorf("%q compiles", text)
		}
	}
}

func TestWhatHasNoValueIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"assertion.absent", "assertion.absent.more", "assertion.aud[2]", "assertion.aud['a']", "assertion.sub.x", "1 < 'a'", "1 + 'a'", "1 in 2", "!1",
		"assertion.n.startsWith('a')", "assertion.sub.startsWith(1)", "assertion.sub.extract('a')", "assertion.sub.matches('(')", "[assertion.absent]",
		"assertion[assertion.absent]", "assertion.absent ? 1 : 2", "assertion.absent && true", "assertion.sub.contains(assertion.absent)"} {
		if v, err := Evaluate(text, env(t)); err == nil {
			t.Errorf("%s is %v", text, v)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add("assertion.sub == 'a' && (google.subject in ['b'] || !has(assertion.x)) ? 1 : assertion.aud[0].extract('{a}')")
	f.Fuzz(func(t *testing.T, text string) {
		if e, err := Compile(text); err == nil {
			_, _ = e(env(t)) // must return
		}
	})
}
