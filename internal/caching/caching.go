// Package caching reads what HTTP headers say to caches, and of caches.
package caching

import (
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
)

// Read reads a Cache-Control value (RFC 9111, section 5.2.2): the directive that forbids caching, if any, and
// max-age.
func Read(value string) (forbidden string, maxAge time.Duration, hasAge bool) {
	for name, arg := range directives(value) {
		switch name {
		case "no-store", "no-cache", "private":
			forbidden = name
		case "max-age":
			age, whole := seconds(arg)
			if !whole {
				age = 0 // RFC 9111, section 4.2.1: an invalid freshness is stale
			}
			if maxAge, hasAge = age, true; age == 0 {
				forbidden = "max-age=0"
			}
		}
	}
	return forbidden, maxAge, hasAge
}

// directives yields the names, in lower case, and arguments of a Cache-Control value, the latter without quotes.
func directives(value string) iter.Seq2[string, string] {
	return func(yield func(name, arg string) bool) {
		for d := range strings.SplitSeq(value, ",") {
			name, arg, _ := strings.Cut(d, "=")
			if !yield(strings.ToLower(strings.TrimSpace(name)), strings.Trim(arg, " \t\"")) {
				return
			}
		}
	}
}

// mostSeconds is what a number of seconds counts as that is larger (RFC 9111, section 1.2.2).
const mostSeconds = 1 << 31

// seconds reads an argument as far as it is a number, and reports whether it is nothing else.
func seconds(arg string) (d time.Duration, whole bool) {
	n := time.Duration(0)
	for _, digit := range arg {
		if digit < '0' || digit > '9' {
			return n * time.Second, false
		}
		n = min(n*10+time.Duration(digit-'0'), mostSeconds)
	}
	return n * time.Second, arg != ""
}

// longest returns the largest value of the directives with one of these names in all Cache-Control lines, each as far as it is a
// number, and whether there is one.
func longest(h http.Header, names ...string) (d time.Duration, has bool) {
	for name, arg := range directives(strings.Join(h.Values("Cache-Control"), ",")) {
		if slices.Contains(names, name) {
			n, _ := seconds(arg)
			d, has = max(d, n), true
		}
	}
	return d, has
}

// Stale returns for how long after that a cache may go on handing out an answer with these headers: while it fetches another one,
// and while it cannot get one (RFC 5861).
func Stale(h http.Header) (whileRevalidate, ifError time.Duration) {
	whileRevalidate, _ = longest(h, "stale-while-revalidate")
	ifError, _ = longest(h, "stale-if-error")
	return whileRevalidate, ifError
}

// Longest returns how long the most lenient cache may take an answer with these headers, which came at a time, to be fresh: the largest max-age or s-maxage of
// all Cache-Control lines, each as far as it is a number; without a max-age, Expires counts too (RFC 9111, section 4.2.1).
func Longest(h http.Header, at time.Time) time.Duration {
	d, _ := longest(h, "max-age", "s-maxage")
	if _, hasAge := longest(h, "max-age"); hasAge {
		return d
	}
	for _, value := range h.Values("Expires") {
		expires, err := http.ParseTime(value)
		if err != nil {
			continue // it counts as past
		}
		d = max(d, expires.Sub(at))
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			d = max(d, expires.Sub(date))
		}
	}
	return min(d, mostSeconds*time.Second)
}

// Shared returns the header that gives a shared cache (a CDN) away, as `Name: value`; empty when
// there is none.
func Shared(h http.Header) string {
	for _, name := range []string{"Age", "Via", "X-Cache", "X-Cache-Hits", "X-Served-By", "Cf-Cache-Status", "X-Amz-Cf-Id", "X-Varnish", "Cache-Status"} {
		if value := h.Get(name); value != "" {
			return name + ": " + text.OneLine(value, 400)
		}
	}
	return ""
}
