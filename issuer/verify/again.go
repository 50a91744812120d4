package verify

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/caching"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
)

// answers returns every answer with the JWKS, the first one included.
func (l look) answers() []response {
	var all []response
	for _, r := range append([]reply{l.JWKS}, l.Again...) {
		if r.Asked && r.Err == nil && r.Status == http.StatusOK {
			all = append(all, r.response)
		}
	}
	return all
}

// checkAgain looks at the further answers with the JWKS, each of which another replica behind the address may have given.
// It returns the documents whose keys are not those of the first answer, each once.
func (v *visit) checkAgain() []jwksDocument {
	var others []jwksDocument
	broken, example := 0, error(nil)
	packed := func(r reply) int { // later: what both have is named as that of the plain one
		if strings.HasSuffix(r.URL, inGzip) {
			return 1
		}
		return 0
	}
	for _, r := range slices.SortedStableFunc(slices.Values(v.look.Again), func(a, b reply) int { return packed(a) - packed(b) }) {
		_, err := r.trouble()
		var read jwksDocument
		if err == nil {
			read, err = v.readAgain(r.response)
		}
		if err != nil {
			broken++
			example = cmp.Or(example, err)
			continue
		}
		same := func(d jwksDocument) bool { return sameKeys(d.keys, read.keys) && d.unread == read.unread }
		if !sameKeys(read.keys, v.published) && !slices.ContainsFunc(others, same) {
			others = append(others, read)
		}
	}
	if broken > 0 && v.read {
		v.Fail("replica-broken", "%d of %d answers over new connections: %v", broken, len(v.look.Again)+1, example)
	}
	v.checkAge()
	return others
}

// readAgain reads a JWKS without a word about its keys: those were said of the first answer.
func (v *visit) readAgain(a response) (jwksDocument, error) {
	set, err := parseJWKS(a)
	if err != nil {
		return jwksDocument{}, err
	}
	quiet := &visit{o: v.o, look: v.look, stored: v.stored}
	return quiet.checkKeys(a.URL, set), nil
}

// variety says how often which keys were answered.
func (v *visit) variety(others []jwksDocument) string {
	lists := append([]jwksDocument{{keys: v.published}}, others...)
	plain, packed := make([]int, len(lists)), make([]int, len(lists))
	all, allPacked := 0, 0
	for _, a := range v.look.answers() {
		read, err := v.readAgain(a)
		if err != nil {
			continue
		}
		counts := plain
		if all++; strings.HasSuffix(a.URL, inGzip) {
			allPacked++
			counts = packed
		}
		for i, d := range lists {
			if sameKeys(read.keys, d.keys) {
				counts[i]++
			}
		}
	}
	var parts []string
	for i, d := range lists {
		what := "%d have %s"
		if i == 0 {
			what = "%d answers over new connections have %s"
		}
		part := fmt.Sprintf(what, plain[i]+packed[i], cmp.Or(kidList(d.keys), "no key"))
		if plain[i] == 0 && packed[i] == allPacked && allPacked > 1 {
			part += ", which are all that were asked for with Accept-Encoding: gzip"
		}
		if packed[i] == 0 && plain[i] == all-allPacked && plain[i] > 1 {
			part += ", which are all that were asked for without Accept-Encoding"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// checkAge reports copies that a shared cache holds for longer than the document allows (RFC 9111, section 5.1; RFC
// 5861). Between max-age and stale-if-error it may do so only because its origin does not answer.
func (v *visit) checkAge() {
	for _, a := range append(v.look.replies(), v.look.answers()...) {
		seconds, err := strconv.Atoi(a.Header.Get("Age"))
		if err != nil || a.Status != http.StatusOK {
			continue
		}
		_, maxAge, hasAge := caching.Read(strings.Join(a.Header.Values("Cache-Control"), ", "))
		whileRevalidate, ifError := caching.Stale(a.Header)
		fresh := maxAge + whileRevalidate
		age := time.Duration(seconds) * time.Second
		switch {
		case !hasAge || age <= fresh:
			continue
		case age <= maxAge+ifError:
			v.Warn("cache-alone", "%s is %v old in a cache, which may hold it for %v while its origin answers", a.URL, keystore.Duration(age), keystore.Duration(fresh))
		case v.stored != nil && v.stored.Policy().EdgeHold != nil && age <= time.Duration(*v.stored.Policy().EdgeHold):
			continue // the policy says so, and the gates count on it
		default:
			hold := keystore.Duration(max(24*time.Hour, (age + time.Hour).Truncate(time.Hour)))
			v.FailWith("cache-stale", finding.RepairWith("cache-stale", "24h", hold.String()), "%s is %v old in a cache, which may hold it for %v", a.URL, keystore.Duration(age), keystore.Duration(fresh))
		}
		return
	}
}

// checkETags compares the validators of all answers: caches go by them alone. Another origin may have ETags of its own.
func (v *visitor) checkETags(looks []look) {
	bodies, tags := map[string]string{}, map[string]string{} // by URL and ETag, by origin, URL and body
	unstable := ""
	for _, l := range looks {
		for _, a := range append(l.replies(), l.answers()...) {
			tag := strings.TrimPrefix(a.Header.Get("ETag"), "W/")
			if tag == "" || a.Status != http.StatusOK {
				continue
			}
			url, body := a.URL, string(a.Body)
			if a.Header.Get("Content-Encoding") == "" { // else it is another representation, with a tag of its own
				url = strings.TrimSuffix(url, inGzip)
			}
			if other, known := bodies[url+" "+tag]; known && other != body {
				v.Fail("etag-stuck", "%s has the ETag %s with two different contents", url, printable(tag))
				return
			}
			if other, known := tags[list(l.Names)+" "+url+" "+body]; known && other != tag {
				unstable = fmt.Sprintf("%s has the ETags %s and %s with the same content", url, printable(other), printable(tag))
			}
			bodies[url+" "+tag], tags[list(l.Names)+" "+url+" "+body] = body, tag
		}
	}
	if unstable != "" {
		v.Warn("etag-unstable", "%s", unstable)
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
		for _, a := range append(l.replies(), l.Head.response) {
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
