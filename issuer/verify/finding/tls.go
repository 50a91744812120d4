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
	if _, ok := errors.AsType[x509.UnknownAuthorityError](bad); ok && len(bad.UnverifiedCertificates) == 1 && len(bad.UnverifiedCertificates[0].IssuingCertificateURL) > 0 {
		return "tls-incomplete" // its CA says where the next one is to be had; the CA of a lone certificate without that may be a root
	}
	return "tls-untrusted"
}

// ShieldBody is what keypostd answers with status 403 to whoever does not show what listen.shield asks for.
const ShieldBody = "this server answers its CDN only\n"
