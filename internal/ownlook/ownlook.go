// Package ownlook tells the requests of those who look at documents to see how they are served from the requests of those
// who rely on them: else every issuer that is watched would seem to be in use.
package ownlook

import (
	"net/http"
	"strings"
)

const agent = "keypost-look"

// Claim makes a request with these headers one of keypost's own. A CDN may replace the header, and then it is anybody's.
func Claim(h http.Header) { h.Set("User-Agent", agent) }

// Is reports whether a request with these headers is one of keypost's own. It is for statistics: anybody may send the same.
func Is(h http.Header) bool {
	sent := h["User-Agent"]
	return len(sent) == 1 && strings.HasPrefix(sent[0], agent)
}
