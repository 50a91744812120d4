// Package policy is what a key set declares of the world around it: how long copies of its documents may live, who reads them, and how
// long tokens last. It has the arithmetic of caches that the gates count with, and knows no key.
package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore/party"
)

// Duration is a time.Duration that documents spell as Go does ("5m", "1h30m").
type Duration time.Duration

// DurationPtr returns a pointer to d as a Duration. A policy has pointers since zero is not the same as undeclared.
func DurationPtr(d time.Duration) *Duration { v := Duration(d); return &v }

// String drops the zero units that time.Duration prints: 1h0m0s is 1h.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalJSON writes the string form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads the string form only: a bare number would leave its unit to guessing.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return errors.New("a duration is a string with its unit, such as 5m")
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration: write it with its unit, such as 5m", printable(s))
	}
	*d = Duration(v)
	return nil
}

// Cache has the directives of the Cache-Control header of every document (RFC 9111, RFC 5861).
type Cache struct {
	MaxAge, StaleWhileRevalidate, StaleIfError time.Duration
}

// Longest returns of each directive the longer one.
func (c Cache) Longest(o Cache) Cache {
	return Cache{max(c.MaxAge, o.MaxAge), max(c.StaleWhileRevalidate, o.StaleWhileRevalidate), max(c.StaleIfError, o.StaleIfError)}
}

// bounded returns c within bounds: what adds it up must not overflow, and open a gate in the past.
func (c Cache) bounded() Cache {
	c = c.Longest(Cache{})
	return Cache{min(c.MaxAge, MaxSeen), min(c.StaleWhileRevalidate, MaxSeen), min(c.StaleIfError, MaxSeen)}
}

// DefaultCache returns the lifetimes for a key set whose policy declares none, if the server's configuration has none
// either. Five minutes keep a rotation short. Less than a minute would let AWS STS fail under load.
func DefaultCache() Cache {
	return Cache{MaxAge: 5 * time.Minute, StaleWhileRevalidate: 5 * time.Minute, StaleIfError: 24 * time.Hour}
}

// Reach is who can read an issuer's documents, where that is not everybody. Whether the addresses are public is [Policy.Private].
type Reach string

// ReachCopies is that nobody can: relying parties go by the JWKS that was uploaded to them, so that the gates ask for those
// uploads and for no look at a public address.
const ReachCopies Reach = "copies"

// Policy declares how long copies of the documents may live, who reads them, and how long tokens last. A nil or empty
// member is undeclared: cache lifetimes then come from the server's configuration, and for everything else the gates
// assume the worst or stay closed.
type Policy struct {
	MaxAge               *Duration `json:"maxAge,omitempty"`
	StaleWhileRevalidate *Duration `json:"staleWhileRevalidate,omitempty"`
	StaleIfError         *Duration `json:"staleIfError,omitempty"`
	EdgeHold             *Duration `json:"edgeHold,omitempty"`       // longest total age at which any shared cache may hand out an old copy
	RelyingParties       []string  `json:"relyingParties,omitempty"` // aws, gcp, entra, vault, kube-apiserver, or another name; or an upload (KIND-upload:PLACE)
	TokenLifetime        *Duration `json:"tokenLifetime,omitempty"`  // longest life of a token with an audience outside the cluster
	Origins              []string  `json:"origins,omitempty"`        // host[:port] of every origin behind a shared cache
	Private              bool      `json:"private,omitempty"`        // the issuer is not on the public internet
	Reach                Reach     `json:"reach,omitempty"`          // copies: nobody reads the documents but anyone who uploads them
	ObserveFrom          []string  `json:"observeFrom,omitempty"`    // vantages that all have to see a key before it may sign; none = the unnamed one
	HeldUntil            []Held    `json:"heldUntil,omitempty"`      // lowered lifetimes that still bind copies and tokens out there
}

// Held records the lifetimes from before a policy was lowered. The gates use them until the last copy (Edge, Client) or
// token from that time has expired. Copies and tokens have separate lines: a token of a year must not delay a promotion.
type Held struct {
	Until         time.Time `json:"until"`
	Edge          Duration  `json:"edge,omitempty"`
	Client        Duration  `json:"client,omitempty"`
	TokenLifetime Duration  `json:"tokenLifetime,omitempty"`
}

// Bounds of what a policy may declare.
const (
	minMaxAge  = time.Minute    // less and AWS STS fetches for nearly every call, and fails when throttled
	hardMaxAge = 24 * time.Hour //
	maxStale   = 7 * 24 * time.Hour
	maxToken   = 366 * 24 * time.Hour  // kube-apiserver extends tokens to one year at most
	MaxSeen    = 1 << 31 * time.Second // RFC 9111, section 1.2.2: what a larger max-age counts as
)

