package verify

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// checkTLS looks at one handshake for each version: AWS falls back to configured thumbprints when an issuer offers
// TLS 1.3 only.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
func (v *visit) checkTLS() bool {
	tls12, tls13 := v.look.TLS12, v.look.TLS13
	state := tls12.State
	switch {
	case v.look.Proxied:
		return true
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
	default:
		v.OK("tls-versions", "TLS 1.2 is accepted")
	}
	v.checkChain(state.PeerCertificates)
	v.checkExpiry(state.PeerCertificates)
	return true
}

func (v *visit) unreachable() {
	err := v.look.TLS12.Err
	dialled, host := v.look.Address, v.url.Host()
	bad, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	if !untrusted {
		if bad, untrusted = errors.AsType[*tls.CertificateVerificationError](v.look.TLS13.Err); untrusted {
			err = v.look.TLS13.Err
		}
	}
	switch {
	case v.look.Origin && saysNo(err) && saysNo(v.look.TLS13.Err):
		v.shutOut("origin-shielded", "the origin %s breaks off the TLS handshake: %v", dialled, err)
	case v.look.Origin: // it may let only its cache in; that one may know its CA
		v.shutOut("origin-unreachable", "the origin %s cannot be asked for %s: %s", dialled, host, sayRoots(err, v.o.RootCAs))
	case untrusted:
		v.Fail(finding.OfCertificate(bad), "the certificate of %s is not trusted: %s", host, sayRoots(err, v.o.RootCAs))
	case isTimeout(err) && v.look.reached():
		v.Fail("connection-dropped", "%s accepts connections but does not answer for %s within %v", dialled, host, v.o.patience)
	case isTimeout(err):
		v.Fail("connection-dropped", "%s accepts no connection for %s within %v", dialled, host, v.o.patience)
	default:
		v.Fail("connection-refused", "%s cannot be reached for %s: %v", dialled, host, err)
	}
}

// saysNo reports whether a server refused a handshake with an alert. A balancer that has nobody to pass a connection to closes it
// without one, and servers that have no certificate for the name say so.
func saysNo(err error) bool {
	text := fmt.Sprint(err)
	return strings.Contains(text, "remote error: tls: ") && !strings.Contains(text, "tls: internal error") && !strings.Contains(text, "tls: unrecognized name")
}

// shutOut reports that an origin could not be looked at: a failure where the operator names it as one that lets this look in, or where
// it accepts connections and is silent.
func (v *visit) shutOut(code, format string, args ...any) {
	v.shut = true
	report := v.Warn
	silent := v.look.reached() && (isTimeout(v.look.TLS12.Err) || isTimeout(v.look.Discovery.Err) || isTimeout(v.look.JWKS.Err))
	if v.look.Shielded || silent {
		report = v.Fail
	}
	report(code, format, args...)
}

// checkChain is stricter than Go's verification, as AWS is: leaf, then each certificate's signer, nothing else.
func (v *visit) checkChain(chain []*x509.Certificate) {
	for i := 1; i < len(chain); i++ {
		if !bytes.Equal(chain[i-1].RawIssuer, chain[i].RawSubject) || chain[i-1].CheckSignatureFrom(chain[i]) != nil || chain[i].Equal(chain[i-1]) {
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
			v.Warn("tls-expires-soon", "certificate %s expires at %s", subject(c), stamp(c.NotAfter))
			return
		}
	}
	if len(chain) > 0 {
		v.OK("tls-expiry", "the certificate is valid until %s", stamp(chain[0].NotAfter))
	}
}
