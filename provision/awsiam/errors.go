package awsiam

import (
	"fmt"

	"github.com/keypost/keypost/provision/cloud"
)

// Error is an error about which the caller can do something.
type Error = cloud.Error[Problem]

// Problem is the kind of an [Error].
type Problem int

// The problems.
const (
	NoRegion     Problem = iota + 1 // none is configured, and the account may need one
	NotOwned                        // a provider or a role has no owner's tag, and may be adopted
	OthersThing                     // a provider or a role has another owner's tag
	ForeignRoles                    // roles trust the old issuer and not the new one, and some have no owner's tag and may be adopted
	OthersRoles                     // the same, and all have another owner's tag
	Stranded                        // roles would trust nobody without the issuer that is to be deleted
	NeedsPrune                      // a policy cannot be extended without removing permissions
	TrustTooLong                    // a trust policy has more characters than the account's quota allows
)

func problem(p Problem, format string, args ...any) error {
	return &Error{Problem: p, Err: fmt.Errorf(format, args...)}
}
