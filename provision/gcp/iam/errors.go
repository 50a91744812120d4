package iam

import (
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/internal/rest"
)

// Error is an error about which the caller can do something.
type Error = cloud.Error[Problem]

// Problem is the kind of an [Error].
type Problem = rest.Problem

// The problems. Any call may have one of the first six.
const (
	NoCredentials = rest.NoCredentials // none were found
	WrongProject  = rest.WrongProject  // the credentials see no such project
	IssuerRefused = rest.IssuerRefused // the organisation lets no such issuer into pools
	ServiceOff    = rest.ServiceOff    // an API that is needed is not enabled in the project
	Denied        = rest.Denied        // the caller lacks a permission
	QuotaUsed     = rest.QuotaUsed     // the project has as many accounts or roles as it may have

	NotOwned       = rest.NotOwned       // a pool, provider, account or role is somebody else's, and may be adopted
	OtherIssuer    = rest.OtherIssuer    // a provider trusts another issuer, and a cluster may live by that
	PoolUnusable   = rest.PoolUnusable   // a pool that is to be used is missing, deleted or disabled
	PoolInUse      = rest.PoolInUse      // a pool that would go is used by accounts of other installations
	NothingToMove  = rest.NothingToMove  // no cluster lives by the provider from which it is to move, or by another issuer
	UnknownCopy    = rest.UnknownCopy    // a provider holds a copy of other keys, and nobody knows whether the store is behind it
	NoProvider     = rest.NoProvider     // a provider is missing or deleted: it takes no token
	AccountsDiffer = rest.AccountsDiffer // the accounts of a cluster that is to move are not what its requests ask for
)
