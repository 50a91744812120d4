package issuer

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
)

// document is an answer that is ready to be written. Its header values are in the form in which net/http keeps them, so
// that a request allocates nothing for them. It is immutable.
type document struct {
	*content
	contentType, cacheControl []string // one each
}

// content is a body with the header values that follow from it. A slice of one of them cannot grow into its neighbour.
type content struct {
	body         string
	etag, length [1]string
}

// Header values that are the same in every response.
var (
	typeJSON = []string{"application/json"}
	typeText = []string{"text/plain; charset=utf-8"}
	noSniff  = []string{"nosniff"}
	// hsts has no includeSubDomains: the issuer's host may be the parent of hosts that are none of our business.
	hsts      = []string{"max-age=31536000"}
	anyOrigin = []string{"*"} // public data without credentials; lets browser tools read it
)

// newContent returns a body with its ETag: a strong one, only of the content and so equal on every replica.
func newContent(body []byte) content {
	sum := sha256.Sum256(body)
	return content{string(body), [1]string{`"` + b64(sum[:16]) + `"`}, [1]string{strconv.Itoa(len(body))}}
}

// cacheControl returns the header value (RFC 9111 and RFC 5861).
func cacheControl(c keystore.Cache) string {
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	return fmt.Sprintf("public, max-age=%d, stale-while-revalidate=%d, stale-if-error=%d",
		seconds(c.MaxAge), seconds(c.StaleWhileRevalidate), seconds(c.StaleIfError))
}

// write answers a GET or HEAD with the document, or with 304 when the client has it, which it reports.
func (d document) write(w http.ResponseWriter, r *http.Request) (unchanged bool) {
	h := w.Header()
	h["Cache-Control"] = d.cacheControl
	h["Etag"] = d.etag[:]
	h["X-Content-Type-Options"] = noSniff
	h["Strict-Transport-Security"] = hsts
	h["Access-Control-Allow-Origin"] = anyOrigin
	if matches(r.Header["If-None-Match"], d.etag[0]) {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	h["Content-Type"] = d.contentType
	h["Content-Length"] = d.length[:]
	if r.Method != http.MethodHead {
		io.WriteString(w, d.body) //nolint:errcheck // the client has gone away
	}
	return false
}

// matches reports whether one of the entity tags in If-None-Match fields is etag. It compares weakly (RFC 9110, section
// 13.1.2): a CDN that compresses turns our ETag into a weak one.
func matches(fields []string, etag string) bool {
	for _, f := range fields {
		for rest := f; rest != ""; {
			var tag string
			tag, rest, _ = strings.Cut(rest, ",")
			tag = strings.TrimSpace(tag)
			if tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
				return true
			}
		}
	}
	return false
}

// rootText answers requests for the issuer URL itself: ccoctl's thumbprint step and people ask there.
const rootText = "This is an OIDC issuer. See .well-known/openid-configuration below this address.\n"

var root = newContent([]byte(rootText)) //nolint:gochecknoglobals // it never changes
