package verify

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"syscall"
	"time"
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
	case tls12.Err != nil:
		v.Fail("tls-13-only", "TLS 1.2 is not accepted: %v", tls12.Err)
		state = tls13.State
	case tls13.Err != nil:
		v.Warn("tls-12-only", "TLS 1.3 is not accepted: %v", tls13.Err)
	default:
		v.OK("tls-versions", "TLS 1.2 and 1.3 are accepted")
	}
	v.checkChain(state.PeerCertificates)
	v.checkExpiry(state.PeerCertificates)
	return true
}

func (v *visit) unreachable() {
	tls12, tls13 := v.look.TLS12.Err, v.look.TLS13.Err
	for _, err := range []error{tls12, tls13} {
		if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			if v.look.Origin { // its cache may ask it under another name, and know its CA
				v.shut = true
				v.Warn("origin-certificate", "the certificate of the origin %s is not trusted for %s: %v", v.look.Address, v.url.Host(), bad.Err)
				return
			}
			v.Fail(chainCause(bad, v.o.Now), "the certificate of %s is not trusted: %v", v.url.Host(), bad.Err)
			return
		}
	}
	switch dialled := v.look.Address; {
	case v.look.Origin && isTimeout(tls12) && v.look.reached():
		v.Fail("origin-silent", "the origin %s accepts connections but does not answer for %s within %v", dialled, v.url.Host(), v.o.patience)
	case v.look.Origin && !v.look.reached(): // it may let its cache in alone, and say nothing to others
		v.shut = true
		v.Warn("origin-unreachable", "the origin %s cannot be reached from here for %s: %v", dialled, v.url.Host(), tls12)
	case v.look.Origin && !isTimeout(tls12):
		v.shut = true
		v.Warn("origin-shielded", "the origin %s refuses the TLS handshake: %v", dialled, tls12)
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

// chainCause returns why a certificate is not trusted.
func chainCause(bad *tls.CertificateVerificationError, now time.Time) string {
	if _, ok := errors.AsType[x509.HostnameError](bad); ok {
		return "tls-name"
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](bad); ok && e.Reason == x509.Expired {
		if e.Cert != nil && now.Before(e.Cert.NotBefore) {
			return "tls-not-yet"
		}
		return "tls-expired"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](bad); ok && len(bad.UnverifiedCertificates) == 1 && len(bad.UnverifiedCertificates[0].IssuingCertificateURL) > 0 {
		return "tls-incomplete" // its CA says where the next one is to be had; the CA of a lone certificate without that may be a root
	}
	return "tls-untrusted"
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
	v.OK("tls-chain", "the certificate chain is trusted and in order (%d sent)", len(chain))
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
