// Package verify is a relying party: it reads an issuer at its public URL the way AWS STS would, and says in findings
// what a cloud would make of it. It promises to look only: it sends GET and HEAD requests, follows no redirect, and
// prints no token.
package verify

import (
	"context"
	"crypto/x509"
	"fmt"
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

// Failed tells whether a finding fails.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Fail })
}

// Options says whom to visit.
type Options struct {
	URL         string           // the issuer URL, as in a token's iss
	Token       string           // a service account token to check against the issuer; empty for none
	Expect      []keystore.KeyID // key IDs that must be published, as a store says; nil for none
	RootCAs     *x509.CertPool   // nil for the system's
	DialContext DialFunc         // nil for the network's own
	Dev         bool             // admits what development issuers have: a port, a host without a dot
	Now         time.Time        // zero for the present
}

// Issuer visits an issuer and returns what it found, in the order in which a relying party would come across it. A
// check that could not be made because an earlier one failed is left out.
func Issuer(ctx context.Context, o Options) []Finding {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	v := &visit{o: o, client: NewClient(o.RootCAs, o.DialContext)}
	if !v.checkURL() || !v.checkTLS(ctx) {
		return v.findings
	}
	d := v.checkDiscovery(ctx)
	keys, read := v.checkJWKS(ctx, d)
	if read {
		v.checkExpected(keys)
	}
	v.checkHead(ctx)
	v.checkSpeed()
	v.checkSharedCache()
	if o.Token != "" && read {
		v.checkToken(keys)
	}
	return v.findings
}

// visit is one call of Issuer.
type visit struct {
	o        Options
	url      keystore.IssuerURL
	client   *Client
	answers  []Answer
	findings []Finding
}

func (v *visit) ok(check, format string, args ...any) {
	v.findings = append(v.findings, Finding{Check: check, Severity: OK, Message: fmt.Sprintf(format, args...)})
}

func (v *visit) warn(check, hint, format string, args ...any) {
	v.findings = append(v.findings, Finding{Check: check, Severity: Warn, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (v *visit) fail(check, hint, format string, args ...any) {
	v.findings = append(v.findings, Finding{Check: check, Severity: Fail, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// What AWS STS says (AssumeRoleWithWebIdentity), for hints. It does not say more than this, whatever the cause.
const (
	awsNoKey      = `AWS STS says "Couldn't retrieve verification key from your identity provider"`
	awsNoProvider = `AWS STS says "No OpenIDConnect provider found in your account"`
	awsThumbprint = `AWS STS says "OpenIDConnect provider's HTTPS certificate doesn't match configured thumbprint"`
)

func (v *visit) checkURL() bool {
	u, err := keystore.ParseIssuerURL(v.o.URL, false)
	if err == nil {
		v.url = u
		v.ok("url", "%s is a URL that every cloud accepts", u)
		return true
	}
	hint := "no cloud accepts it; issue tokens under another URL (kube-apiserver --service-account-issuer)"
	u, devErr := keystore.ParseIssuerURL(v.o.URL, true)
	if devErr != nil {
		v.fail("url", hint, "%v", err)
		return false
	}
	v.url = u
	if v.o.Dev {
		v.ok("url", "%s is a development URL", u)
		return true
	}
	v.fail("url", hint+"; for a development issuer say --dev", "%v", err)
	return true
}

// checkExpected compares what is published with what a store says should be.
func (v *visit) checkExpected(published []keystore.Public) {
	if v.o.Expect == nil {
		return
	}
	var missing, extra []string
	for _, id := range v.o.Expect {
		if !slices.ContainsFunc(published, func(k keystore.Public) bool { return k.ID() == id }) {
			missing = append(missing, string(id))
		}
	}
	for _, k := range published {
		if !slices.Contains(v.o.Expect, k.ID()) {
			extra = append(extra, string(k.ID()))
		}
	}
	if len(missing) > 0 {
		v.fail("stored-keys", "a cache may still hold an older copy, or keypostd rejects the key set: see its log and keypost issuer list --admin", "the store has keys that are not published: %s", strings.Join(missing, ", "))
	}
	if len(extra) > 0 {
		v.warn("stored-keys", "a cache may still hold an older copy; if it stays, decide with keypost issuer accept", "keys are published that the store has not: %s", strings.Join(extra, ", "))
	}
	if len(missing)+len(extra) == 0 {
		v.ok("stored-keys", "the published keys are those of the store")
	}
}

// checkHead does what ccoctl does to compute a thumbprint: it only needs a TLS handshake and any answer.
func (v *visit) checkHead(ctx context.Context) {
	a, err := v.client.Head(ctx, v.o.URL)
	switch {
	case err != nil:
		v.warn("head", "ccoctl cannot compute the thumbprint of the issuer", "HEAD %s: %v", v.o.URL, err)
	case a.Status >= 500:
		v.warn("head", "ccoctl is content with any answer; others are not", "HEAD %s answers %d", v.o.URL, a.Status)
	default:
		v.ok("head", "HEAD %s answers %d", v.o.URL, a.Status)
	}
}

// Bounds on answers. AWS gives up after five seconds.
//
// Source: https://repost.aws/knowledge-center/iam-sts-invalididentitytoken
const (
	tooSlow = 5 * time.Second
	slow    = time.Second
)

func (v *visit) checkSpeed() {
	var slowest Answer
	for _, a := range v.answers {
		if a.Took >= slowest.Took {
			slowest = a
		}
	}
	took := slowest.Took.Round(time.Millisecond)
	switch {
	case len(v.answers) == 0:
	case slowest.Took > tooSlow:
		v.fail("speed", awsNoKey+" when an answer takes more than 5 s", "%s took %v", slowest.URL, took)
	case slowest.Took > slow:
		v.warn("speed", "AWS STS gives up after 5 s", "%s took %v", slowest.URL, took)
	default:
		v.ok("speed", "the slowest answer took %v over a new connection", took)
	}
}

// cacheHeaders give a shared cache away.
func cacheHeaders() []string {
	return []string{"Age", "Via", "X-Cache", "X-Cache-Hits", "X-Served-By", "Cf-Cache-Status", "X-Amz-Cf-Id", "X-Varnish", "Cache-Status"}
}

// SharedCache returns the header of an answer that gives a shared cache (a CDN) away, as `Name: value`; empty when
// there is none.
func SharedCache(a Answer) string {
	for _, name := range cacheHeaders() {
		if value := a.Header.Get(name); value != "" {
			return name + ": " + printable(value)
		}
	}
	return ""
}

func (v *visit) checkSharedCache() {
	for _, a := range v.answers {
		if seen := SharedCache(a); seen != "" {
			v.findings = append(v.findings, Finding{Check: "shared-cache", Severity: OK,
				Message: "a shared cache answered (" + seen + ")",
				Hint:    "say how long it may hold a copy with keypost issuer set NAME --edge-hold"})
			return
		}
	}
}
