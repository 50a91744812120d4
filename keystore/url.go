package keystore

import "github.com/keypost/keypost/keystore/issuerurl"

type (
	// IssuerURL is an issuer's `iss`; see package issuerurl.
	IssuerURL = issuerurl.URL
	// Route is what requests for an issuer are looked up by.
	Route = issuerurl.Route
)

// ParseIssuerURL parses a URL that every relying party reads alike; a dev URL may have a port and a host that is not public.
func ParseIssuerURL(raw string, dev bool) (IssuerURL, error) { return issuerurl.Parse(raw, dev) }
