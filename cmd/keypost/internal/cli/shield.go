package cli

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
)

// ShieldFlags say what is shown to origins that answer their CDN only. The values are in files: arguments are for every user
// of the machine to see.
type ShieldFlags struct {
	header, cert, key string
	origins           []string
}

// Register defines the flags.
func (s *ShieldFlags) Register(fs *pflag.FlagSet) {
	s.RegisterFiles(fs)
	fs.StringSliceVar(&s.origins, "origin", nil, "`HOST[:PORT]` of an origin that is yours, as the policy names it: --origin-header-file and --origin-cert are for it alone; with --connect, that it is this origin, which may have a certificate for its own name only; may be repeated")
}

// ShieldFiles are the names of the flags that RegisterFiles defines.
func ShieldFiles() []string { return []string{"origin-header-file", "origin-cert", "origin-key"} }

// RegisterFiles defines the flags for a command that has an --origin of its own, for the policy.
func (s *ShieldFlags) RegisterFiles(fs *pflag.FlagSet) {
	fs.StringVar(&s.header, "origin-header-file", "", "`FILE` with \"NAME: VALUE\": the header that origins behind a CDN ask for (listen.shield of keypostd)")
	fs.StringVar(&s.cert, "origin-cert", "", "PEM `FILE` with the client certificate that origins behind a CDN ask for")
	fs.StringVar(&s.key, "origin-key", "", "PEM `FILE` with the key of --origin-cert")
}

func (s *ShieldFlags) given() bool { return s.header+s.cert+s.key != "" }

// CheckNamed returns an error unless a policy has each of the origins: no other is asked. Names are those of the policies.
func (s *ShieldFlags) CheckNamed(n keystore.Name, named []string) error {
	for _, o := range s.origins {
		if (fetch.Shield{Origins: named}).IsFor(o) {
			continue
		}
		set := Command{"issuer", "set", string(n)}
		for _, all := range append(slices.Clone(named), o) {
			set = append(set, "--origin", all)
		}
		near := Nearest(strings.ToLower(o), named)
		err := fmt.Errorf("the origin %s was not asked: the policy of key set %q does not name it%s%s", OneLine(o), n, origins(named), DidYouMean("--origin ", near))
		if near != "" {
			return err
		}
		return WithHint(err, "%s", set)
	}
	return nil
}

// origins says which ones a policy has.
func origins(named []string) string {
	if len(named) == 0 {
		return ""
	}
	return ", it has " + OneLine(strings.Join(named, ", "))
}

// Of returns the flags for a command that is to show the same to origins; none where no file was given.
func (s *ShieldFlags) Of(origins []string) Command {
	var c Command
	if !s.given() {
		return c
	}
	for _, o := range origins {
		c = append(c, "--origin", o)
	}
	for i, file := range []string{s.header, s.cert, s.key} {
		if file != "" {
			c = append(c, "--"+ShieldFiles()[i], file)
		}
	}
	return c
}

// maxShieldFile bounds the file of a header, in bytes.
const maxShieldFile = 16 << 10

// maxShieldPEM bounds a client certificate with its chain, and its key, in bytes each.
const maxShieldPEM = 1 << 20

// Read reads the files. Connects is true with --connect: the shield is shown to that address then, and --origin says which origin
// that is.
func (s *ShieldFlags) Read(connects bool) (fetch.Shield, error) {
	if !s.given() && len(s.origins) > 0 && !connects {
		return fetch.Shield{}, Usagef("--origin %s: say what is shown to it, with --origin-header-file or --origin-cert; which origins are asked is in the policy of the key set (issuer set --origin)", strings.Join(s.origins, ","))
	}
	return s.ReadFor(s.origins, connects)
}

func errNoShield() error {
	return Usagef("--origin-header-file and --origin-cert go with --origin HOST, the origin that they are shown to: a key set's own policy may name anybody's server")
}

// ReadFor is Read for a command whose own --origin has named origins.
func (s *ShieldFlags) ReadFor(origins []string, connects bool) (fetch.Shield, error) {
	shield := fetch.Shield{Origins: origins}
	if s.given() && len(origins) == 0 && !connects {
		return shield, errNoShield()
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
		pair, err := s.pair()
		if err != nil {
			return shield, fmt.Errorf("read the client certificate for origins: %w", err)
		}
		shield.Certificates = []tls.Certificate{pair}
	}
	return shield, nil
}

// pair reads the client certificate.
func (s *ShieldFlags) pair() (tls.Certificate, error) {
	cert, err := readFile(s.cert, maxShieldPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readFile(s.key, maxShieldPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}
