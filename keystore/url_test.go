package keystore

import (
	"net/url"
	"strings"
	"testing"
)

// longURL is an issuer URL of exactly n characters.
func longURL(n int) string {
	u := "https://oidc.example.com"
	for len(u) < n {
		u += "/" + strings.Repeat("a", min(63, n-len(u)-1))
	}
	return u
}

func TestIssuerURLs(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	for _, tt := range []struct {
		in, host, path string
		dev            bool
		refused        string // a part of the reason; empty when the URL is good
	}{
		{in: "https://oidc.example.com", host: "oidc.example.com"},
		{in: "https://oidc.example.com/prod-a", host: "oidc.example.com", path: "/prod-a"},
		{in: "https://oidc.example.com/A.b_c-9", host: "oidc.example.com", path: "/A.b_c-9"},
		{in: "https://oidc.example.com/a..b", host: "oidc.example.com", path: "/a..b"},
		{in: "https://oidc.example.com/Openid/keys.jsonx/well-known", host: "oidc.example.com", path: "/Openid/keys.jsonx/well-known"},
		{in: "https://oidc.example.com/" + label63, host: "oidc.example.com", path: "/" + label63},
		{in: "https://xn--mnchen-3ya.example", host: "xn--mnchen-3ya.example"},
		{in: "https://1.2.3.example", host: "1.2.3.example"},
		{in: "https://" + label63 + ".example", host: label63 + ".example"},
		{in: longURL(255), host: "oidc.example.com", path: longURL(255)[len("https://oidc.example.com"):]},
		{in: longURL(256), refused: "it is 256 characters long; AWS takes 255"},

		{in: "", refused: "it must begin with https://"},
		{in: "http://oidc.example.com", refused: "it must begin with https://"},
		{in: "HTTPS://oidc.example.com", refused: "it must begin with https:// in lower case"},
		{in: "https://", refused: "its host must be a DNS name"},
		{in: "https://oidc.example.com/", refused: "it ends in a slash"},
		{in: "https://oidc.example.com/a//b", refused: `its path segment "" must be`},
		{in: "https://Oidc.example.com", refused: "lower-case ASCII"},
		{in: "https://münchen.example", refused: "lower-case ASCII (punycode for other letters)"},
		{in: "https://-oidc.example.com", refused: "its host must be a DNS name"},
		{in: "https://oidc..example.com", refused: "its host must be a DNS name"},
		{in: "https://oidc.example.com.", refused: "its host must be a DNS name"},
		{in: "https://" + label63 + "a.example", refused: "its host must be a DNS name"},
		{in: "https://localhost", refused: "its host must be a public DNS name with a dot"},
		{in: "https://127.0.0.1/a", refused: "not an address"},
		{in: "https://0x7f.0x1", refused: "not an address"},
		{in: "https://[::1]/a", refused: "its host is an IP address; use a DNS name"},
		{in: "https://oidc.example.com:443", refused: "it has a port; AWS takes none"},
		{in: "https://oidc.example.com:", refused: "it has a port"},
		{in: "https://user@oidc.example.com", refused: "user name"},
		{in: "https://oidc.example.com?x=1", refused: "it has a query"},
		{in: "https://oidc.example.com/a#b", refused: "fragment"},
		{in: "https://oidc.example.com/%61", refused: "percent-encoding"},
		{in: "https://oidc.example.com/..", refused: `its path segment ".."`},
		{in: "https://oidc.example.com/.hidden", refused: `its path segment ".hidden"`},
		{in: "https://oidc.example.com/-a", refused: `its path segment "-a"`},
		{in: "https://oidc.example.com/.well-known", refused: "under which documents are served"},
		{in: "https://oidc.example.com/a/.well-known/b", refused: "under which documents are served"},
		{in: "https://oidc.example.com/openid/v1", refused: "under which documents are served"},
		{in: "https://oidc.example.com/a/keys.json", refused: "under which documents are served"},
		{in: "https://oidc.example.com/" + label63 + "a", refused: "must be 1 to 63 of"},

		{dev: true, in: "https://localhost:8443/demo", host: "localhost", path: "/demo"},
		{dev: true, in: "https://127.0.0.1:65535", host: "127.0.0.1"},
		{dev: true, in: "https://oidc.example.com", host: "oidc.example.com"},
		{dev: true, in: "https://localhost:65536", refused: "its port is not a number"},
		{dev: true, in: "https://localhost:0443", refused: "its port is not a number"},
		{dev: true, in: "https://localhost:", refused: "its port is not a number"},
		{dev: true, in: "https://localhost/openid", refused: "under which documents are served"},
	} {
		u, err := ParseIssuerURL(tt.in, tt.dev)
		if tt.refused != "" {
			if err == nil || !strings.HasPrefix(err.Error(), "issuer URL ") || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%.80q dev %v: error %v; want %q in it", tt.in, tt.dev, err, tt.refused)
			}
			continue
		}
		if err != nil || u.String() != tt.in || u.Host() != tt.host || u.Path() != tt.path {
			t.Errorf("%.80q dev %v: host %q path %q error %v", tt.in, tt.dev, u.Host(), u.Path(), err)
		}
	}
}

