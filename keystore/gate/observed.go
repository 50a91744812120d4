package gate

import (
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore/policy"
)

// Observed is what was seen of one key, by kid and fingerprint, at an issuer's public URLs. It is the evidence that
// [Rules.Promote] asks for. Anyone who makes it up opens the gate; what it claims can only not overflow.
type Observed struct {
	Since       time.Time       // since when every answer at every required place had the key; zero = not seen everywhere
	Fresh       time.Time       // when the required place that has not looked longest looked completely
	Newest      time.Time       // when a required place looked completely last: in the future, no other time of that place is to be believed either
	Cache       policy.Cache    // of each directive the longest that an answer had, no matter who put it there
	SharedCache string          // a header that showed a shared cache; empty = none did
	ClockAhead  policy.Duration // the clock of who looked beyond the issuer's, by the largest difference; zero also if not known
	Without     []string        // the places that do not have the key, each with the name that a person knows it by
	Uploads     Uploads         // what was read back of the uploads that relying parties hold
	Fetches     []Fetch         // what relying parties showed of their fetches, the latest reading of each
}

// Fetch is when a relying party last fetched the keys, as it shows that itself. Anthropic does: poll_status.last_fetched_at.
type Fetch struct {
	Party string    // as the policy names it
	Read  time.Time // when a person or program read that
	At    time.Time // of the last fetch, by the relying party's clock
}

// without names some of the places that do not have the key, as the end of a sentence.
func (o Observed) without() string {
	if len(o.Without) == 0 {
		return ""
	}
	var places []string
	for _, place := range o.Without {
		places = append(places, text.OneLine(place, 300))
	}
	return " (missing: " + text.List(places, 3) + ")"
}
