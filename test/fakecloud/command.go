package fakecloud

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// Dial reaches issuers. The address is that of the URL, host:443.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer is the Dial that a flag says: an address at which every issuer is, or "direct". It is nil for an empty one.
func Dialer(issuers string) Dial {
	if issuers == "" {
		return nil
	}
	var d net.Dialer
	if issuers == "direct" {
		return d.DialContext
	}
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return d.DialContext(ctx, network, issuers)
	}
}

// Pool reads the CAs in a PEM file; it is nil for an empty name.
func Pool(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return p, nil
}
