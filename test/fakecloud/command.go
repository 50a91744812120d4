package fakecloud

import (
	"context"
	"crypto/x509"
	"flag"
	"fmt"
	"net"
	"os"
)

// Flags are those that the programs that serve fakes have in common.
type Flags struct {
	Listen         string // address to listen on
	roots, issuers string
}

// NewFlags adds the flags to those of the process, which is to parse them.
func NewFlags() *Flags {
	f := &Flags{}
	flag.StringVar(&f.Listen, "listen", "127.0.0.1:0", "`address` to listen on")
	flag.StringVar(&f.roots, "ca-file", "", "PEM `file` of the CAs that issuers' certificates are from")
	flag.StringVar(&f.issuers, "issuers", "", "`address` at which every issuer is reached, or direct; empty: none is")
	return f
}

// Issuers is how issuers are reached, and which CAs are trusted, once the flags were parsed.
func (f *Flags) Issuers() (Dial, *x509.CertPool, error) {
	roots, err := Pool(f.roots)
	return Dialer(f.issuers), roots, err
}

// Announce prints the URL of a server, and then, a line each, what a client needs in its environment.
func Announce(url string, environment []string) {
	fmt.Println(url)
	for _, line := range environment {
		fmt.Println(line)
	}
}

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
