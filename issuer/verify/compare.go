package verify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"slices"

	"github.com/keypost/keypost/internal/caching"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// Sight is a look, compared with a store.
type Sight struct {
	Look        observation.Look
	Findings    []finding.Finding // how answers differ from the stored key set, At the addresses that gave them; none when they do not
	NotCompared string            // why nothing was compared with the store; empty if it was
	Failed      []string          // addresses at which something is missing: what they showed before may still be so
	Chains      []Chain           // that the addresses sent
}

// Chain is a chain of certificates as it was verified: the leaf first, the root last.
type Chain struct {
	Address      string
	Certificates []*x509.Certificate
}

// Compare is [Observe], and compares every answer with the stored key set, by the material of its keys. The key set is read
// after the last answer: a key that was added in between is not a stranger's key.
func Compare(ctx context.Context, n fetch.Network, t Target, stored func(context.Context) (keystore.KeySet, error)) (Sight, error) {
	c := comparison{bodies: map[[sha256.Size]byte][]byte{}, answers: map[answerKey]fetch.Answer{}}
	look, failed, err := observe(ctx, n, t, c.add)
	if err != nil {
		return Sight{}, err
	}
	v := &visitor{o: Options{Network: n, URL: t.URL.String(), Dev: t.Dev, Stored: stored}.complete(), url: t.URL}
	set := v.readStore(ctx)
	s := Sight{Look: look, Failed: failed, Chains: c.chains}
	switch {
	case set == nil:
		s.NotCompared = v.Findings[0].Evidence
	case !c.jwks:
		s.NotCompared = "no JWKS could be read at " + t.URL.String()
	}
	if set != nil {
		s.Findings = c.judge(ctx, v.o, set)
	}
	if ctx.Err() != nil {
		return Sight{}, context.Cause(ctx)
	}
	return s, nil
}

// mostKept bounds how much of the different bodies is kept that one look is answered with, in bytes. Some versions of a
// JWKS of 200 large keys are far smaller.
const mostKept = 4 << 20

// comparison keeps what the addresses of an issuer answer until it can be compared.
type comparison struct {
	bodies  map[[sha256.Size]byte][]byte
	kept    int // bytes of them
	answers map[answerKey]fetch.Answer
	jwks    bool // something answered where a JWKS was asked for
	flooded bool // some address gave more than is kept
	chains  []Chain
}

// answerKey has all that a comparison depends on: answers that have it in common are compared once.
type answerKey struct {
	address, url string
	discovery    bool // that document was asked for, and no JWKS
	body         [sha256.Size]byte
	status       int
	cached       bool // a shared cache shows itself
}

// add notes an answer. One that tells of trouble leads no relying party to a key.
func (c *comparison) add(address string, discovery bool, a fetch.Answer) {
	known := func(o Chain) bool { return o.Address == address && o.Certificates[0].Equal(a.TLS.PeerCertificates[0]) }
	if len(a.TLS.VerifiedChains) > 0 && !slices.ContainsFunc(c.chains, known) {
		c.chains = append(c.chains, Chain{address, a.TLS.VerifiedChains[0]})
	}
	success := a.Status >= 200 && a.Status < 400 // to anyone who follows redirects
	if !discovery && a.None() {
		a.Status, a.Body, success = http.StatusOK, []byte(`{"keys":[]}`), true // whatever it says about that
	}
	if !success {
		return
	}
	c.jwks = c.jwks || !discovery
	key := answerKey{address, a.URL, discovery, sha256.Sum256(a.Body), a.Status, caching.Shared(a.Header) != ""}
	if c.bodies[key.body] == nil {
		if c.kept += len(a.Body); c.kept > mostKept {
			c.flooded = true
			return
		}
		c.bodies[key.body] = a.Body
	}
	a.Body = c.bodies[key.body]
	c.answers[key] = a
}

// judge compares every answer with the stored key set, and returns what is not as it should be; nothing once ctx is done.
func (c *comparison) judge(ctx context.Context, o Options, set *keystore.KeySet) []finding.Finding {
	var all finding.Report
	for key, a := range c.answers {
		if ctx.Err() != nil {
			return nil
		}
		v := &visit{o: o, stored: set, look: look{JWKS: reply{Answer: a, Asked: true}}}
		switch {
		case a.Status >= 300:
			v.Fail("keys-unread", "%v", a.Check200())
		case key.discovery:
			v.judgeDiscovery(a)
		default:
			v.judgeJWKS(a)
		}
		for _, f := range v.Findings {
			all.AddAt(f, key.address)
		}
	}
	if c.flooded {
		all.Fail("keys-unread", "%s answers with so many different documents that not all of them were compared", o.URL)
	}
	for _, f := range all.Findings {
		slices.Sort(f.At)
	}
	slices.SortFunc(all.Findings, func(a, b finding.Finding) int { return cmp.Compare(a.Evidence, b.Evidence) })
	finding.Sort(all.Findings)
	return all.Findings
}

// judgeDiscovery reports a discovery document that leads to another JWKS than that of keypostd, or may do so for a reader
// that follows or forgives more than we do.
func (v *visit) judgeDiscovery(a fetch.Answer) {
	d, err := fetch.ParseDiscovery(a)
	switch own := v.o.URL + fetch.KeysPath; {
	case err != nil:
		v.Fail("keys-unread", "%v", err)
	case d.JWKSURI != "" && d.JWKSURI != own:
		v.Fail("keys-unread", "%s names the JWKS %q, not %s", a.URL, printable(d.JWKSURI), own)
	}
}

// judgeJWKS compares what was answered where a JWKS was asked for.
func (v *visit) judgeJWKS(a fetch.Answer) {
	keys, err := fetch.ParseJWKS(a)
	if err != nil {
		v.Fail("keys-unread", "%v", err) // another reader may find keys where we find none
		return
	}
	d := v.checkKeys(a.URL, keys)
	v.Findings = nil // about the form of the keys, which verify tells
	v.compare(d)
}
