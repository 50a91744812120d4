// Package verify is a relying party: it reads an issuer at its public URL the way AWS STS would, and reports in findings
// what a cloud would make of it. It promises to look only: it sends GET and HEAD requests, follows no redirect, and
// prints no token.
//
// A visit has three steps that know nothing of each other: a look at each address of the host records what it answers;
// checks compare looks with the protocol, with each other and with a store; and each [Finding] keeps its evidence, its
// effect and its repair apart, for whoever prints it.
package verify

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/publicnet"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/issuer/verify/token"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// Options has whom to visit, and how.
type Options struct {
	Network
	URL   string // the issuer URL, as in a token's iss
	Token string // a service account token to check against the issuer; empty for none
	// Stored reads the key set that the published keys are compared with. It wraps [ErrNotStored] when the store has
	// none with the issuer URL. Nil for no comparison.
	Stored func(context.Context) (keystore.KeySet, error)
	// Uploads reads what was recorded of the uploads that the policy of a key set names. Nil if that is not known.
	Uploads func(context.Context, keystore.KeySet) ([]observation.Record, error)

	Dev bool      // admits what development issuers have: a port, a host without a dot
	Now time.Time // zero for the present

	hasRoute func(address string) bool // to it
	proxy    func(*http.Request) (*url.URL, error)
	ahead    time.Duration // of Now, compared with this machine's clock
}

// patience is how long an answer may take: AWS gives up after five seconds.
//
// Source: https://repost.aws/knowledge-center/iam-sts-invalididentitytoken
const patience = 5 * time.Second

// complete fills in what was left to the system.
func (o Options) complete() Options {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	o.ahead = time.Until(o.Now)
	if o.patience == 0 {
		o.patience = patience
	}
	if o.hasRoute == nil {
		o.hasRoute = publicnet.HasRoute
	}
	if o.proxy == nil {
		o.proxy = http.ProxyFromEnvironment
	}
	return o
}

// Examine visits an issuer at each of its addresses, and at the origins that its key set names, and returns what it saw and
// what it found, with what to repair first before the rest. A check that could not be made because an earlier one failed is left
// out, except for the comparison with the store: that one fails then. Of an issuer whose documents nobody reads ([keystore.ReachCopies])
// only the copies that relying parties hold are compared, and a token is checked against the stored keys.
func Examine(ctx context.Context, o Options) Examination {
	v := &visitor{o: o.complete()}
	v.known = v.o.set(ctx)
	var e Examination
	var visits []*visit
	if v.known.Policy().Reach != keystore.ReachCopies || v.known.Withdrawn() {
		visits = v.visits(ctx)
		v.sayUnread()
	} else if v.checkURL() {
		e.Keys = v.checkUnread(ctx)
	}
	v.checkUploads(ctx)
	v.checkTokenSeen(visits)
	e.Findings = v.Sorted()
	e.see(v.url.Host(), visits)
	return e
}

// checkUnread checks what can be checked of an issuer whose documents nobody reads: relying parties go by the stored keys, as far as
// their copies have them. It returns those keys, nil if they cannot be read.
func (v *visitor) checkUnread(ctx context.Context) []keystore.VerificationKey {
	stored := v.readStore(ctx)
	v.checkActive(stored)
	if stored == nil {
		return nil
	}
	keys := []keystore.VerificationKey{}
	for _, k := range stored.Keys() {
		keys = append(keys, k.VerificationKey)
	}
	if v.o.Token != "" {
		v.Add(token.Issuer{URL: v.o.URL, Published: keys, Stored: stored, Now: v.o.Now}.Check(v.o.Token)...)
	}
	return keys
}

// sayUnread has what fails on the way to the documents say first how to leave them out, where each relying party that the policy names
// holds a copy of the keys: none of them answers anything to that.
func (v *visitor) sayUnread() {
	p := v.known.Policy()
	if v.known.Withdrawn() || len(p.RelyingParties) == 0 || len(p.Uploads()) < len(p.RelyingParties) {
		return
	}
	for i := range v.Findings {
		f := &v.Findings[i]
		if f.Severity == finding.Fail && slices.Contains([]string{"reach", "addresses", "tls-chain", "tls-versions", "discovery", "jwks"}, f.Check) {
			f.Answers = nil
			f.Repair = "every relying party that the policy names holds a copy of the keys; if nobody reads the documents, say so: keypost issuer set NAME --reach copies; else " + f.Repair
		}
	}
}

