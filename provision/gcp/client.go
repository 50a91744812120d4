package gcp

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/keypost/keypost/provision/cloud"
)

// Parallel is how many changes are made at once. IAM takes 600 writes a minute of a whole project, and an installation has about 30
// (https://cloud.google.com/iam/quotas).
const Parallel = 8

// ParallelCalls is how many calls of a client are under way at once, most of them reads.
const ParallelCalls = 20

// Access says which project is meant and how it is reached.
type Access struct {
	Project string // its ID or its number

	// Transport makes all calls, those for tokens too; nil for one that obeys HTTPS_PROXY.
	Transport http.RoundTripper

	Consistency time.Duration // how long Google may take to show what was written; zero for 5 minutes

	// OnWait is called every 10 seconds for each call or change that takes that long, from any goroutine.
	OnWait func(cloud.Wait)
}

// Client calls IAM and Resource Manager for one project. Its methods may be called concurrently.
type Client struct {
	access   Access
	found    found
	tokens   oauth2.TokenSource
	universe string
	quota    string // project that calls count against; empty for the credentials' own
	http     *http.Client
	api      cloud.API
	slots    chan struct{} // holds an element for each call that is under way

	mu      sync.Mutex
	project *Project // nil until it was read
}

// Open returns a Client with the credentials that ccoctl would take: of the environment variables GOOGLE_CREDENTIALS,
// GOOGLE_CLOUD_KEYFILE_JSON and GCLOUD_KEYFILE_JSON, each a file or its content; of ~/.gcp/osServiceAccount.json; else the
// application default ones. It never asks anybody, and calls nobody but the metadata server of a machine in Google Cloud. The
// error is of the problem [NoCredentials].
func Open(ctx context.Context, a Access) (*Client, error) {
	c := newClient(a)
	// Tokens are fetched again long after ctx has ended; only what it carries is taken along.
	ctx = context.WithValue(context.WithoutCancel(ctx), oauth2.HTTPClient, &http.Client{Transport: c.http.Transport, Timeout: attemptTime})
	if err := c.authenticate(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// newClient returns a client that lacks its credentials.
func newClient(a Access) *Client {
	if a.Consistency == 0 {
		a.Consistency = 5 * time.Minute // https://cloud.google.com/iam/docs/access-change-propagation: "in most cases … within 2 minutes"
	}
	if a.OnWait == nil {
		a.OnWait = func(cloud.Wait) {}
	}
	if a.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = ParallelCalls
		a.Transport = t
	}
	once := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // Google's methods send nobody elsewhere
	return &Client{
		access: a, http: &http.Client{Transport: a.Transport, CheckRedirect: once}, slots: make(chan struct{}, ParallelCalls),
		api: cloud.API{Name: "Google Cloud", Consistency: a.Consistency, CallTime: callTime, OnWait: a.OnWait},
	}
}

// Source says where the credentials were found, as ccoctl's line "Credentials loaded from …" ends.
func (c *Client) Source() string { return c.found.source }

// Project returns the project that is meant, which is asked for once. The error is of the problem [WrongProject] if the
// credentials do not see it, or see another.
func (c *Client) Project(ctx context.Context) (Project, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.project != nil {
		return *c.project, nil
	}
	var out struct {
		ID     string `json:"projectId"`
		Number string `json:"projectNumber"`
		State  string `json:"lifecycleState"`
	}
	meant := c.access.Project
	err := c.ask(ctx, call{service: resourceManager, name: "GetProject", needs: "resourcemanager.projects.get", path: "projects/" + meant}, &out)
	switch {
	case isMissing(err) || is(err, Denied):
		return Project{}, problem(WrongProject, "the credentials see no project %q, or may not read it: %w", meant, err)
	case err != nil:
		return Project{}, err
	case meant != out.ID && meant != out.Number || !isNumber(out.Number):
		return Project{}, problem(WrongProject, "project %q was asked for, and Google answered with project %q, number %q", meant, out.ID, out.Number)
	case out.State != "" && out.State != active:
		return Project{}, problem(WrongProject, "project %s is not active (%s)", out.ID, out.State)
	}
	c.project = &Project{ID: out.ID, Number: out.Number, Universe: c.universe, Caller: c.found.caller()}
	return *c.project, nil
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// active is the state of what is neither deleted nor about to be.
const active = "ACTIVE"

// asJSON marshals a value made of strings, lists and maps, which cannot fail.
func asJSON(v any) []byte {
	out, _ := json.Marshal(v)
	return out
}