// Check returns an error if a value is out of bounds. Development key sets may have any maxAge.
func (p Policy) Check(dev bool) error {
	if m := p.MaxAge; m != nil && !dev && (time.Duration(*m) < minMaxAge || time.Duration(*m) > hardMaxAge) {
		return fmt.Errorf("policy: maxAge is %v; it must be from %v to %v", m, Duration(minMaxAge), Duration(hardMaxAge))
	}
	for _, b := range []struct {
		name string
		d    *Duration
		most time.Duration
	}{
		{"maxAge", p.MaxAge, MaxSeen}, {"staleWhileRevalidate", p.StaleWhileRevalidate, maxStale}, {"staleIfError", p.StaleIfError, maxStale},
		{"edgeHold", p.EdgeHold, maxStale}, {"tokenLifetime", p.TokenLifetime, maxToken},
	} {
		if b.d != nil && (*b.d < 0 || time.Duration(*b.d) > b.most) {
			return fmt.Errorf("policy: %s is %v; it must be from 0s to %v", b.name, b.d, Duration(b.most))
		}
	}
	for _, h := range p.HeldUntil {
		if longest := Duration(MaxSeen); min(h.Edge, h.Client, h.TokenLifetime) < 0 || max(h.Edge, h.Client, h.TokenLifetime) > longest {
			return fmt.Errorf("policy: heldUntil holds less than 0s or more than %v", longest)
		}
	}
	for _, name := range p.RelyingParties {
		if err := party.Check(name); err != nil {
			return fmt.Errorf("policy: relying party %q: %w", printable(name), err)
		}
	}
	// With copies only uploads are read: of anybody else would be known only by a look that nobody makes.
	if copies := p.Reach == ReachCopies; p.Reach != "" && !copies || copies && (len(p.RelyingParties) == 0 || len(p.Uploads()) < len(p.RelyingParties)) {
		return fmt.Errorf("policy: reach is %q; leave it out, or write copies where every one of the relyingParties holds an upload, such as %s", printable(string(p.Reach)), party.Example)
	}
	for _, vantage := range p.ObserveFrom {
		if !dnsname.IsLabel(vantage) {
			return fmt.Errorf("policy: observeFrom has %q, which is not a name of a vantage such as eu or office", printable(vantage))
		}
	}
	return checkOrigins(p.Origins)
}

func checkOrigins(origins []string) error {
	for _, o := range origins {
		if o == "" || strings.ContainsAny(o, "/@?# \t\r\n") {
			return fmt.Errorf("policy: origin %q is not a host or host:port", printable(o))
		}
	}
	return nil
}

// Cache returns the lifetimes to serve: the policy's own, and those of fallback where it has none.
func (p Policy) Cache(fallback Cache) Cache {
	c := fallback
	for _, m := range []struct {
		to   *time.Duration
		from *Duration
	}{{&c.MaxAge, p.MaxAge}, {&c.StaleWhileRevalidate, p.StaleWhileRevalidate}, {&c.StaleIfError, p.StaleIfError}} {
		if m.from != nil {
			*m.to = time.Duration(*m.from)
		}
	}
	return c
}

// Uploads returns the relying parties that hold an upload.
func (p Policy) Uploads() []string { return party.Uploads(p.RelyingParties) }

// Client returns the longest time for which a relying party may use its own copy. seen is what answers allowed caches.
func (p Policy) Client(seen Cache) time.Duration {
	longest := p.Cache(DefaultCache()).Longest(seen).MaxAge
	if len(p.RelyingParties) == 0 {
		return max(longest, 24*time.Hour)
	}
	for _, name := range p.RelyingParties {
		if !party.IsUpload(name) { // that fetches nothing; its own gate counts from the upload
			longest = max(longest, party.Keeps(name))
		}
	}
	return longest
}

// Edge returns the highest age at which a shared cache may hand out an old copy. seen is what answers allowed caches.
func (p Policy) Edge(seen Cache) time.Duration {
	c := p.Cache(DefaultCache()).Longest(seen)
	e := c.MaxAge + c.StaleWhileRevalidate + c.StaleIfError
	if p.EdgeHold != nil {
		e = max(e, time.Duration(*p.EdgeHold))
	}
	return e
}

// Lifetime returns how long tokens live by the policy; 0 if it does not say.
func (p Policy) Lifetime() time.Duration {
	if p.TokenLifetime == nil {
		return 0
	}
	return time.Duration(*p.TokenLifetime)
}

// Term is one summand or bound of a gate's arithmetic, to print.
type Term struct {
	What     string
	Duration time.Duration
}

// MaxPoll is the longest time between two listings of a store by whatever serves it: servers and mirrors refuse another
// configuration, since gates cannot know it.
const MaxPoll = 15 * time.Second

