package verify

import "net/http"

// ThroughProxy has the Client go through the proxy of the environment, if there is one for a URL (HTTPS_PROXY, NO_PROXY).
// TLS is spoken with the issuer itself. What is seen so is what the proxy is answered: it says little about the issuer's
// single addresses.
func (c *Client) ThroughProxy() *Client {
	if t, ok := c.http.Transport.(*http.Transport); ok {
		t.Proxy = http.ProxyFromEnvironment
	}
	return c
}
