package finding

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// OfCertificate returns the cause's code for a certificate that is not trusted.
func OfCertificate(bad *tls.CertificateVerificationError) string {
	if _, ok := errors.AsType[x509.HostnameError](bad); ok {
		return "tls-name"
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](bad); ok && e.Reason == x509.Expired {
		return "tls-expired"
	}
	return "tls-untrusted"
}

// ShieldBody is what keypostd answers with status 403 to anyone who does not show what listen.shield asks for.
const ShieldBody = "this server answers its CDN only\n"
