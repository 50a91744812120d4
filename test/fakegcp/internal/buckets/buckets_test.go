package buckets

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestABucketIsMadeFilledReadAndDeleted(t *testing.T) {
	t.Parallel()
	b := New()
	const upload = "--x\r\nContent-Type: application/json\r\n\r\n{\"name\":\".well-known/openid-configuration\"}\r\n" +
		"--x\r\nContent-Type: text/plain\r\n\r\ntext\r\n--x--\r\n"
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/storage/v1/b/k", "", 404, "The specified bucket does not exist."},
		{"POST", "/storage/v1/b?project=p", `{}`, 400, "name"},
		{"POST", "/storage/v1/b?project=p", `{"name":"k","location":"us"}`, 200, `"location":"us"`},
		{"POST", "/storage/v1/b?project=p", `{"name":"k"}`, 409, "you already own it"},
		{"GET", "/storage/v1/b/k", "", 200, `"name":"k"`},
		{"GET", "/storage/v1/b/k/iam?optionsRequestedPolicyVersion=3", "", 200, `"etag":"CAE="`},
		{"PUT", "/storage/v1/b/k/iam", `{"etag":"CAE=","bindings":[]}`, 200, `"etag":"CAE1"`},
		{"PUT", "/storage/v1/b/k/iam", `{"etag":"CAE="}`, 412, "pre-conditions"},
		{"PUT", "/storage/v1/b/k/iam", `{`, 400, ""},
		{"POST", "/upload/storage/v1/b/k/o?uploadType=media&name=a", upload, 400, "multipart"},
		{"POST", "/upload/storage/v1/b/k/o?uploadType=multipart", "--x--", 400, "no description"},
		{"POST", "/upload/storage/v1/b/k/o?uploadType=multipart", upload, 200, "openid-configuration"},
		{"GET", "/k/.well-known/openid-configuration", "", 200, "text"},
		{"GET", "/k/absent", "", 404, "No such object: k/absent"},
		{"GET", "/storage/v1/b/k/o", "", 200, `"name":".well-known/openid-configuration"`},
		{"DELETE", "/storage/v1/b/k", "", 409, "not empty"},
		{"DELETE", "/storage/v1/b/k/o/absent", "", 404, "No such object"},
		{"DELETE", "/storage/v1/b/k/o/.well-known%2Fopenid-configuration", "", 204, ""},
		{"DELETE", "/storage/v1/b/k", "", 204, ""},
		{"GET", "/storage/v1/b/k/o", "", 404, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
		if strings.HasPrefix(c.path, "/upload/") {
			r.Header.Set("Content-Type", "multipart/related; boundary=x")
		}
		w := httptest.NewRecorder()
		b.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s: got %d %s\nwant %d …%s…", c.method, c.path, w.Code, w.Body, c.status, c.says)
		}
		if c.method == http.MethodPost && strings.HasSuffix(c.path, "multipart") && c.status == 200 && b.Objects()["k/.well-known/openid-configuration"] != "text" {
			t.Error(b.Objects())
		}
	}
}
