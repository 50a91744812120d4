package observe

import (
	"crypto/tls"
	"fmt"
	"os"
	"strings"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/issuer/verify/fetch"
)

// What this machine shows to origins that answer their CDN only is named by its environment. It is not in a key set's policy: anyone who
// may write a key set would name his own server there, and be shown the secret.
const (
	envOrigin = "KEYPOST_ORIGIN"             // HOST[:PORT],… as policies name them: nobody else is shown anything
	envHeader = "KEYPOST_ORIGIN_HEADER_FILE" // a file with NAME: VALUE
	envCert   = "KEYPOST_ORIGIN_CERT"        // PEM files
	envKey    = "KEYPOST_ORIGIN_KEY"
)

// maxShieldFile bounds the file of a header, in bytes.
const maxShieldFile = 16 << 10

// maxShieldPEM bounds a client certificate with its chain, and its key, in bytes each.
const maxShieldPEM = 1 << 20

// ReadShield reads what the environment names.
func ReadShield() (fetch.Shield, error) {
	var shield fetch.Shield
	for origin := range strings.SplitSeq(os.Getenv(envOrigin), ",") {
		if origin = strings.TrimSpace(origin); origin != "" {
			shield.Origins = append(shield.Origins, origin)
		}
	}
	header, cert, key := os.Getenv(envHeader), os.Getenv(envCert), os.Getenv(envKey)
	if len(shield.Origins) == 0 && header+cert+key != "" {
		return shield, cli.Usagef("%s and %s go with %s=HOST, the origin that they are shown to: a key set's own policy may name anybody's server",
			envHeader, envCert, envOrigin)
	}
	if header != "" {
		text, err := regular.Read(header, maxShieldFile)
		if err != nil {
			return shield, err
		}
		name, value, found := strings.Cut(strings.TrimRight(string(text), "\r\n"), ":")
		shield.Header, shield.Value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !found || shield.Header == "" || shield.Value == "" || strings.ContainsAny(shield.Header+shield.Value, "\r\n\x00") || strings.ContainsAny(shield.Header, " \t") {
			return shield, fmt.Errorf("read %s: it does not hold one header; write NAME: VALUE, as the CDN sends it", cli.OneLine(header)) // never what it holds
		}
	}
	if (cert == "") != (key == "") {
		return shield, cli.Usagef("%s and %s go together", envCert, envKey)
	}
	if cert != "" {
		pair, err := readPair(cert, key)
		if err != nil {
			return shield, fmt.Errorf("read the client certificate for origins: %w", err)
		}
		shield.Certificates = []tls.Certificate{pair}
	}
	return shield, nil
}

func readPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := cli.ReadPath(certFile, maxShieldPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := cli.ReadPath(keyFile, maxShieldPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}
