package issuer

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unique"

	"github.com/keypost/keypost/keystore"
)

// Document is a response that is ready to be written: the text of a body and header values in the form in which
// net/http keeps them, so that a request allocates nothing for them. It is immutable.
type Document struct {
	body                                    string
	etag, length, contentType, cacheControl []string // one each
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

// content is a body and its ETag.
type content struct{ body, etag string }

func newContent(body []byte) content {
	sum := sha256.Sum256(body)
	return content{string(body), `"` + b64(sum[:16]) + `"`} // strong, of the content alone: equal on every replica
}

// cacheControl spells the header of RFC 9111 and RFC 5861. Most key sets have the same one, which is kept once.
func cacheControl(c keystore.Cache) string {
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	text := fmt.Sprintf("public, max-age=%d, stale-while-revalidate=%d, stale-if-error=%d",
		seconds(c.MaxAge), seconds(c.StaleWhileRevalidate), seconds(c.StaleIfError))
	return unique.Make(text).Value()
}

// write answers a GET or HEAD with the document, or with 304 when the client has it, and returns the status.
func (d Document) write(w http.ResponseWriter, r *http.Request) int {
	h := w.Header()
	h["Cache-Control"] = d.cacheControl
	h["Etag"] = d.etag
	h["X-Content-Type-Options"] = noSniff
	h["Strict-Transport-Security"] = hsts
	h["Access-Control-Allow-Origin"] = anyOrigin
	if notModified(r.Header["If-None-Match"], d.etag[0]) {
		w.WriteHeader(http.StatusNotModified)
		return http.StatusNotModified
	}
	h["Content-Type"] = d.contentType
	h["Content-Length"] = d.length
	if r.Method != http.MethodHead {
		io.WriteString(w, d.body) //nolint:errcheck // the client went away: nobody is left to tell
	}
	return http.StatusOK
}

// notModified compares weakly (RFC 9110, section 13.1.2): a CDN that compresses turns our ETag into a weak one.
func notModified(fields []string, etag string) bool {
	for _, f := range fields {
		for rest := f; rest != ""; {
			var one string
			one, rest, _ = strings.Cut(rest, ",")
			one = strings.TrimSpace(one)
			if one == "*" || strings.TrimPrefix(one, "W/") == etag {
				return true
			}
		}
	}
	return false
}

// page is what is served below one issuer URL, until it is laid into a snapshot.
type page struct {
	owner           keystore.Name
	discovery, jwks content
	cacheControl    string
}

// rootLine answers requests for the issuer URL itself: ccoctl's thumbprint step and people ask there.
const rootLine = "This is an OIDC issuer. See .well-known/openid-configuration below this address.\n"

var (
	rootETag   = []string{newContent([]byte(rootLine)).etag}
	rootLength = []string{strconv.Itoa(len(rootLine))}
)
