package verify

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

// checkTLS looks at one handshake for each version: AWS falls back to configured thumbprints when an issuer offers
// TLS 1.3 only.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
func (v *visit) checkTLS() bool {
	tls12, tls13 := v.look.TLS12, v.look.TLS13
	state := tls12.State
	switch {
	case tls12.Err != nil && tls13.Err != nil:
		v.unreachable()
		return false
	case tls12.Err != nil:
		v.fail("tls-versions", advice{awsThumbprint, "offer TLS 1.2 as well"}, "TLS 1.2 is not accepted: %v", tls12.Err)
		state = tls13.State
	case tls13.Err != nil:
		v.warn("tls-versions", advice{repair: "offer TLS 1.3 as well"}, "TLS 1.3 is not accepted: %v", tls13.Err)
	default:
		v.ok("tls-versions", "TLS 1.2 and 1.3 are accepted")
	}
	v.checkChain(state.PeerCertificates)
	v.checkExpiry(state.PeerCertificates)
	return true
}

func (v *visit) unreachable() {
	tls12, tls13 := v.look.TLS12.Err, v.look.TLS13.Err
	for _, err := range []error{tls12, tls13} {
		if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			v.fail("tls-chain", advice{awsNoKey + " or " + strings.TrimPrefix(awsThumbprint, "AWS STS says "), chainRepair(bad)}, "the certificate of %s is not trusted: %v", v.url.Host(), bad.Err)
			return
		}
	}
	a := advice{awsNoKey, "check DNS, firewall and that keypostd listens there"}
	switch dialled := v.look.Address; {
	case isTimeout(tls12) && v.look.reached():
		v.fail("reach", advice{effect: awsNoKey + "; it gives up after 5s"}, "%s accepts connections but does not answer for %s within %v", dialled, v.url.Host(), v.o.patience)
	case isTimeout(tls12):
		v.fail("reach", a, "%s accepts no connection for %s within %v", dialled, v.url.Host(), v.o.patience)
	default:
		v.fail("reach", a, "%s cannot be reached for %s: %v", dialled, v.url.Host(), tls12)
	}
}

func chainRepair(bad *tls.CertificateVerificationError) string {
	if _, ok := errors.AsType[x509.HostnameError](bad); ok {
		return "use a certificate for this host name"
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](bad); ok && e.Reason == x509.Expired {
		return "renew the certificate (and check this machine's clock)"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](bad); ok && len(bad.UnverifiedCertificates) == 1 {
		return "the server sends only its own certificate: add the intermediate ones, or give a private CA with --ca-file"
	}
	return "use a certificate of a public CA, or give a private CA with --ca-file"
}

// checkChain is stricter than Go's verification, as AWS is: leaf, then each certificate's signer, nothing else.
func (v *visit) checkChain(chain []*x509.Certificate) {
	a := advice{awsNoKey, "send the leaf first and after each certificate the one that signed it, nothing else"}
	for i := 1; i < len(chain); i++ {
		for j := range i {
			if chain[i].Equal(chain[j]) {
				v.fail("tls-chain", a, "the server sends certificate %s twice", subject(chain[i]))
				return
			}
		}
		if !bytes.Equal(chain[i-1].RawIssuer, chain[i].RawSubject) || chain[i-1].CheckSignatureFrom(chain[i]) != nil {
			v.fail("tls-chain", a, "the certificate chain is out of order: %s did not sign %s before it", subject(chain[i]), subject(chain[i-1]))
			return
		}
	}
	v.ok("tls-chain", "the certificate chain is trusted and in order (%d sent)", len(chain))
}

func subject(c *x509.Certificate) string { return fmt.Sprintf("%q", printable(c.Subject.String())) }

// expiryWarning is when a certificate that renews itself should long have done so.
const expiryWarning = 21 * 24 * time.Hour

func (v *visit) checkExpiry(chain []*x509.Certificate) {
	for _, c := range chain {
		left := c.NotAfter.Sub(v.o.Now)
		if left < min(expiryWarning, c.NotAfter.Sub(c.NotBefore)/3) { // short-lived ones are renewed at a third
			v.warn("tls-expiry", advice{repair: "renew it; once it has expired every token exchange fails"}, "certificate %s expires at %s", subject(c), c.NotAfter.UTC().Format(time.RFC3339))
			return
		}
	}
	if len(chain) > 0 {
		v.ok("tls-expiry", "the certificate is valid until %s", chain[0].NotAfter.UTC().Format(time.RFC3339))
	}
}
