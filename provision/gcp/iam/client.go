package iam

import (
	"context"

	"github.com/keypost/keypost/provision/gcp/internal/federation"
	"github.com/keypost/keypost/provision/gcp/internal/rest"
)

// Parallel is how many changes are made at once. IAM takes 600 writes a minute of a whole project, and an installation has about 30
// (https://cloud.google.com/iam/quotas).
const Parallel = 8

type (
	// Access is [rest.Access].
	Access = rest.Access
	// Project is [federation.Project].
	Project = federation.Project
	// Owner is [federation.Owner].
	Owner = federation.Owner
	// Pool is [federation.Pool].
	Pool = federation.Pool
	// Provider is [federation.Provider].
	Provider = federation.Provider
	// ProviderID is [federation.ProviderID].
	ProviderID = federation.ProviderID
	// Registered is [federation.Registered].
	Registered = federation.Registered
	// Trusted is [federation.Trusted].
	Trusted = federation.Trusted
	// UnusableError is [federation.UnusableError].
	UnusableError = federation.UnusableError
)

// OwnedBy returns the owner of what is made for the installation of this name.
func OwnedBy(name string) Owner { return federation.OwnedBy(name) }

// OwnedByKeypost returns the owner of accounts for workloads of any cluster. No installation's deletion deletes them.
func OwnedByKeypost() Owner { return federation.OwnedByKeypost() }

// CheckPoolID returns an error unless a pool or a provider, as what says, can have an ID.
func CheckPoolID(what, id string) error { return federation.CheckPoolID(what, id) }

// ParseProvider reads a provider's full name: projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/ID.
func ParseProvider(name string) (ProviderID, error) { return federation.ParseProvider(name) }

// SecondProviderID returns the ID of the provider to which the cluster of an installation moves for another issuer, the same in every run.
func SecondProviderID(installation, issuerURL string) string {
	return federation.SecondProviderID(installation, issuerURL)
}

// Client calls IAM and Resource Manager for one project. Its methods may be called concurrently.
type Client struct{ *federation.Client }

// Open returns a Client, with the credentials that ccoctl would take unless some are given: see [rest.Open]. It calls nobody but the
// metadata server of a machine in Google Cloud. The error is of the problem [NoCredentials].
func Open(ctx context.Context, a Access) (*Client, error) {
	c, err := federation.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}
