package token

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
)

func unsigned(claims string) string {
	b64 := base64.RawURLEncoding.EncodeToString
	return b64([]byte(`{"alg":"ES256","kid":"k"}`)) + "." + b64([]byte(claims)) + ".AA"
}

// TestRead: what a token says is read no matter who signed it; how it is checked is proved by the set-ups of package verify.
func TestRead(t *testing.T) {
	for claims, want := range map[string]Claims{
		`{"iss":"i","sub":"s","aud":"a"}`:                    {"i", "s", []string{"a"}},
		`{"iss":"i","sub":"s","aud":["a","b"]}`:              {"i", "s", []string{"a", "b"}},
		`{"iss":"i","sub":"s","aud":["a","b"],"azp":"only"}`: {"i", "s", []string{"only"}},
		`{"iss":"i"}`: {Issuer: "i"},
		`{"exp":1.5}`: {},
		`[]`:          {},
	} {
		if got := Read(" " + unsigned(claims) + "\n"); got.Issuer != want.Issuer || got.Subject != want.Subject || !slices.Equal(got.Audiences, want.Audiences) {
			t.Errorf("%s: %+v", claims, got)
		}
	}
	for _, token := range []string{"", "x", unsigned(`{"iss":"i"}`) + strings.Repeat("a", maxSize)} {
		if got := Read(token); got.Issuer != "" {
			t.Errorf("%.20q: %+v", token, got)
		}
	}
}

// FuzzCheck: no token makes the check fail, and none is repeated in a finding.
func FuzzCheck(f *testing.F) {
	f.Add(unsigned(`{"iss":"i","sub":"s","aud":"a","exp":1,"iat":1}`))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, token string) {
		for _, found := range (Issuer{URL: "https://oidc.example.com"}).Check(token) {
			if len(token) > 100 && strings.Contains(found.Evidence, token) {
				t.Errorf("%s has the token", found.Code)
			}
		}
	})
}
