package gcp

import "golang.org/x/oauth2"

// OpenWith is Open with an access token, and no look at the environment.
func OpenWith(token string, a Access) *Client {
	c := newClient(a)
	c.universe, c.found = "googleapis.com", found{source: "test"}
	c.tokens = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token})
	return c
}
