// Package verify is a relying party: it reads an issuer at its public URL the way AWS STS would, and reports in findings
// what a cloud would make of it. It promises to look only: it sends GET and HEAD requests, follows no redirect, and
// prints no token.
//
// A visit has three steps that know nothing of each other: a look at each address of the host records what it answers;
// checks compare looks with the protocol, with each other and with a store; and each [Finding] keeps its evidence, its
// effect and its repair apart, for anyone who prints it.
package verify

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/publicnet"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/issuer/verify/token"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// Options has whom to visit, and how.
type Options struct {
	fetch.Network
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
	if o.Patience == 0 {
		o.Patience = patience
	}
	if o.hasRoute == nil {
		o.hasRoute = publicnet.HasRoute
	}
	if o.proxy == nil {
		o.proxy = http.ProxyFromEnvironment
	}
	return o
}

// Examination is what a visit found, and what it saw that others compare with: a cluster's keys, an account's thumbprints.
type Examination struct {
	Findings []finding.Finding
	Keys     []keystore.VerificationKey // at jwks_uri, of all addresses, or the stored ones where nobody reads that; nil if they cannot be read
	Chain    []*x509.Certificate        // that the issuer's host sends, the leaf first; nil if there was no TLS connection
	PublicCA bool                       // the system's CAs vouch for Chain, whatever RootCAs are
}

// Examine visits an issuer at each of its addresses, and at the origins that its key set names, and returns what it saw and
// what it found, with what to repair first before the rest. A check that could not be made because an earlier one failed is left
// out, except for the comparison with the store: that one fails then. Of an issuer whose documents nobody reads ([keystore.ReachCopies])
// only the copies that relying parties hold are compared, and a token is checked against the stored keys.
func Examine(ctx context.Context, o Options) Examination {
	v := &visitor{o: o.complete()}
	if o.Stored != nil {
		v.known, _ = o.Stored(ctx) // its policy says where to look; an error shows when it is read for the comparison
	}
	var e Examination
	switch copies := v.known.Policy().Reach == keystore.ReachCopies && !v.known.Withdrawn(); {
	case !v.checkURL():
		v.o.notCompared(&v.Report)
	case copies:
		e.Keys = v.checkUnread(ctx)
	default:
		e.see(v.url.Host(), v.visits(ctx))
	}
	v.checkUploads(ctx)
	if o.Token != "" && !slices.ContainsFunc(v.Findings, func(f finding.Finding) bool { return strings.HasPrefix(f.Check, "token-") }) {
		v.Fail("token-unchecked", "the token was not checked: the keys of %s could not be read", printable(v.o.URL))
	}
	e.Findings = v.Sorted()
	return e
}

// see keeps what the visits of an issuer's addresses saw.
func (e *Examination) see(host string, visits []*visit) {
	for _, one := range visits {
		if one.look.Origin {
			continue // relying parties are not sent there
		}
		if one.read && e.Keys == nil {
			e.Keys = []keystore.VerificationKey{}
		}
		for _, k := range one.published {
			if !slices.ContainsFunc(e.Keys, k.Equal) {
				e.Keys = append(e.Keys, k)
			}
		}
		if chain := one.look.Discovery.TLS.PeerCertificates; e.Chain == nil && len(chain) > 0 && chain[0].VerifyHostname(host) == nil {
			e.Chain, e.PublicCA = chain, bySystem(host, chain)
		}
	}
}

// bySystem reports whether the system's CAs vouch for a chain.
func bySystem(host string, chain []*x509.Certificate) bool {
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{DNSName: host, Intermediates: between})
	return err == nil
}

// visitor checks what concerns an issuer as a whole.
type visitor struct {
	finding.Report
	o     Options
	url   keystore.IssuerURL
	known keystore.KeySet // as it was read last from the store; empty if that could not be read, or there is none
}

func (v *visitor) checkURL() bool {
	u, err := keystore.ParseIssuerURL(v.o.URL, v.o.Dev)
	switch {
	case err != nil:
		v.Fail("url-form", "%v", err)
		u, err = keystore.ParseIssuerURL(v.o.URL, true)
	case v.o.Dev:
		v.OK("url", "%s is a development URL", u)
	default:
		v.OK("url", "%s is a URL that every cloud accepts", u)
	}
	v.url = u
	return err == nil
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
	v.Add(v.o.checkToken(keys, stored)...)
	return keys
}

// checkToken checks the token, if one was given.
func (o Options) checkToken(published []keystore.VerificationKey, stored *keystore.KeySet) []finding.Finding {
	if o.Token == "" {
		return nil
	}
	return token.Issuer{URL: o.URL, Published: published, Stored: stored, Now: o.Now}.Check(o.Token)
}

// visits asks every address and origin and checks the answers.
func (v *visitor) visits(ctx context.Context) (visits []*visit) {
	looks, origins := v.look(ctx)
	if len(looks) == 0 {
		v.o.notCompared(&v.Report)
		return nil
	}
	stored := v.readStore(ctx) // after the answers: a key added in between is not a stranger's key
	v.checkActive(stored)
	v.checkPublic(looks, stored)
	all := slices.Concat(looks, origins)
	for _, l := range all {
		one := &visit{o: v.o, url: v.url, look: l, stored: stored}
		one.check()
		visits = append(visits, one)
	}
	v.merge(visits)
	v.checkSameKeys(visits)
	v.checkClock(all)
	v.checkSharedCache(looks, stored)
	return visits
}

// look returns what the issuer's addresses answer, none when there is nothing to check, and what the origins behind them
// answer.
func (v *visitor) look(ctx context.Context) (looks, origins []look) {
	all, err := v.o.looks(ctx, v.url, v.known.Policy().Origins)
	if !slices.ContainsFunc(all, func(l look) bool { return l.reached && !l.Origin }) {
		if l, through, ok := v.o.throughProxy(ctx, v.url); ok {
			v.Warn("address-unasked", "%s was looked at through the proxy %s, since this machine reaches none of its addresses", v.url.Host(), through)
			return []look{l}, nil
		}
	}
	if err != nil {
		v.Fail("dns-none", "%v", err)
		return nil, nil
	}
	for _, l := range all {
		if l.Origin {
			origins = append(origins, l)
		} else {
			looks = append(looks, l)
		}
	}
	return v.checkAddresses(looks), origins
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
}

func (v *visit) check() {
	v.checkTLS()
	d := v.checkDiscovery()
	if v.look.Origin && v.look.Discovery.Status != http.StatusOK {
		return // it lets in its cache only
	}
	v.checkStored(v.checkJWKS(d))
	v.checkAge()
	if v.read {
		v.Add(v.o.checkToken(v.published, v.stored)...)
	}
}

// merge adds what was found at single addresses: once, with all the addresses that it was found at; none if that is all.
func (v *visitor) merge(visits []*visit) {
	var all finding.Report
	for _, one := range visits {
		for _, f := range one.Findings {
			all.AddAt(f, one.look.Address)
		}
	}
	for _, f := range all.Findings {
		if len(f.At) == len(visits) {
			f.At = nil
		}
		v.Add(f)
	}
}

// list joins with "and", and counts what is too much to read.
func list(all []string) string { return text.List(all, fetch.MaxAddresses) }

// printable makes text of a stranger's server short, and keeps it from moving the cursor of a terminal or turning the
// direction of its text.
func printable(s string) string { return text.OneLine(s, 400) }

// clean is printable without a limit.
func clean(s string) string { return text.OneLine(s, 0) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
