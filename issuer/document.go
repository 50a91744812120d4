package issuer

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
)

// Document is a response that is ready to be written: the body, and header values in the form that net/http keeps
// them in, so that a request allocates nothing for them. It is immutable.
type Document struct {
	body         []byte
	contentType  []string
	cacheControl []string
	etag         []string
	length       []string
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
	return Document{
		body:         body,
		contentType:  contentType,
		cacheControl: cacheControl,
		etag:         []string{`"` + b64(sum[:16]) + `"`}, // strong, of the content alone: equal on every replica
		length:       []string{strconv.Itoa(len(body))},
	}
}

// cacheControl spells the header of RFC 9111 and RFC 5861.
func cacheControl(c keystore.Cache) []string {
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	return []string{fmt.Sprintf("public, max-age=%d, stale-while-revalidate=%d, stale-if-error=%d",
		seconds(c.MaxAge), seconds(c.StaleWhileRevalidate), seconds(c.StaleIfError))}
}

// write answers a GET or HEAD with the document, or with 304 when the client has it, and returns the status.
func (d *Document) write(w http.ResponseWriter, r *http.Request) int {
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
		w.Write(d.body) //nolint:errcheck // the client went away: nobody is left to tell
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
