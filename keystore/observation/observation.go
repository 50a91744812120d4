// Package observation keeps what was seen at issuers' public URLs, and read back of uploaded JWKS, as evidence for the gates of
// package keystore.
//
// A [Record] is a document of its own, one for each issuer URL and vantage (a named place that looks) and for each upload, whose
// name stands in place of the issuer URL (versions that know no uploads pass over it), and for each relying party that shows its
// fetches, in a store of its own: anyone who may observe must not be able to publish a key, and an observation changes no key set. Anyone who may write
// here can make a gate open too early. Servers and mirrors never read it.
package observation

import (
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
)

// Look is what relying parties were served for some seconds at every address of one issuer URL.
type Look struct {
	Start       time.Time `json:"start"`
	End         time.Time `json:"end"`
	Addresses   []string  `json:"addresses"`         // that were asked, as HOST:PORT
	Origins     []string  `json:"origins,omitempty"` // those of them that the policy names as origins
	Answers     int       `json:"answers"`           // JWKS that arrived, each over a connection of its own
	Keys        []Key     `json:"keys"`              // that every one of them had
	Gaps        []string  `json:"gaps,omitempty"`    // why relying parties may be served something else, a sentence each; none = complete
	Lifetimes             // of each the longest that an answer had
	SharedCache string    `json:"sharedCache,omitempty"` // the header that showed a shared cache
	ClockAhead  *Offset   `json:"clockAhead,omitempty"`  // this machine's clock beyond the server's; nil = not known

	Upload *Upload `json:"upload,omitempty"` // of a JWKS that was read back from whom it is uploaded to; nil = of an issuer URL
}

// Lifetimes is for how long the headers of an answer allow a copy of it to be handed out.
type Lifetimes struct {
	MaxAge               keystore.Duration `json:"maxAge"`
	StaleWhileRevalidate keystore.Duration `json:"staleWhileRevalidate,omitempty"`
	StaleIfError         keystore.Duration `json:"staleIfError,omitempty"`
}

// LifetimesOf returns c as documents have it.
func LifetimesOf(c keystore.Cache) Lifetimes {
	return Lifetimes{keystore.Duration(c.MaxAge), keystore.Duration(c.StaleWhileRevalidate), keystore.Duration(c.StaleIfError)}
}

// Cache returns l as gates take it.
func (l Lifetimes) Cache() keystore.Cache {
	return keystore.Cache{MaxAge: time.Duration(l.MaxAge), StaleWhileRevalidate: time.Duration(l.StaleWhileRevalidate), StaleIfError: time.Duration(l.StaleIfError)}
}

// Longest returns of each the longer one.
func (l Lifetimes) Longest(o Lifetimes) Lifetimes { return LifetimesOf(l.Cache().Longest(o.Cache())) }

// Offset is a difference of two clocks, which may be negative. Documents spell it as they do a [keystore.Duration].
type Offset time.Duration

// MarshalText implements encoding.TextMarshaler.
func (o Offset) MarshalText() ([]byte, error) { return []byte(time.Duration(o).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Offset) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*o = Offset(d)
	return err
}

// Key is a key as it was published. A kid is a name that anybody can give to a key; the fingerprint is the key.
type Key struct {
	ID          keystore.KeyID       `json:"kid"`
	Fingerprint keystore.Fingerprint `json:"fingerprint"`
}

// Complete reports whether every answer that a relying party could have got was seen.
func (l Look) Complete() bool { return len(l.Gaps) == 0 }

// ClockGap returns why the dates of l must not be believed, as a sentence; empty if its clock is not known to be wrong.
func (l Look) ClockGap() string {
	if l.ClockAhead == nil || time.Duration(*l.ClockAhead).Abs() <= gate.ClockTolerance {
		return ""
	}
	return "the clocks of who observed and of the issuer's server differ by " + time.Duration(*l.ClockAhead).Abs().String()
}

// servers returns the addresses at which servers of ours answer, each of which may be behind the others: the origins if the
// policy names some, else all addresses. Those of a shared cache are none, since they change all the time, and what an edge
// may still hold is counted anyway.
func (l Look) servers(cached bool) []string {
	if len(l.Origins) > 0 {
		return l.Origins
	}
	if cached || l.SharedCache != "" {
		return nil
	}
	return l.Addresses
}

