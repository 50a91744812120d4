package keystore

import "github.com/keypost/keypost/keystore/issuerurl"

// IssuerURL is an issuer's `iss`, and Route what requests for it are looked up by (package issuerurl).
type (
	IssuerURL = issuerurl.URL
	Route     = issuerurl.Route
)

// RouteOf returns the Route of an issuer URL given as text.
func RouteOf(url string) Route { return issuerurl.RouteOf(url) }

// ParseIssuerURL parses a URL that every relying party reads alike; a dev URL may have a port and a host that is not public.
func ParseIssuerURL(raw string, dev bool) (IssuerURL, error) { return issuerurl.Parse(raw, dev) }
