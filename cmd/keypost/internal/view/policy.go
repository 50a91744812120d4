package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/keystore/policy"
)

// PolicyFlags set members of a policy; a flag that was not given leaves its member as it is.
type PolicyFlags struct {
	fs    *pflag.FlagSet // theirs only
	reach string
}

// lifetime is a duration of a policy, and its flag.
type lifetime struct {
	flag, usage string
	member      func(p *keystore.Policy) **keystore.Duration
}

func lifetimes() []lifetime {
	return []lifetime{
		{"max-age", "how long a copy is fresh (5m for a new issuer)",
			func(p *keystore.Policy) **keystore.Duration { return &p.MaxAge }},
		{"stale-while-revalidate", "how long a cache may hand out a stale copy while it fetches a new one (5m for a new issuer)",
			func(p *keystore.Policy) **keystore.Duration { return &p.StaleWhileRevalidate }},
		{"stale-if-error", "how long a cache may hand out a stale copy while the origin is down (0s for a new issuer; say it with --edge-hold)",
			func(p *keystore.Policy) **keystore.Duration { return &p.StaleIfError }},
		{"edge-hold", "the longest total age at which any shared cache (CDN) hands out a copy; gates wait for it, but never less than for max-age + stale-while-revalidate + stale-if-error",
			func(p *keystore.Policy) **keystore.Duration { return &p.EdgeHold }},
		{"token-lifetime", "the longest life of a token with an audience outside the cluster",
			func(p *keystore.Policy) **keystore.Duration { return &p.TokenLifetime }},
	}
}

// listing is a list of a policy, its flag, and how it is printed.
type listing struct {
	flag, usage, title string
	member             func(p *keystore.Policy) *[]string
}

func listings() []listing {
	return []listing{
		{"relying-party", "who reads the documents: aws, gcp, entra, vault, kube-apiserver or another name; or who holds an upload of the JWKS: KIND-upload:PLACE, as sync-keys --help has them (repeatable; the whole list, '' for none)",
			"relying parties ", func(p *keystore.Policy) *[]string { return &p.RelyingParties }},
		{"origin", "HOST[:PORT] of an origin behind a shared cache or balancer (repeatable; the whole list)",
			"origins ", func(p *keystore.Policy) *[]string { return &p.Origins }},
		{"observe-from", "`VANTAGE` that must have seen a key before it may sign (repeatable; the whole list)",
			"observed from ", func(p *keystore.Policy) *[]string { return &p.ObserveFrom }},
	}
}

// Register defines the flags.
func (f *PolicyFlags) Register(fs *pflag.FlagSet) {
	f.fs = pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, l := range lifetimes() {
		f.fs.Duration(l.flag, 0, l.usage)
	}
	for _, l := range listings() {
		f.fs.StringSlice(l.flag, nil, l.usage)
	}
	cli.Choices(f.fs, "relying-party", party.Known()...)
	f.fs.StringVar(&f.reach, "reach", "", "who can read the documents: public (everybody), private (who is in a private network), copies (nobody: relying parties hold an upload)")
	cli.Choices(f.fs, "reach", reaches...)
	fs.AddFlagSet(f.fs)
}

// reaches are the values of --reach.
var reaches = []string{"public", "private", "copies"}

// Apply returns p with the flags that were given.
func (f *PolicyFlags) Apply(p keystore.Policy) (keystore.Policy, error) {
	for _, l := range lifetimes() {
		d, _ := f.fs.GetDuration(l.flag) // it fails only for a flag that is not defined
		switch {
		case !f.fs.Changed(l.flag):
		case d < 0 || d%time.Second != 0:
			return p, cli.Usagef("--%s %v: it must be whole seconds, not negative", l.flag, d)
		default:
			*l.member(&p) = keystore.DurationPtr(d)
		}
	}
	for _, l := range listings() {
		if f.fs.Changed(l.flag) {
			*l.member(&p), _ = f.fs.GetStringSlice(l.flag)
		}
	}
	for _, upload := range p.Uploads() {
		if kind, _ := party.Upload(upload); f.fs.Changed("relying-party") && !party.KnownUpload(upload) {
			return p, cli.Usagef("--relying-party %s: this keypost uploads to nobody of the kind %s, so that no gate would ever open; it knows %s", cli.OneLine(upload), cli.OneLine(kind), text.List(party.UploadKinds(), 10))
		}
	}
	return f.applyReach(p)
}

