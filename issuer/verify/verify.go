// Package verify is a relying party: it reads an issuer at its public URL the way AWS STS would, and says in findings
// what a cloud would make of it. It promises to look only: it sends GET and HEAD requests, follows no redirect, and
// prints no token.
package verify

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
)

// Severity sorts findings.
type Severity string

// The severities: Fail breaks relying parties or will, Warn works and is not right, OK is as it should be.
const (
	OK   Severity = "ok"
	Warn Severity = "warn"
	Fail Severity = "fail"
)

// Finding is what one check found. Check is a stable name for scripts; Message is one sentence; Hint, where there is
// one, says which error a cloud makes of it and what to do.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"`
}

// Failed reports whether a finding fails.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Fail })
}

// Options says whom to visit.
type Options struct {
	URL         string         // the issuer URL, as in a token's iss
	Token       string         // a service account token to check against the issuer; empty for none
	Stored      StoredFunc     // reads what the published keys are compared with; nil for nothing
	RootCAs     *x509.CertPool // nil for the system's
	DialContext DialFunc       // nil for the network's own
	Lookup      LookupFunc     // nil for the system's resolver
	Connect     string         // HOST:PORT to dial in place of every address of the host; empty for those
	Dev         bool           // admits what development issuers have: a port, a host without a dot
	Now         time.Time      // zero for the present

	patience time.Duration             // for one answer
	hasRoute func(address string) bool // to it
}

// complete fills in what was left to the system.
func (o Options) complete() Options {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if o.DialContext == nil {
		o.DialContext = (&net.Dialer{}).DialContext
	}
	if o.Lookup == nil {
		o.Lookup = lookup
	}
	if o.patience == 0 {
		o.patience = patience
	}
	if o.hasRoute == nil {
		o.hasRoute = hasRoute
	}
	return o
}

// Issuer visits an issuer at each of its addresses and returns what it found, in the order in which a relying party
// would come across it. A check that could not be made because an earlier one failed is left out, except for the
// comparison with the store: that one fails then.
func Issuer(ctx context.Context, o Options) []Finding {
	r := &report{o: o.complete()}
	if !r.checkURL() {
		r.notCompared()
		return r.findings
	}
	all, err := r.o.looks(ctx, r.url)
	if err != nil {
		r.fail("reach", awsNoKey+"; the name needs a public DNS record", "%s cannot be looked up: %v", r.url.Host(), err)
		r.notCompared()
		return r.findings
	}
	looks := r.checkAddresses(all)
	if len(looks) == 0 {
		r.notCompared()
		return r.findings
	}
	stored := r.readStore(ctx) // after the answers: a key added in between is no stranger's
	r.checkPublic(looks, stored)
	var visits []*visit
	for _, l := range looks {
		v := &visit{report: report{o: r.o, url: r.url}, look: l, stored: stored}
		v.judge()
		visits = append(visits, v)
	}
	r.merge(visits)
	r.checkSameKeys(visits)
	r.checkSpeed(looks)
	r.checkSharedCache(looks)
	r.arrange()
	return r.findings
}

// report collects findings.
type report struct {
	o        Options
	url      keystore.IssuerURL
	findings []Finding
}

// add appends f with a message.
func (r *report) add(f Finding, format string, args ...any) {
	f.Message, f.Hint = clean(fmt.Sprintf(format, args...)), clean(f.Hint)
	r.findings = append(r.findings, f)
}

func (r *report) ok(check, format string, args ...any) {
	r.add(Finding{Check: check, Severity: OK}, format, args...)
}

func (r *report) warn(check, hint, format string, args ...any) {
	r.add(Finding{Check: check, Severity: Warn, Hint: hint}, format, args...)
}

func (r *report) fail(check, hint, format string, args ...any) {
	r.add(Finding{Check: check, Severity: Fail, Hint: hint}, format, args...)
}

// visit judges what one address answered.
type visit struct {
	report
	look      look
	stored    *keystore.KeySet           // what the store has; nil when there is nothing to compare with
	published []keystore.VerificationKey // at jwks_uri
	read      bool                       // jwks_uri answered with a JWKS
}

func (v *visit) judge() {
	if !v.checkTLS() {
		v.checkStored(nil)
		return
	}
	d := v.checkDiscovery()
	sets := v.checkJWKS(d)
	v.checkStored(sets)
	v.checkHead()
	if v.o.Token != "" && v.read {
		v.checkToken(v.published)
	}
}

