package iam

import (
	"context"
	"sync"

	"github.com/keypost/keypost/provision/gcp/internal/rest"
)

// Parallel is how many changes are made at once. IAM takes 600 writes a minute of a whole project, and an installation has about 30
// (https://cloud.google.com/iam/quotas).
const Parallel = 8

// Access says which project is meant and how it is reached.
type Access = rest.Access

// Client calls IAM and Resource Manager for one project. Its methods may be called concurrently.
type Client struct {
	rest  *rest.Client
	meant string // ID or number of the project

	mu      sync.Mutex
	project *Project // nil until it was read
}

// Open returns a Client, with the credentials that ccoctl would take unless some are given: see [rest.Open]. It calls nobody but the
// metadata server of a machine in Google Cloud. The error is of the problem [NoCredentials].
func Open(ctx context.Context, a Access) (*Client, error) {
	c, err := rest.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return &Client{rest: c, meant: a.Project}, nil
}

// Source says where the credentials were found, as ccoctl's line "Credentials loaded from …" ends.
func (c *Client) Source() string { return c.rest.Source() }

// Project returns the project that is meant, which is asked for once. The error is of the problem [WrongProject] if the
// credentials do not see it.
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
	meant := c.meant
	err := c.rest.Ask(ctx, rest.Call{Service: rest.ResourceManager, Name: "GetProject", Needs: "resourcemanager.projects.get", Path: "projects/" + meant}, &out)
	switch {
	case rest.IsMissing(err) || rest.Is(err, Denied):
		return Project{}, rest.Problemf(WrongProject, "the credentials see no project %q, or may not read it: %w", meant, err)
	case err != nil:
		return Project{}, err
	case out.State != "" && out.State != active:
		return Project{}, rest.Problemf(WrongProject, "project %s is not active (%s)", out.ID, out.State)
	}
	c.project = &Project{ID: out.ID, Number: out.Number, Caller: c.rest.Caller()}
	return *c.project, nil
}

// active is the state of what is neither deleted nor about to be.
const active = "ACTIVE"