// Convergence is how long a change of the store may take to reach every replica of the server: a poll of a remote store,
// and a minute for mirrors, replicas and the poll of their directories.
const Convergence = MaxPoll + time.Minute

// ClockSkew is how long after its exp a token may still be accepted: AWS does for 5 minutes, kube-apiserver for 1 minute.
const ClockSkew = 6 * time.Minute

// CopiesRunOut returns when the last cached copy of what was published until at has expired, with the arithmetic.
func (p Policy) CopiesRunOut(convergence time.Duration, at time.Time, seen Cache) (time.Time, []Term) {
	seen = seen.bounded()
	edge, client := p.Edge(seen), p.Client(seen)
	until := at.Add(convergence + edge + client)
	terms := []Term{{"convergence", convergence}, {"edge", edge}, {"client", client}}
	if edge > p.Edge(Cache{}) {
		terms[1].What = "edge (answers allow more than the policy)"
	}
	for _, h := range p.HeldUntil {
		e, c := max(edge, time.Duration(h.Edge)), max(client, time.Duration(h.Client))
		held := earlier(at.Add(convergence+e+c), h.runsOut(edge, client))
		if held.After(until) {
			until, terms = held, []Term{{"convergence", convergence}, {"edge (before the policy was lowered)", e}, {"client (before the policy was lowered)", c}}
		}
	}
	return until, terms
}

// ReplaceBy returns next with lines in HeldUntil for the values of p that it lowers: the gates use them as long as copies
// or tokens from p's time may exist.
func (p Policy) ReplaceBy(next Policy, now time.Time) Policy {
	edge, client, token := p.Edge(Cache{}), p.Client(Cache{}), p.Lifetime()
	next = next.Clone()
	next.HeldUntil = slices.DeleteFunc(slices.Clone(p.HeldUntil), func(h Held) bool { return !h.runsOut(edge, client).After(now) })
	if edge > next.Edge(Cache{}) || client > next.Client(Cache{}) {
		next.HeldUntil = append(next.HeldUntil, Held{Until: now.Add(Convergence + edge + client), Edge: Duration(edge), Client: Duration(client)})
	}
	if token > next.Lifetime() {
		next.HeldUntil = append(next.HeldUntil, Held{Until: now.Add(token + ClockSkew), TokenLifetime: Duration(token)})
	}
	return next
}

// Changes returns what next changes, for a line of history, with the values.
func (p Policy) Changes(next Policy) string {
	var all []string
	was, is := p.declared(), next.declared()
	names := slices.AppendSeq(slices.Collect(maps.Keys(was)), maps.Keys(is))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if was[name] != is[name] {
			all = append(all, fmt.Sprintf("%s %s, was %s", name, cmp.Or(is[name], "not declared"), cmp.Or(was[name], "not declared")))
		}
	}
	return strings.Join(all, "; ")
}

// declared returns the members that are declared, but for what is held, as text for people.
func (p Policy) declared() map[string]string {
	p.HeldUntil = nil
	var members map[string]json.RawMessage
	data, _ := json.Marshal(p) // no policy is without a form in JSON
	_ = json.Unmarshal(data, &members)
	all := map[string]string{}
	for name, value := range members {
		all[name] = text.OneLine(strings.NewReplacer(`"`, "", "[", "", "]", "", ",", ", ").Replace(string(value)), 200)
	}
	return all
}

// runsOut returns when the last copy or token from before the lowering has expired. An edge or client raised since (a
// relying party declared late) prolongs it, since it was true of those copies all along.
func (h Held) runsOut(edge, client time.Duration) time.Time {
	if h.Edge == 0 && h.Client == 0 {
		return h.Until
	}
	return h.Until.Add(max(0, edge-time.Duration(h.Edge)) + max(0, client-time.Duration(h.Client)))
}

// Clone returns a copy that shares nothing with p.
func (p Policy) Clone() Policy {
	for _, d := range []**Duration{&p.MaxAge, &p.StaleWhileRevalidate, &p.StaleIfError, &p.EdgeHold, &p.TokenLifetime} {
		if *d != nil {
			*d = DurationPtr(time.Duration(**d))
		}
	}
	p.RelyingParties, p.Origins = slices.Clone(p.RelyingParties), slices.Clone(p.Origins)
	p.ObserveFrom, p.HeldUntil = slices.Clone(p.ObserveFrom), slices.Clone(p.HeldUntil)
	return p
}

// IsZero reports whether nothing is declared.
func (p Policy) IsZero() bool {
	data, err := json.Marshal(p)
	return err == nil && string(data) == "{}"
}

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }

// printable keeps control characters and text direction marks of the input out of terminals and logs, and long ones short.
func printable(s string) string { return text.OneLine(s, 64) }