// merge says what all addresses have in common once, and of all else at which address it was.
func (r *report) merge(visits []*visit) {
	at := map[Finding][]string{}
	var all []Finding
	for _, v := range visits {
		for _, f := range v.findings {
			if at[f] == nil {
				all = append(all, f)
			}
			if !slices.Contains(at[f], v.look.Address) {
				at[f] = append(at[f], v.look.Address)
			}
		}
	}
	for _, f := range all {
		if where := at[f]; len(where) < len(visits) && !strings.Contains(f.Message, where[0]) {
			f.Message = "at " + list(where) + ": " + f.Message
		}
		r.findings = append(r.findings, f)
	}
}

// checks are the names of all checks in the order in which a relying party comes across them.
func checks() []string {
	return []string{
		"url", "addresses", "reach", "tls-versions", "tls-chain", "tls-expiry",
		"discovery", "issuer", "jwks-uri", "discovery-members", "discovery-headers",
		"jwks", "jwks-keys", "jwks-headers", "jwks-alias", "same-keys", "stored-keys", "head", "speed", "shared-cache",
		"token-form", "token-issuer", "token-kid", "token-signature", "token-time", "token-claims",
	}
}

func (r *report) arrange() {
	order := checks()
	slices.SortStableFunc(r.findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Check), slices.Index(order, b.Check))
	})
}

// What AWS STS says (AssumeRoleWithWebIdentity), for hints. It does not say more than this, whatever the cause.
const (
	awsNoKey      = `AWS STS says "Couldn't retrieve verification key from your identity provider"`
	awsNoProvider = `AWS STS says "No OpenIDConnect provider found in your account"`
	awsThumbprint = `AWS STS says "OpenIDConnect provider's HTTPS certificate doesn't match configured thumbprint"`
)

func (r *report) checkURL() bool {
	u, err := keystore.ParseIssuerURL(r.o.URL, false)
	if err == nil {
		r.url = u
		r.ok("url", "%s is a URL that every cloud accepts", u)
		return true
	}
	hint := "no cloud accepts it; issue tokens under another URL (kube-apiserver --service-account-issuer)"
	u, devErr := keystore.ParseIssuerURL(r.o.URL, true)
	if devErr != nil {
		r.fail("url", hint, "%v", err)
		return false
	}
	r.url = u
	if r.o.Dev {
		r.ok("url", "%s is a development URL", u)
		return true
	}
	r.fail("url", hint+"; for a development issuer say --dev", "%v", err)
	return true
}

// checkHead does what ccoctl does to compute a thumbprint: it only needs a TLS handshake and any answer.
func (v *visit) checkHead() {
	switch a := v.look.Head; {
	case !a.Asked:
	case a.Err != nil:
		v.warn("head", "ccoctl cannot compute the thumbprint of the issuer", "HEAD %s: %v", v.o.URL, a.Err)
	case a.Status >= 500:
		v.warn("head", "ccoctl is content with any answer; others are not", "HEAD %s answers %d", v.o.URL, a.Status)
	default:
		v.ok("head", "HEAD %s answers %d", v.o.URL, a.Status)
	}
}

// slow is what a relying party notices. An answer that takes longer than its patience fails by itself.
const slow = time.Second

func (r *report) checkSpeed(looks []look) {
	var slowest response
	for _, l := range looks {
		for _, a := range l.replies() {
			if a.Took >= slowest.Took {
				slowest = a
			}
		}
	}
	took := slowest.Took.Round(time.Millisecond)
	switch {
	case slowest.URL == "":
	case slowest.Took > slow:
		r.warn("speed", "AWS STS gives up after 5s", "%s took %v", slowest.URL, took)
	default:
		r.ok("speed", "the slowest answer took %v over a new connection", took)
	}
}

// cacheHeaders give a shared cache away.
func cacheHeaders() []string {
	return []string{"Age", "Via", "X-Cache", "X-Cache-Hits", "X-Served-By", "Cf-Cache-Status", "X-Amz-Cf-Id", "X-Varnish", "Cache-Status"}
}

// sharedCache returns the header of an answer that gives a shared cache (a CDN) away, as `Name: value`; empty when
// there is none.
func sharedCache(a response) string {
	for _, name := range cacheHeaders() {
		if value := a.Header.Get(name); value != "" {
			return name + ": " + printable(value)
		}
	}
	return ""
}

func (r *report) checkSharedCache(looks []look) {
	for _, l := range looks {
		for _, a := range l.replies() {
			if seen := sharedCache(a); seen != "" {
				r.add(Finding{Check: "shared-cache", Severity: OK, Hint: "say how long it may hold a copy with keypost issuer set NAME --edge-hold"}, "a shared cache answered (%s)", seen)
				return
			}
		}
	}
}
