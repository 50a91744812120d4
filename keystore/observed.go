package keystore

import (
	"fmt"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
)

// Observed is what was seen of one key, by kid and fingerprint, at an issuer's public URLs. It is the evidence that
// [KeySet.Promote] asks for. Whoever makes it up opens the gate; what it claims can only not overflow.
type Observed struct {
	Since       time.Time // since when every answer at every required place had the key; zero = not seen everywhere
	Fresh       time.Time // when the required place that has not looked longest looked completely
	Newest      time.Time // when a required place looked completely last: in the future, no other time of that place is to be believed either
	Cache       Cache     // of each directive the longest that an answer had, whoever put it there
	CacheFrom   string    // what a refusal says of the answer that had more than any policy may; empty = none had
	SharedCache string    // a header that showed a shared cache; empty = none did
	ClockAhead  Duration  // the clock of who looked beyond the issuer's, by the largest difference; zero also if not known
	Without     []string  // the places that lack the key, each with the name that a person knows it by
	Uploads     Uploads   // what was read back of the uploads that relying parties hold
}

// since returns since when key k counts as seen, and whether it does. What was seen before k was published does not count.
func (o Observed) since(k Key) (at time.Time, seen bool) {
	return later(o.Since, k.PublishedAt), !o.Since.IsZero() && !o.Fresh.IsZero() && len(o.Without) == 0
}

// toRecord returns the ObservedAt of key k, promoted at now by what was seen of it: zero if it was not seen, or in the future,
// which only force lets pass.
func (s KeySet) toRecord(o Observed, k Key, now time.Time) time.Time {
	since, seen := o.since(k)
	seen = seen && o.clock(now) == ""
	held := s.held(o.Uploads, now, k)
	if s.policy.Reach == ReachCopies {
		since, seen = held.since, true
	}
	if since = later(since, held.since); !seen || held.lacks("", k.ID()) != nil {
		return time.Time{}
	}
	return earlier(since.UTC().Truncate(time.Second), now)
}

// clock returns what is wrong with the clocks; empty if they agree with this machine's now.
func (o Observed) clock(now time.Time) string {
	latest := later(later(o.Since, o.Fresh), o.Newest)
	switch ahead := time.Duration(o.ClockAhead); {
	case latest.After(now.Add(ClockTolerance)):
		return fmt.Sprintf("the key was observed at %s, which lies in the future by this machine's clock; check the clocks of this machine and of who observed", stamp(latest))
	case ahead > ClockTolerance:
		return fmt.Sprintf("the clock of who observed is %v ahead of the issuer's server; set the one that is wrong, and observe again", o.ClockAhead)
	case ahead < -ClockTolerance:
		return fmt.Sprintf("the clock of who observed is %v behind the issuer's server; set the one that is wrong, and observe again", Duration(ahead.Abs()))
	}
	return ""
}

// without names some of the places that lack the key, as the end of a sentence.
func (o Observed) without() string {
	const most = 3
	if len(o.Without) == 0 {
		return ""
	}
	var names []string
	for _, place := range o.Without[:min(len(o.Without), most)] {
		names = append(names, text.OneLine(place, 300))
	}
	if more := len(o.Without) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return " (missing: " + strings.Join(names, ", ") + ")"
}
