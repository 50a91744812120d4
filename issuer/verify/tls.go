package verify

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// checkTLS shakes hands twice, once for each version: AWS falls back to configured thumbprints when an issuer offers
// TLS 1.3 only.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
func (v *visit) checkTLS(ctx context.Context) bool {
	state12, err12 := v.handshake(ctx, tls.VersionTLS12)
	state13, err13 := v.handshake(ctx, tls.VersionTLS13)
	switch {
	case err12 != nil && err13 != nil:
		v.unreachable(err12, err13)
		return false
	case err12 != nil:
		v.fail("tls-versions", awsThumbprint+"; offer TLS 1.2 as well", "TLS 1.2 is not accepted: %v", err12)
		state12 = state13
	case err13 != nil:
		v.warn("tls-versions", "offer TLS 1.3 as well", "TLS 1.3 is not accepted: %v", err13)
	default:
		v.ok("tls-versions", "TLS 1.2 and 1.3 are accepted")
	}
	v.checkChain(state12.PeerCertificates)
	v.checkExpiry(state12.PeerCertificates)
	return true
}

func (v *visit) handshake(ctx context.Context, version uint16) (tls.ConnectionState, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := v.client.dial(ctx, "tcp", v.address())
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = conn.Close() }()
	tc := tls.Client(conn, &tls.Config{ServerName: v.url.Host(), RootCAs: v.client.roots, MinVersion: version, MaxVersion: version})
	if err := tc.HandshakeContext(ctx); err != nil {
		return tls.ConnectionState{}, err
	}
	return tc.ConnectionState(), nil
}

// address is host:port of the issuer; only development URLs have a port.
func (v *visit) address() string {
	authority, _, _ := strings.Cut(strings.TrimPrefix(v.o.URL, "https://"), "/")
	if _, port, err := net.SplitHostPort(authority); err == nil {
		return net.JoinHostPort(v.url.Host(), port)
	}
	return net.JoinHostPort(v.url.Host(), "443")
}

func (v *visit) unreachable(err12, err13 error) {
	for _, err := range []error{err12, err13} {
		if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			v.fail("tls-chain", awsNoKey+" or "+strings.TrimPrefix(awsThumbprint, "AWS STS says ")+chainHint(bad), "the certificate of %s is not trusted: %v", v.url.Host(), bad.Err)
			return
		}
	}
	hint := awsNoKey + "; check DNS, firewall and that keypostd listens there"
	if dnsErr, ok := errors.AsType[*net.DNSError](err12); ok && dnsErr.IsNotFound {
		hint = awsNoKey + "; the name needs a public DNS record"
	}
	v.fail("reach", hint, "%s cannot be reached: %v", v.address(), err12)
}

func chainHint(bad *tls.CertificateVerificationError) string {
	if _, ok := errors.AsType[x509.HostnameError](bad); ok {
		return "; use a certificate for this host name"
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](bad); ok && e.Reason == x509.Expired {
		return "; renew the certificate (and check this machine's clock)"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](bad); ok && len(bad.UnverifiedCertificates) == 1 {
		return "; the server sends only its own certificate: add the intermediate ones, or give a private CA with --ca-file"
	}
	return "; use a certificate of a public CA, or give a private CA with --ca-file"
}

// checkChain is stricter than Go's verification, as AWS is: leaf, then each certificate's signer, nothing else.
func (v *visit) checkChain(chain []*x509.Certificate) {
	hint := awsNoKey + "; send the leaf first and after each certificate the one that signed it, nothing else"
	for i := 1; i < len(chain); i++ {
		for j := range i {
			if chain[i].Equal(chain[j]) {
				v.fail("tls-chain", hint, "the server sends certificate %s twice", subject(chain[i]))
				return
			}
		}
		if !bytes.Equal(chain[i-1].RawIssuer, chain[i].RawSubject) || chain[i-1].CheckSignatureFrom(chain[i]) != nil {
			v.fail("tls-chain", hint, "the certificate chain is out of order: %s did not sign %s before it", subject(chain[i]), subject(chain[i-1]))
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
			v.warn("tls-expiry", "renew it; once it has expired every token exchange fails", "certificate %s expires at %s", subject(c), c.NotAfter.UTC().Format(time.RFC3339))
			return
		}
	}
	if len(chain) > 0 {
		v.ok("tls-expiry", "the certificate is valid until %s", chain[0].NotAfter.UTC().Format(time.RFC3339))
	}
}
