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

// Document is a response that is ready to be written. It is immutable.
//
// Header values are arrays, of which net/http is given slices, so that a request allocates nothing for them. They lie
// in the Document, and the text of what is its own lies in one piece: each piece more, for each of thousands of
// issuers, is one more to fetch from memory at a request and to mark in every garbage collection.
type Document struct {
	body         string
	etag         [1]string
	length       [1]string
	contentType  [1]string
	cacheControl [1]string
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

func newDocument(body []byte, contentType, cacheControl []string) Document {
	sum := sha256.Sum256(body)
	etag := `"` + b64(sum[:16]) + `"` // strong, of the content alone: equal on every replica
	length := strconv.Itoa(len(body))
	text := etag + length + string(body)
	return Document{
		body:         text[len(etag)+len(length):],
		etag:         [1]string{text[:len(etag)]},
		length:       [1]string{text[len(etag):][:len(length)]},
		contentType:  [1]string(contentType),
		cacheControl: [1]string(cacheControl),
	}
}

// cacheControl spells the header of RFC 9111 and RFC 5861. Most key sets have the same one, which is kept once.
func cacheControl(c keystore.Cache) []string {
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	text := fmt.Sprintf("public, max-age=%d, stale-while-revalidate=%d, stale-if-error=%d",
		seconds(c.MaxAge), seconds(c.StaleWhileRevalidate), seconds(c.StaleIfError))
	return []string{unique.Make(text).Value()}
}

// write answers a GET or HEAD with the document, or with 304 when the client has it, and returns the status.
func (d *Document) write(w http.ResponseWriter, r *http.Request) int {
	h := w.Header()
	h["Cache-Control"] = d.cacheControl[:]
	h["Etag"] = d.etag[:]
	h["X-Content-Type-Options"] = noSniff
	h["Strict-Transport-Security"] = hsts
	h["Access-Control-Allow-Origin"] = anyOrigin
	if notModified(r.Header["If-None-Match"], d.etag[0]) {
		w.WriteHeader(http.StatusNotModified)
		return http.StatusNotModified
	}
	h["Content-Type"] = d.contentType[:]
	h["Content-Length"] = d.length[:]
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

// page is all that is served below one issuer URL.
type page struct{ root, discovery, jwks Document }

// rootLine answers requests for the issuer URL itself: ccoctl's thumbprint step and people ask there.
const rootLine = "This is an OIDC issuer. See .well-known/openid-configuration below this address.\n"
