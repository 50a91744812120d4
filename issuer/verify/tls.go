package verify

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"time"
)

// checkTLS looks at how TLS was spoken: AWS falls back to configured thumbprints when an issuer offers TLS 1.3 only.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
func (v *visit) checkTLS() {
	if v.look.Origin || v.look.Discovery.Status == 0 { // clouds never speak with an origin; without an answer checkDiscovery says why
		return
	}
	if v.look.only13 != nil {
		v.Fail("tls-13-only", "TLS 1.2 is not accepted: %v", v.look.only13)
	} else {
		v.OK("tls-versions", "TLS 1.2 is accepted")
	}
	chain := v.look.Discovery.TLS.PeerCertificates
	v.checkChain(chain)
	v.checkExpiry(chain)
}

// checkChain is stricter than Go's verification, as AWS is: leaf, then each certificate's signer, nothing else.
func (v *visit) checkChain(chain []*x509.Certificate) {
	for i := 1; i < len(chain); i++ {
		if !bytes.Equal(chain[i-1].RawIssuer, chain[i].RawSubject) || chain[i-1].CheckSignatureFrom(chain[i]) != nil || chain[i].Equal(chain[i-1]) {
			v.Fail("tls-order", "the certificate chain is out of order: %s did not sign %s before it", subject(chain[i]), subject(chain[i-1]))
			return
		}
	}
	if v.o.RootCAs != nil && !bySystem(v.url.Host(), chain) {
		v.OK("tls-chain", "the certificate chain is trusted by --ca-file only, and in order (%d sent): AWS takes it if its provider has the CA's thumbprint, Google Cloud and Entra never do", len(chain))
		return
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
			v.Warn("tls-expired", "certificate %s expires at %s", subject(c), stamp(c.NotAfter))
			return
		}
	}
	v.OK("tls-expiry", "the certificate is valid until %s", stamp(chain[0].NotAfter))
}
