package verify

import (
	"crypto/x509"
	"slices"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
)

// Examination is what a visit found, and what it saw that others compare with: a cluster's keys, an account's thumbprints.
type Examination struct {
	Findings []finding.Finding
	Keys     []keystore.VerificationKey // at jwks_uri, of all addresses, or the stored ones where nobody reads that; nil if they cannot be read
	Chain    []*x509.Certificate        // that the issuer's host sends, the leaf first; nil if there was no TLS connection
	PublicCA bool                       // the system's CAs vouch for Chain, whatever RootCAs are
}

// see keeps what the visits of an issuer's addresses saw.
func (e *Examination) see(host string, visits []*visit) {
	for _, one := range visits {
		if one.look.Origin {
			continue // relying parties are not sent there
		}
		if one.read && e.Keys == nil {
			e.Keys = []keystore.VerificationKey{}
		}
		for _, k := range one.published {
			if !slices.ContainsFunc(e.Keys, k.Equal) {
				e.Keys = append(e.Keys, k)
			}
		}
		for _, h := range []handshake{one.look.TLS12, one.look.TLS13} {
			if chain := h.State.PeerCertificates; e.Chain == nil && len(chain) > 0 && chain[0].VerifyHostname(host) == nil {
				e.Chain = h.State.PeerCertificates
				e.PublicCA = bySystem(host, e.Chain)
			}
		}
	}
}

// bySystem reports whether the system's CAs vouch for a chain.
func bySystem(host string, chain []*x509.Certificate) bool {
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{DNSName: host, Intermediates: between})
	return err == nil
}
