package finding

import "strings"

// Shown is what an origin is shown as its CDN would; nothing where it is not named as one that may see it.
type Shown struct {
	Header      string // its name; empty for none
	Certificate bool
}

// Refused returns the cause's code for an origin that answers 401 or 403.
func (s Shown) Refused() string {
	if s.Header == "" && !s.Certificate {
		return "origin-shielded"
	}
	return "origin-refused"
}

// String says what is shown.
func (s Shown) String() string {
	switch {
	case s.Header == "" && !s.Certificate:
		return "nothing"
	case s.Header == "":
		return "a client certificate"
	case !s.Certificate:
		return "the header " + s.Header
	}
	return "the header " + s.Header + " and a client certificate"
}

// OfHandshake returns the cause's code for an origin that broke off TLS with an error. Only an alert is a refusal: a balancer that has
// nobody to pass a connection to closes it without one.
func (s Shown) OfHandshake(err string) string {
	switch {
	case strings.Contains(err, "tls: internal error") || strings.Contains(err, "tls: unrecognized name"):
		return "origin-certificate" // what servers say that have none for the name; Go's says the former
	case !strings.Contains(err, "remote error: tls: "):
		return "origin-unreachable"
	case s.Certificate && (strings.Contains(err, "certificate") || strings.Contains(err, "access denied")):
		return "origin-cert-refused"
	}
	return "origin-shielded"
}

// ShieldBody is what keypostd answers with status 403 to whoever does not show what listen.shield asks for.
const ShieldBody = "this server answers its CDN only\n"
