// Package rest asks the services of Google Cloud for one project, over REST. It finds the credentials where ccoctl does, makes calls
// with their retries, reads lists to their end, awaits operations, makes steps of calls for package cloud, and explains errors: which
// call failed, for what reason, what to do. It knows no method of any service.
package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"golang.org/x/oauth2"

	"github.com/keypost/keypost/provision/cloud"
)

// Parallel is how many reads of one kind are under way at once.
const Parallel = 20

// domain is that of Google's own services. Secrets name those of no other.
const domain = "googleapis.com"

// consistency is how long Google may take to show what was written
// (https://cloud.google.com/iam/docs/access-change-propagation: "in most cases … within 2 minutes").
const consistency = 5 * time.Minute

// Access says which project is meant and how it is reached.
type Access struct {
	Project string // its ID or its number

	// Transport makes all calls, those for tokens too; nil for one that obeys HTTPS_PROXY.
	Transport http.RoundTripper

	// OnWait is called every 2 seconds for each call or change under way, from any goroutine.
	OnWait func(cloud.Wait)

	Tokens oauth2.TokenSource // access tokens; nil for those of the credentials that are found
}

// Client makes calls. Its methods may be called concurrently.
type Client struct {
	API cloud.API // for changes

	access Access
	found  found
	tokens oauth2.TokenSource
	quota  string // project that calls count against; empty for the credentials' own
	http   *http.Client
}

// Open returns a Client with the credentials that ccoctl would take: of the environment variables GOOGLE_CREDENTIALS,
// GOOGLE_CLOUD_KEYFILE_JSON and GCLOUD_KEYFILE_JSON, each a file or its content; of ~/.gcp/osServiceAccount.json; else the
// application default ones. It never asks anybody, and calls nobody but the metadata server of a machine in Google Cloud. The
// error has the problem [NoCredentials].
func Open(ctx context.Context, a Access) (*Client, error) {
	c := newClient(a)
	if a.Tokens != nil {
		c.found, c.tokens = found{source: "caller"}, a.Tokens
		return c, nil
	}
	// Tokens are fetched again long after ctx has ended; only what it carries is taken along.
	// A redirect would take what asks for a token, which the caller has signed, to wherever it leads, also without TLS.
	ctx = context.WithValue(context.WithoutCancel(ctx), oauth2.HTTPClient,
		&http.Client{Transport: c.http.Transport, CheckRedirect: c.http.CheckRedirect, Timeout: attemptTime})
	if err := c.authenticate(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// newClient returns a client that does not have its credentials.
func newClient(a Access) *Client {
	if a.OnWait == nil {
		a.OnWait = func(cloud.Wait) {}
	}
	if a.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = Parallel
		a.Transport = t
	}
	once := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // Google's methods send nobody elsewhere
	return &Client{
		access: a, http: &http.Client{Transport: a.Transport, CheckRedirect: once},
		API: cloud.API{Name: "Google Cloud", Consistency: consistency, CallTime: callTime, FirstPause: time.Second, OnWait: a.OnWait},
	}
}

// Source says where the credentials were found, as ccoctl's line "Credentials loaded from …" ends.
func (c *Client) Source() string { return c.found.source }

// Caller is the email of the credentials' account; empty if they do not say.
func (c *Client) Caller() string { return c.found.caller() }

// JSON marshals a value made of strings, lists and maps, which cannot fail.
func JSON(v any) []byte {
	out, _ := json.Marshal(v)
	return out
}
