package verify

import (
	"net/http"
	"testing"
)

// Replicas of one place have one ETag for one content. Another origin may be another server, with ETags of its own: files that an export
// has written, as docs/cdn has them. One ETag for two contents is wrong wherever it comes from.
func TestETagsOfOrigins(t *testing.T) {
	from := func(name, tag, body string) look {
		const url = "https://oidc.example.com/keys.json"
		return look{Names: []string{name}, Origin: name != "", JWKS: reply{Asked: true, response: response{URL: url, Status: http.StatusOK, Header: http.Header{"Etag": {tag}}, Body: []byte(body)}}}
	}
	for name, tc := range map[string]struct {
		looks []look
		want  string
	}{
		"two replicas, one ETag":       {[]look{from("", `"a"`, "x"), from("", `W/"a"`, "x")}, ""},
		"two replicas, two ETags":      {[]look{from("", `"a"`, "x"), from("", `"b"`, "x")}, "etag-unstable"},
		"an origin, two ETags":         {[]look{from("o.example.com", `"a"`, "x"), from("o.example.com", `"b"`, "x")}, "etag-unstable"},
		"keypostd and files":           {[]look{from("", `"a"`, "x"), from("o.example.com", `"a"`, "x"), from("f.example.com", `"b"`, "x")}, ""},
		"one ETag, two contents":       {[]look{from("", `"a"`, "x"), from("", `"a"`, "y")}, "etag-stuck"},
		"one of files', two contents":  {[]look{from("o.example.com", `"a"`, "x"), from("f.example.com", `"a"`, "y")}, "etag-stuck"},
		"older files, ETags of theirs": {[]look{from("o.example.com", `"a"`, "x"), from("f.example.com", `"b"`, "y")}, ""},
	} {
		var v visitor
		v.checkETags(tc.looks)
		got := ""
		for _, f := range v.Sorted() {
			got += f.Code
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
