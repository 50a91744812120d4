package iam

import (
	"fmt"

	"github.com/keypost/keypost/provision/cloud"
)

// Error is an error about which the caller can do something. Those of calls are in package arm.
type Error = cloud.Error[Problem]

// Problem is the kind of an [Error].
type Problem int

// The problems.
const (
	WrongTenant    Problem = iota + 1 // the subscription belongs to another tenant than the one that is meant
	NotOwned                          // a thing does not have the owner's tag, and may be adopted
	OtherIssuer                       // identities trust another issuer, and a cluster may live by that
	WrongAlgorithm                    // a key signs with something that Entra does not take
	NameTaken                         // another subscription of the tenant has a custom role of that name
	OtherGroup                        // the identities that have the roles are not in the resource group that was named
	OthersInGroup                     // a resource group that is to be deleted has things of somebody else
	UnknownIssuer                     // no key set of the store has the issuer URL, and identities would trust it from now on
)

// Refuse returns the error for a problem.
func Refuse(p Problem, format string, args ...any) error {
	return &Error{Problem: p, Err: fmt.Errorf(format, args...)}
}