// applyReach returns p with --reach, if that was given.
func (f *PolicyFlags) applyReach(p keystore.Policy) (keystore.Policy, error) {
	switch {
	case !f.fs.Changed("reach"):
		return p, nil
	case !slices.Contains(reaches, f.reach):
		return p, cli.Usagef("--reach %q: it is public, private or copies", cli.OneLine(f.reach))
	}
	p.Private, p.Reach = f.reach == "private", ""
	if f.reach == "copies" {
		p.Reach = keystore.ReachCopies
	}
	return p, nil
}

// Given reports whether any of the flags was given.
func (f *PolicyFlags) Given() (given bool) {
	f.fs.VisitAll(func(flag *pflag.Flag) { given = given || flag.Changed })
	return given
}

// Warn prints what a policy leaves undeclared at a cost, and relying parties that are not known.
func Warn(f *cli.Factory, p keystore.Policy) {
	if p.MaxAge != nil && time.Duration(*p.MaxAge) > time.Hour {
		f.Warn("maxAge is %v: after an emergency revocation relying parties may trust the key for that long", p.MaxAge)
	}
	if len(p.RelyingParties) == 0 {
		f.Warn("no relying party is declared, so a new key waits 24h before it may sign; declare them with --relying-party (aws: 1h)")
	}
	if p.TokenLifetime == nil {
		f.Warn("no token lifetime is declared, so a retired key cannot be removed; declare it with --token-lifetime")
	}
	for _, name := range p.RelyingParties {
		if !party.IsUpload(name) && !slices.Contains(party.Known(), name) {
			f.Warn("relying party %q is not known here, so that it counts as one that keeps keys for 24h; known are %s", name, strings.Join(party.Known(), ", "))
		}
	}
}

// NewPolicy returns the policy of a new key set. The cache lifetimes are written down, so that a change of a server's
// defaults never changes what the gates count on. No cache may go on with a stale copy when the server fails: without a CDN
// that helps nobody, and each promotion would wait for it. In development the lifetimes are seconds, so that a rotation can be tried.
func NewPolicy(dev bool) keystore.Policy {
	c := keystore.DefaultCache()
	c.StaleIfError = 0
	if dev {
		c = keystore.Cache{MaxAge: 5 * time.Second}
	}
	return keystore.Policy{MaxAge: keystore.DurationPtr(c.MaxAge), StaleWhileRevalidate: keystore.DurationPtr(c.StaleWhileRevalidate), StaleIfError: keystore.DurationPtr(c.StaleIfError)}
}

// PricesUnsaid reports whether a CDN was declared, and not for how long it may answer while keypostd is down.
func (f *PolicyFlags) PricesUnsaid() bool {
	return f.fs.Changed("edge-hold") && !f.fs.Changed("stale-if-error")
}

// Prices says what the lifetimes of a key set that is behind a CDN buy, and what they cost.
func Prices(s keystore.KeySet) string {
	p, now := s.Policy(), time.Now()
	c := p.Cache(keystore.DefaultCache())
	survived := c.MaxAge + max(c.StaleWhileRevalidate, c.StaleIfError)
	if p.EdgeHold != nil {
		survived = min(survived, time.Duration(*p.EdgeHold))
	}
	price := fmt.Sprintf("--stale-if-error %v: when keypostd is down, a CDN can answer for up to %s", keystore.Duration(c.StaleIfError), terminal.Duration(survived))
	for _, k := range s.Keys() {
		opens := s.Gates().EarliestPromotion(k, keystore.Observed{Since: now})
		return price + "; a new key waits " + terminal.Duration(opens.Sub(now)) + " before it may sign"
	}
	return price
}

// policyLine prints a policy for people.
func policyLine(p keystore.Policy) string {
	parts := []string{}
	for _, l := range lifetimes() {
		if d := *l.member(&p); d != nil {
			parts = append(parts, fmt.Sprintf("%s %v", l.flag, d))
		}
	}
	for _, l := range listings() {
		if list := *l.member(&p); len(list) > 0 {
			parts = append(parts, l.title+strings.Join(list, " "))
		}
	}
	if p.Private {
		parts = append(parts, "private")
	}
	if p.Reach != "" {
		parts = append(parts, "reach "+string(p.Reach))
	}
	return strings.Join(parts, ", ")
}

// HeldLine prints one of the lowered lifetimes that still bind.
func HeldLine(h policy.Held) string {
	var parts []string
	if h.Edge+h.Client > 0 {
		parts = append(parts, fmt.Sprintf("copies in caches (edge %v, client %v)", h.Edge, h.Client))
	}
	if h.TokenLifetime > 0 {
		parts = append(parts, fmt.Sprintf("tokens of %v", h.TokenLifetime))
	}
	return fmt.Sprintf("until %s the gates go on counting on what was lowered: %s", cli.Stamp(h.Until), strings.Join(parts, ", "))
}
