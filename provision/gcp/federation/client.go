// Package federation registers issuers with a project of Google Cloud: a workload identity pool, and in it a provider, which may be given a copy
// of the keys. It knows whose each is by its description, and changes nothing of somebody else's unless that is to be adopted.
package federation

import (
	"context"
	"strings"
	"sync"

	"github.com/keypost/keypost/provision/gcp/rest"
)

// Project is a Google Cloud project.
type Project struct {
	ID     string // "my-project"
	Number string // "123456789012"
	Caller string // the email of the credentials' account; empty if they do not say
}

// PoolName returns the full name of a pool: projects/NUMBER/locations/global/workloadIdentityPools/ID.
func (p Project) PoolName(pool string) string {
	return "projects/" + p.Number + "/locations/global/workloadIdentityPools/" + pool
}

// ProviderName returns the full name of a provider: PoolName/providers/ID.
func (p Project) ProviderName(pool, provider string) string {
	return p.PoolName(pool) + "/providers/" + provider
}

// Audience returns what a credential configuration names as its audience: "//iam.googleapis.com/" and the provider's full
// name. The host is the same in every universe.
func (p Project) Audience(pool, provider string) string {
	return "//iam.googleapis.com/" + p.ProviderName(pool, provider)
}

// Email returns the email of the service account with an ID. A project of the older sort, DOMAIN:NAME, has NAME.DOMAIN there.
func (p Project) Email(accountID string) string {
	place := p.ID
	if domain, name, old := strings.Cut(p.ID, ":"); old {
		place = name + "." + domain
	}
	return accountID + "@" + place + ".iam.gserviceaccount.com"
}

// Client calls IAM and Resource Manager for one project. Its methods may be called concurrently.
type Client struct {
	Rest  *rest.Client
	meant string // ID or number of the project

	mu      sync.Mutex
	project *Project // nil until it was read
}

// Open returns a Client, with the credentials that ccoctl would take unless some are given: see [rest.Open]. It calls nobody but the
// metadata server of a machine in Google Cloud. The error has the problem [rest.NoCredentials].
func Open(ctx context.Context, a rest.Access) (*Client, error) {
	c, err := rest.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return &Client{Rest: c, meant: a.Project}, nil
}

// Source says where the credentials were found, as ccoctl's line "Credentials loaded from …" ends.
func (c *Client) Source() string { return c.Rest.Source() }

// Project returns the project that is meant, which is asked for once. The error has the problem [rest.WrongProject] if the
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
	err := c.Rest.Ask(ctx, rest.Call{Service: rest.ResourceManager, Name: "GetProject", Needs: "resourcemanager.projects.get", Path: "projects/" + meant}, &out)
	switch {
	case rest.IsMissing(err) || rest.Is(err, rest.Denied):
		return Project{}, rest.Problemf(rest.WrongProject, "the credentials see no project %q, or may not read it: %w", meant, err)
	case err != nil:
		return Project{}, err
	case out.State != "" && out.State != active:
		return Project{}, rest.Problemf(rest.WrongProject, "project %s is not active (%s)", out.ID, out.State)
	}
	c.project = &Project{ID: out.ID, Number: out.Number, Caller: c.Rest.Caller()}
	return *c.project, nil
}

// active is the state of what is neither deleted nor about to be.
const active = "ACTIVE"