// Record is what one vantage has seen of one issuer URL, or what was read back of one upload.
type Record struct {
	KeySet  keystore.Name `json:"keySet"`
	Issuer  string        `json:"issuer"`
	Vantage string        `json:"vantage"`

	Seen         []Seen     `json:"seen"`              // the keys of the current run of looks
	Complete     time.Time  `json:"complete,omitzero"` // the end of the latest complete look
	Latest       Look       `json:"latest"`            // complete or not
	MaxAges      []Declared `json:"maxAges,omitempty"` // what answers allowed caches
	SharedCaches []Sign     `json:"sharedCaches,omitempty"`

	Newest *Version `json:"newest,omitempty"` // the newest version of the key set that was uploaded, or that keypost watch read; nil = none
	Failed *Failed  `json:"failed,omitempty"` // the last try to upload or to read back; nil = it was read back

	Fetched *Fetched `json:"fetched,omitempty"` // the last fetch that the relying party shows; nil = of no relying party
}

// Fetched is when a relying party, whose name stands in place of the issuer URL, shows that it last fetched the keys.
type Fetched struct {
	At   time.Time `json:"at"`
	Read time.Time `json:"readAt"`
	By   string    `json:"by"` // who read it
}

// Seen is a key that every answer had since the end of a complete look.
type Seen struct {
	Key
	Since time.Time `json:"since"`
	At    []string  `json:"at,omitempty"` // the addresses of servers at which it was seen
}

// Declared is what a look's answers allowed caches, and when they did last.
type Declared struct {
	Lifetimes
	At time.Time `json:"at"`
}

// Sign is a header that showed a shared cache, and when it did last.
type Sign struct {
	Header string    `json:"header"`
	At     time.Time `json:"at"`
}

const (
	// Memory is how long what answers allow caches and the sign of a shared cache count that no answer has shown since: longer than any
	// lifetime and any edgeHold that a policy may have.
	Memory = 31 * 24 * time.Hour
	// turnedBack is how far before the latest look another one may end for two observers of one vantage to overlap.
	// Beyond it, the clock of one of them is wrong, and nobody knows which: the record starts over.
	turnedBack = 30 * time.Minute
	// most bounds each of the two lists.
	most = 16
	// mostServers bounds Seen.At.
	mostServers = 256
)

// With returns the record after another look.
//
// A complete look begins the run of each key that all its answers had. One answer without the key ends it, in whatever
// look. An incomplete look does neither to a key that all its answers had, so that a lost packet does not start a day's
// wait again. A look that began before the latest one ended adds nothing but ends runs: two observers of one vantage may
// overlap. A server that was not asked before ([Look.servers]) begins the runs anew, since it may have come to the key a
// moment ago: a replica that was taken into the DNS, or a new origin. One that had the key once keeps it.
// One that ended long before the latest shows that a clock was ahead, or is behind now: all runs end, or a record
// from a day that is still to come would be the latest until that day.
//
// The dates of a look whose clock is known to be off count for nothing: it is incomplete, and takes the dates of the latest
// one. A look that shows no clock counts as off after one that was: a shared cache hides the server's Date.
func (r Record) With(l Look) Record {
	if l.Answers == 0 || l.ClockAhead == nil && r.Latest.ClockGap() != "" {
		l.ClockAhead = r.Latest.ClockAhead
	}
	at := l.End // when it saw what it says of caches; too late is safe
	if off := l.ClockGap(); off != "" {
		for _, t := range []time.Time{l.End.Add(-time.Duration(*l.ClockAhead)), r.Latest.End} {
			if t.After(at) {
				at = t
			}
		}
		l.Gaps = append(slices.Clone(l.Gaps), off)
		l.Start, l.End = r.Latest.Start, r.Latest.End
	}
	back := r.Latest.End.Sub(l.End) > turnedBack
	if back {
		r.Seen, r.Complete, r.Latest = nil, time.Time{}, Look{}
	}
	begins := l.Complete() && !l.End.Before(r.Latest.End) && !back // else a look that was recorded late would begin a run too early
	servers := l.servers(len(r.SharedCaches) > 0)
	var run []Seen
	for _, k := range l.Keys {
		s := Seen{Key: k}
		if i := slices.IndexFunc(r.Seen, func(s Seen) bool { return s.Key == k }); i >= 0 {
			s = r.Seen[i]
		}
		fresh := slices.DeleteFunc(slices.Clone(servers), func(a string) bool { return slices.Contains(s.At, a) })
		s.At = slices.Concat(s.At, fresh)
		s.At = s.At[max(0, len(s.At)-mostServers):]
		switch {
		case !s.Since.IsZero() && len(fresh) == 0:
			run = append(run, s)
		case begins:
			s.Since = l.End
			run = append(run, s)
		}
	}
	if l.Answers == 0 { // nobody said that a key is gone
		run = r.Seen
	}
	r.Seen, r.Failed = run, nil
	r.MaxAges = declared(r.MaxAges, l, at)
	r.SharedCaches = signs(r.SharedCaches, l, at)
	if l.Complete() && l.End.After(r.Complete) {
		r.Complete = l.End
	}
	if !l.End.Before(r.Latest.End) {
		r.Latest = l
	}
	return r
}

