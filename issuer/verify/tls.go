package verify

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/issuer/verify/servername"
)

// checkTLS looks at one handshake for each version: AWS falls back to configured thumbprints when an issuer offers
// TLS 1.3 only.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
func (v *visit) checkTLS() bool {
	if v.look.Proxied {
		return true
	}
	tls12, tls13 := v.look.TLS12, v.look.TLS13
	state := tls12.State
	switch {
	case tls12.Err != nil && tls13.Err != nil:
		v.unreachable()
		return false
	case v.look.Origin: // clouds never speak with it
		return true
	case v.look.Shielded && refusesCertificate(tls12.Err): // as with TLS 1.3 after the handshake, of which checkDiscovery tells
		state = tls13.State
	case tls12.Err != nil:
		v.Fail("tls-13-only", "TLS 1.2 is not accepted: %v", tls12.Err)
		state = tls13.State
	case tls13.Err != nil:
		v.Warn("tls-12-only", "TLS 1.3 is not accepted: %v", tls13.Err)
	default:
		v.OK("tls-versions", "TLS 1.2 and 1.3 are accepted")
	}
	v.checkName(cmp.Or(tls12.Name, tls13.Name))
	v.checkChain(state.PeerCertificates)
	v.checkExpiry(state.PeerCertificates)
	return true
}

// checkName looks at the name under which the handshake was made. A server that has a certificate for an origin's name alone is
// that origin, which its CDN asks, or is none to which the issuer's host may lead.
func (v *visit) checkName(name string) {
	switch address := v.look.Address; {
	case name == v.url.Host():
	case slices.Contains(v.look.Is, name):
		v.OK("origin", "%s was asked as the origin %s: it has no certificate for %s", address, name, v.url.Host())
	default:
		v.FailWith("origin-alone", fmt.Sprintf("give it a certificate for %s; or, if it is that origin and only its CDN asks it, say so: keypost verify NAME --connect %s --origin %s", v.url.Host(), text.Quoted(address), text.Quoted(name)),
			"%s has a certificate for %s, an origin in the policy, and none for %s", address, name, v.url.Host())
	}
}

func (v *visit) unreachable() {
	tls12, tls13 := v.look.TLS12.Err, v.look.TLS13.Err
	for _, err := range []error{tls12, tls13} {
		if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			why := servername.OnlyGiven(bad.Err, v.o.RootCAs)
			if len(servername.ByName(err)) > 1 {
				why = err
			}
			if v.look.Origin { // its cache may ask it under another name, and know its CA
				v.shutOut("origin-certificate", "the certificate of the origin %s is not trusted for %s: %v", v.look.Address, list(append([]string{v.url.Host()}, v.look.Names...)), why)
				return
			}
			v.Fail(finding.OfCertificate(bad, v.o.Now), "the certificate of %s is not trusted: %v", v.url.Host(), why)
			return
		}
	}
	switch dialled := v.look.Address; {
	case v.look.Origin && isTimeout(tls12) && v.look.reached():
		v.Fail("origin-silent", "the origin %s accepts connections but does not answer for %s within %v", dialled, v.url.Host(), v.o.patience)
	case v.look.Origin && !v.look.reached(): // it may let its cache in alone, and say nothing to others
		v.shutOut("origin-unreachable", "the origin %s cannot be reached from here for %s: %v", dialled, v.url.Host(), tls12)
	case v.look.Origin && !isTimeout(tls12):
		own := func(err error) error { return servername.ByName(err)[len(servername.ByName(err))-1] } // what it said to the name that it has in the policy
		v.shutOut(v.shown().OfHandshake(fmt.Sprint(own(tls12), own(tls13))), "the origin %s breaks off the TLS handshake: %v", dialled, tls12)
	case isTimeout(tls12) && v.look.reached():
		v.Fail("server-silent", "%s accepts connections but does not answer for %s within %v", dialled, v.url.Host(), v.o.patience)
	case isTimeout(tls12):
		v.Fail("connection-dropped", "%s accepts no connection for %s within %v", dialled, v.url.Host(), v.o.patience)
	case v.look.reached():
		v.Fail("tls-broken", "%s cannot be reached for %s: %v", dialled, v.url.Host(), tls12)
	case v.look.hasError(syscall.EHOSTUNREACH, syscall.ENETUNREACH):
		v.Fail("host-unreachable", "%s cannot be reached for %s: %v", dialled, v.url.Host(), tls12)
	default:
		v.Fail("connection-refused", "%s cannot be reached for %s: %v", dialled, v.url.Host(), tls12)
	}
}

// shutOut reports that an origin could not be looked at: a failure where the operator names it as one that lets this look in.
func (v *visit) shutOut(code, format string, args ...any) {
	v.shut = true
	report := v.Warn
	if v.look.Shielded {
		report = v.Fail
	}
	report(code, format, args...)
}

// shown returns what the address was shown.
func (v *visit) shown() finding.Shown {
	if !v.look.Shielded {
		return finding.Shown{}
	}
	return finding.Shown{Header: v.o.Shield.Header, Certificate: len(v.o.Shield.Certificates) > 0}
}

// checkChain is stricter than Go's verification, as AWS is: leaf, then each certificate's signer, nothing else.
func (v *visit) checkChain(chain []*x509.Certificate) {
	for i := 1; i < len(chain); i++ {
		for j := range i {
			if chain[i].Equal(chain[j]) {
				v.Fail("tls-doubled", "the server sends certificate %s twice", subject(chain[i]))
				return
			}
		}
		if !bytes.Equal(chain[i-1].RawIssuer, chain[i].RawSubject) || chain[i-1].CheckSignatureFrom(chain[i]) != nil {
			v.Fail("tls-order", "the certificate chain is out of order: %s did not sign %s before it", subject(chain[i]), subject(chain[i-1]))
			return
		}
	}
	note := ""
	if last := chain[len(chain)-1]; len(chain) > 1 && bytes.Equal(last.RawIssuer, last.RawSubject) {
		note = "; the root at the end is of no use"
	}
	if v.o.RootCAs != nil && !bySystem(v.url.Host(), chain) {
		v.OK("tls-chain", "the certificate chain is trusted by --ca-file only, and in order (%d sent%s): AWS takes it if its provider has the CA's thumbprint, Google Cloud and Entra never do", len(chain), note)
		return
	}
	v.OK("tls-chain", "the certificate chain is trusted and in order (%d sent%s)", len(chain), note)
}

func subject(c *x509.Certificate) string { return fmt.Sprintf("%q", printable(c.Subject.String())) }

// expiryWarning is when a certificate that renews itself should long have done so.
const expiryWarning = 21 * 24 * time.Hour

func (v *visit) checkExpiry(chain []*x509.Certificate) {
	for _, c := range chain {
		left := c.NotAfter.Sub(v.o.Now)
		if left < min(expiryWarning, c.NotAfter.Sub(c.NotBefore)/3) { // short-lived ones are renewed at a third
			v.Warn("tls-expires-soon", "certificate %s expires at %s", subject(c), c.NotAfter.UTC().Format(time.RFC3339))
			return
		}
	}
	if len(chain) > 0 {
		v.OK("tls-expiry", "the certificate is valid until %s", chain[0].NotAfter.UTC().Format(time.RFC3339))
	}
}
