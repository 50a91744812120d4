package iam

import (
	"context"

	"golang.org/x/oauth2"

	"github.com/keypost/keypost/provision/gcp/rest"
)

// OpenWith is Open with an access token, and no look at the environment.
func OpenWith(token string, a rest.Access) *Client {
	a.Tokens = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token})
	c, _ := Open(context.Background(), a) // only credentials that have to be found can be missing
	return c
}