// checkTokenSeen says so where a token was given and nobody could check it: no word would look like a good one.
func (v *visitor) checkTokenSeen(visits []*visit) {
	about := func(f finding.Finding) bool { return strings.HasPrefix(f.Check, "token-") }
	if v.o.Token == "" || slices.ContainsFunc(v.Findings, about) {
		return
	}
	report := v.Fail
	if len(visits) > 0 { // what kept them from being read fails by itself
		report = v.Warn
	}
	report("token-unchecked", "the token was not checked: the keys of %s could not be read", printable(v.o.URL))
}

// visits asks every address and origin and checks the answers.
func (v *visitor) visits(ctx context.Context) []*visit {
	looks, origins := v.look(ctx)
	if len(looks) == 0 {
		notCompared(&v.Report, v.o)
		return nil
	}
	stored := v.readStore(ctx) // after the answers: a key added in between is no stranger's
	v.checkActive(stored)
	v.checkPublic(looks, stored)
	all := slices.Concat(looks, origins)
	var visits []*visit
	for _, l := range all {
		one := &visit{o: v.o, url: v.url, look: l, stored: stored}
		one.check()
		visits = append(visits, one)
	}
	merge(&v.Report, visits)
	v.checkOrigins(origins)
	v.checkSameKeys(visits)
	v.checkClock(all)
	v.checkSpeed(looks)
	v.checkSharedCache(looks, stored)
	return visits
}

// checkOrigins says which origins were asked; what is wrong at one has a finding of its own.
func (v *visitor) checkOrigins(origins []look) {
	if answered, _ := split(origins, look.reached); len(answered) > 0 {
		v.OK("origin", "the origins were asked by themselves too: %s", list(answered))
	}
}

// visitor checks what concerns an issuer as a whole.
type visitor struct {
	finding.Report
	o     Options
	url   keystore.IssuerURL
	known keystore.KeySet // as it was read last from the store; empty if that could not be read, or there is none
}

// look returns what the issuer's addresses answer, none when there is nothing to check, and what the origins behind them
// answer.
func (v *visitor) look(ctx context.Context) (looks, origins []look) {
	if !v.checkURL() {
		return nil, nil
	}
	all, err := v.o.looks(ctx, v.url, v.known.Policy().Origins)
	i := slices.IndexFunc(all, func(l look) bool { return l.Origin })
	if i >= 0 {
		all, origins = all[:i], all[i:]
	}
	if !slices.ContainsFunc(all, look.reached) {
		if l, through, ok := v.o.throughProxy(ctx, v.url); ok {
			v.Warn("proxy-used", "%s was looked at through the proxy %s, since this machine reaches none of its addresses", v.url.Host(), through)
			return []look{l}, nil
		}
	}
	if err != nil {
		v.Fail("dns-none", "%s cannot be looked up: %v", v.url.Host(), err)
		return nil, nil
	}
	return v.checkAddresses(all), origins
}

// set returns the stored key set, whose policy says where to look. An error of the store shows when it is read for the comparison.
func (o Options) set(ctx context.Context) keystore.KeySet {
	if o.Stored == nil {
		return keystore.KeySet{}
	}
	set, err := o.Stored(ctx)
	if err != nil {
		return keystore.KeySet{}
	}
	return set
}

// visit checks what one address answered.
type visit struct {
	finding.Report
	o         Options
	url       keystore.IssuerURL
	look      look
	stored    *keystore.KeySet           // what the store has; nil when there is nothing to compare with
	published []keystore.VerificationKey // at jwks_uri
	read      bool                       // jwks_uri answered with a JWKS
	shut      bool                       // it is an origin that answers its cache only
}

func (v *visit) check() {
	if !v.checkTLS() {
		v.checkStored(nil)
		return
	}
	d := v.checkDiscovery()
	if v.shut {
		return
	}
	v.checkStored(v.checkJWKS(d))
	v.checkAge()
	if v.o.Token != "" && v.read {
		v.Add(token.Issuer{URL: v.o.URL, Published: v.published, Stored: v.stored, Now: v.o.Now}.Check(v.o.Token)...)
	}
}

func (v *visitor) checkURL() bool {
	u, err := keystore.ParseIssuerURL(v.o.URL, false)
	if err == nil {
		v.url = u
		v.OK("url", "%s is a URL that every cloud accepts", u)
		return true
	}
	u, devErr := keystore.ParseIssuerURL(v.o.URL, true)
	v.url = u
	switch {
	case devErr != nil:
		v.Fail("url-form", "%v", err)
		return false
	case v.o.Dev:
		v.OK("url", "%s is a development URL", u)
	default:
		v.Fail("url-form", "%v", err)
	}
	return true
}
