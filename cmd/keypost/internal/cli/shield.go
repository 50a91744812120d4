package cli

import (
	"crypto/tls"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/issuer/verify"
)

// ShieldFlags say what is shown to origins that answer their CDN only. The values are in files: arguments are for every user
// of the machine to see.
type ShieldFlags struct {
	header, cert, key string
	origins           []string
}

// Register defines the flags.
func (s *ShieldFlags) Register(fs *pflag.FlagSet) {
	fs.StringVar(&s.header, "origin-header-file", "", "`FILE` with \"NAME: VALUE\": the header that origins behind a CDN ask for (listen.shield of keypostd)")
	fs.StringVar(&s.cert, "origin-cert", "", "PEM file with the client certificate that origins behind a CDN ask for")
	fs.StringSliceVar(&s.origins, "origin", nil, "`HOST[:PORT]` of an origin that is yours, as the policy names it: --origin-header-file and --origin-cert are for it alone; may be repeated")
	fs.StringVar(&s.key, "origin-key", "", "PEM file with the key of --origin-cert")
}

// maxShieldFile bounds the file of a header, in bytes.
const maxShieldFile = 16 << 10

// Read reads the files. Connects is true with --connect: the shield is shown to that address then.
func (s *ShieldFlags) Read(connects bool) (verify.Shield, error) {
	shield := verify.Shield{Origins: s.origins}
	if given := s.header+s.cert+s.key != ""; given && len(s.origins) == 0 && !connects || !given && len(s.origins) > 0 {
		return shield, Usagef("--origin-header-file and --origin-cert go with --origin HOST, the origin that they are shown to: a key set's own policy may name anybody's server")
	}
	if s.header != "" {
		text, err := regular.Read(s.header, maxShieldFile)
		if err != nil {
			return shield, err
		}
		name, value, found := strings.Cut(strings.TrimRight(string(text), "\r\n"), ":")
		shield.Header, shield.Value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !found || shield.Header == "" || shield.Value == "" || strings.ContainsAny(shield.Header+shield.Value, "\r\n\x00") || strings.ContainsAny(shield.Header, " \t") {
			return shield, fmt.Errorf("read %s: it does not hold one header; write NAME: VALUE, as the CDN sends it", OneLine(s.header)) // never what it holds
		}
	}
	if (s.cert == "") != (s.key == "") {
		return shield, Usagef("--origin-cert and --origin-key go together")
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return shield, fmt.Errorf("read the client certificate for origins: %w", err)
		}
		shield.Certificates = []tls.Certificate{pair}
	}
	return shield, nil
}