// declared adds what l saw at a time. It leaves out what others allow for as long and allowed as late.
func declared(was []Declared, l Look, at time.Time) []Declared {
	all := slices.DeleteFunc(slices.Clone(was), func(d Declared) bool { return l.End.Sub(d.At) > Memory })
	if l.Answers > 0 {
		all = append(all, Declared{l.Lifetimes, at})
	}
	slices.SortStableFunc(all, func(a, b Declared) int { return b.At.Compare(a.At) })
	var kept []Declared
	for _, d := range all { // the latest first
		covers := func(k Declared) bool { return k.Longest(d.Lifetimes) == k.Lifetimes }
		switch n := len(kept); {
		case slices.ContainsFunc(kept, covers):
		case n == most: // no more are told apart
			kept[n-1].Lifetimes = kept[n-1].Longest(d.Lifetimes)
		default:
			kept = append(kept, d)
		}
	}
	return kept
}

// signs adds the one that l saw at a time.
func signs(was []Sign, l Look, at time.Time) []Sign {
	all := slices.DeleteFunc(slices.Clone(was), func(s Sign) bool { return s.Header == l.SharedCache || l.End.Sub(s.At) > Memory })
	if l.SharedCache != "" {
		all = append(all, Sign{l.SharedCache, at})
	}
	return all[max(0, len(all)-most):]
}

// Of returns what the records say about a key, for a gate. required are the issuer URL and vantage of every record that
// has to have it. Other records count for what they have seen of caches, not for the key.
func Of(key Key, records []Record, required []Subject) keystore.Observed {
	var e keystore.Observed
	for _, r := range records {
		for _, d := range r.MaxAges {
			e.Cache = e.Cache.Longest(d.Cache())
		}
		if n := len(r.SharedCaches); n > 0 {
			e.SharedCache = r.SharedCaches[n-1].Header
		}
	}
	for _, place := range required {
		i := slices.IndexFunc(records, func(r Record) bool { return r.Subject() == place })
		if i < 0 {
			e.Without = append(e.Without, place.String())
			continue
		}
		r := records[i]
		if c := r.Latest.ClockAhead; c != nil && time.Duration(*c).Abs() > time.Duration(e.ClockAhead).Abs() {
			e.ClockAhead = keystore.Duration(*c)
		}
		s := slices.IndexFunc(r.Seen, func(s Seen) bool { return s.Key == key })
		if s < 0 || r.Complete.IsZero() {
			e.Without = append(e.Without, place.String())
			continue
		}
		if r.Seen[s].Since.After(e.Since) {
			e.Since = r.Seen[s].Since
		}
		if r.Complete.After(e.Newest) {
			e.Newest = r.Complete
		}
		if e.Fresh.IsZero() || r.Complete.Before(e.Fresh) {
			e.Fresh = r.Complete
		}
	}
	if len(e.Without) > 0 || len(required) == 0 {
		e.Since, e.Fresh, e.Newest = time.Time{}, time.Time{}, time.Time{}
	}
	e.Uploads = Uploads(records)
	for _, r := range records {
		if f := r.Fetched; f != nil && r.Vantage == "" {
			e.Fetches = append(e.Fetches, gate.Fetch{Party: r.Issuer, Read: f.Read, At: f.At})
		}
	}
	return e
}

// Subject is what a record is about: an issuer URL and the vantage that looks at it, or an upload.
type Subject struct{ Issuer, Vantage string }

// Subject returns whose record r is.
func (r Record) Subject() Subject { return Subject{r.Issuer, r.Vantage} }

func (p Subject) String() string {
	if p.Vantage == "" {
		return p.Issuer
	}
	return p.Issuer + " from " + p.Vantage
}
