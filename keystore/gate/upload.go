package gate

import (
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore/key"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/keystore/policy"
)

// Uploads is what was read back of the uploads that relying parties hold. It is the evidence of gates, as [Observed] is.
type Uploads []ReadBack

// ReadBack is what was read back of one upload.
type ReadBack struct {
	Upload     string          // as the policy names it
	At         time.Time       // when it was read last
	ClockAhead policy.Duration // the clock of who read it beyond that of the server; zero also if not known
	Keys       []ReadKey       // that it had then
}

// ReadKey is a key of an upload, and since when every reading had it.
type ReadKey struct {
	ID          key.ID
	Fingerprint key.Fingerprint
	Since       time.Time
}

// of returns what was read back of an upload; zero if nothing was.
func (u Uploads) of(upload string) ReadBack {
	i := slices.IndexFunc(u, func(r ReadBack) bool { return r.Upload == upload })
	if i < 0 {
		return ReadBack{}
	}
	return u[i]
}

// since returns since when the upload counts as having k, zero if it does not. What was there before k was published does not count.
func (r ReadBack) since(k key.Key) time.Time {
	i := slices.IndexFunc(r.Keys, func(have ReadKey) bool { return have.ID == k.ID() && have.Fingerprint == k.Fingerprint() })
	if r.At.IsZero() || i < 0 || r.Keys[i].Since.IsZero() {
		return time.Time{}
	}
	return later(r.Keys[i].Since, k.PublishedAt)
}

// uploaded adds to c why the uploads that the policy names keep a gate closed, each of which must have keys. It returns since
// when all have them.
func (g Rules) uploaded(c *closed, read Uploads, now time.Time, keys ...key.Key) (since time.Time) {
	var without, old []string
	for _, upload := range g.Policy.Uploads() {
		shown, r := text.OneLine(upload, 300), read.of(upload)
		if r.At.IsZero() {
			without = append(without, shown+", which nobody has read back here")
			continue
		}
		c.clock(shown+" was read back", r.At, r.ClockAhead, now)
		for _, k := range keys {
			has := r.since(k)
			if has.IsZero() {
				without = append(without, fmt.Sprintf("%s, read back at %s, without %s", shown, stamp(r.At), k.ID()))
				continue
			}
			opens, terms := g.uploadOpens(upload, has)
			c.until(now, NotYetError{Gate: GateCopies, Need: "a relying party may still go by what it held before the upload (" + shown + ")", Opens: opens, Terms: terms})
			since = later(since, has)
		}
		if now.Sub(r.At) > ObservationFresh {
			old = append(old, fmt.Sprintf("%s at %s", shown, stamp(r.At)))
		}
	}
	if len(without) > 0 {
		c.needs(GateCopies, "an uploaded copy may be without the key, whose tokens would be refused there ("+text.List(without, 3)+"); upload the published keys, and read them back")
	}
	if len(old) > 0 {
		c.again(GateCopies, fmt.Sprintf("an uploaded copy was read back last more than %v ago (%s), and somebody may have replaced it since; read it back again",
			policy.Duration(ObservationFresh), text.List(old, 3)))
	}
	return since
}

// uploadOpens is the arithmetic of one upload that has had a key since a time.
func (g Rules) uploadOpens(upload string, since time.Time) (time.Time, []policy.Term) {
	keeps := g.unlessDev(party.UploadKeeps(upload))
	return g.andClocks(since.Add(keeps), []policy.Term{{What: "upload", Duration: keeps}})
}
