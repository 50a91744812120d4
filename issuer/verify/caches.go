package verify

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/caching"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
)

// checkAge reports copies that a shared cache holds for longer than the document or the policy allows (RFC 9111, section 5.1; RFC
// 5861).
func (v *visit) checkAge() {
	for _, a := range v.look.replies() {
		seconds, err := strconv.Atoi(a.Header.Get("Age"))
		_, maxAge, hasAge := caching.Read(strings.Join(a.Header.Values("Cache-Control"), ", "))
		if err != nil || a.Status != http.StatusOK || !hasAge {
			continue
		}
		whileRevalidate, ifError := caching.Stale(a.Header)
		allowed := maxAge + max(whileRevalidate, ifError)
		if v.stored != nil && v.stored.Policy().EdgeHold != nil { // the gates count on it
			allowed = max(allowed, time.Duration(*v.stored.Policy().EdgeHold))
		}
		if age := time.Duration(seconds) * time.Second; age > allowed {
			hold := keystore.Duration(max(24*time.Hour, (age + time.Hour).Truncate(time.Hour)))
			repair := strings.Replace(finding.CauseOf("cache-stale").Repair, "24h", hold.String(), 1)
			v.FailWith("cache-stale", repair, "%s is %v old in a cache, which may hold it for %v", a.URL, keystore.Duration(age), keystore.Duration(allowed))
			return
		}
	}
}

// checkSharedCache says which shared cache shows itself.
func (v *visitor) checkSharedCache(looks []look, stored *keystore.KeySet) {
	seen := ""
	for _, l := range looks {
		for _, a := range l.replies() {
			seen = cmp.Or(seen, caching.Shared(a.Header))
		}
	}
	switch {
	case seen == "":
	case stored != nil && stored.Policy().EdgeHold == nil:
		v.Warn("cache-undeclared", "a shared cache answered (%s), and the policy does not say for how long it may hold a copy", seen)
	default:
		v.OK("shared-cache", "a shared cache answered (%s)", seen)
	}
}

// farOff is how far this machine's clock may be from a server's: gated steps refuse beyond it.
const farOff = time.Minute

// checkClock compares this machine's clock with the Date of answers that no shared cache gave. A cache hands out the Date of its
// origin, and not every cache shows itself, so the nearest one counts.
func (v *visitor) checkClock(looks []look) {
	var nearest time.Duration
	seen := false
	for _, l := range looks {
		for _, a := range l.replies() {
			date, err := http.ParseTime(a.Header.Get("Date"))
			if err != nil || caching.Shared(a.Header) != "" {
				continue
			}
			ahead := a.At.Add(v.o.ahead).Sub(date) - a.Took/2
			if !seen || ahead.Abs() < nearest.Abs() {
				nearest, seen = ahead, true
			}
		}
	}
	rounded := keystore.Duration(nearest.Abs().Round(time.Second))
	switch {
	case !seen:
	case nearest > farOff:
		v.Fail("clock-off", "this machine's clock is %v ahead of the Date that %s answers, unless a cache that does not show itself hands out an old one", rounded, v.url.Host())
	case nearest < -farOff:
		v.Fail("clock-off", "this machine's clock is %v behind the Date that %s answers", rounded, v.url.Host())
	default:
		v.OK("clock", "this machine's clock and the server's agree")
	}
}