func TestIssuerURLsTakeNoOtherCharacter(t *testing.T) {
	const inPath = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/"
	const inHost = "abcdefghijklmnopqrstuvwxyz0123456789-./"
	for c := range rune(0x180) {
		for _, place := range []struct{ in, allowed string }{
			{"https://oidc.example.com/a" + string(c) + "b", inPath},
			{"https://a.b" + string(c) + "b.example.com", inHost},
			{"https://oidc.example.com/a/b" + string(c), strings.TrimSuffix(inPath, "/")},
		} {
			if _, err := ParseIssuerURL(place.in, false); (err == nil) != strings.ContainsRune(place.allowed, c) {
				t.Errorf("%q: error %v", place.in, err)
			}
		}
	}
}

func TestRefusedIssuerURLsAreQuotedShortAndPrintable(t *testing.T) {
	_, err := ParseIssuerURL("https://\x1b[31m\n"+strings.Repeat("x", 1<<20), false)
	if err == nil || len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Errorf("error of %d bytes: %.100q", len(err.Error()), err)
	}
}

// FuzzIssuerURL: an accepted URL means the same to every reader, and is kept byte for byte.
func FuzzIssuerURL(f *testing.F) {
	for _, seed := range []string{
		"https://oidc.example.com", "https://oidc.example.com/prod-a", "https://a.b/c/d", "https://127.0.0.1/x", "https://localhost:8443/a",
		"https://xn--mnchen-3ya.example/a..b", "https://a.b:443", "https://a.b/%2e", "https://a.b//c", "https://a.b/\\", "https://u@a.b", longURL(255),
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, raw string, dev bool) {
		u, err := ParseIssuerURL(raw, dev)
		if err != nil {
			return
		}
		if u.String() != raw || len(raw) > 255 {
			t.Fatalf("%q became %q", raw, u)
		}
		if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("?#@%\\\"'<>[]{}|^`*", r) }) {
			t.Errorf("%q has a forbidden character", raw)
		}
		if !dev && "https://"+u.Host()+u.Path() != raw {
			t.Errorf("%q is not https://%s%s", raw, u.Host(), u.Path())
		}
		std, err := url.Parse(raw)
		if err != nil || std.Hostname() != u.Host() || std.EscapedPath() != u.Path() || std.Scheme != "https" || (std.Port() != "" && !dev) {
			t.Errorf("net/url reads %q as %v (error %v)", raw, std, err)
		}
		if joined := std.JoinPath(); strings.TrimSuffix(joined.String(), "/") != raw {
			t.Errorf("%q is %q once cleaned", raw, joined)
		}
	})
}
