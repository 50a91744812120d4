package awsiam

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/keypost/keypost/internal/awsconf"
	"github.com/keypost/keypost/internal/text"
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

// explain returns an error that names the failed call and the reason.
func explain(err error) error {
	return awsconf.Explain(err, func(op *smithy.OperationError) string {
		return strings.ToLower(op.ServiceID) + ":" + op.OperationName
	}, reason)
}

// reason returns a sentence for errors that the user can do something about, else "".
func reason(call string, err error) string {
	if errors.Is(err, context.Canceled) {
		return call + ": interrupted"
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return refusal(call, api)
	}
	if cloud.NobodyListens(err) {
		return call + ": AWS cannot be reached; see the network, the region and HTTPS_PROXY (" + innermost(err) + ")"
	}
	return ""
}

func refusal(call string, api smithy.APIError) string {
	code, message := api.ErrorCode(), api.ErrorMessage()
	switch code {
	case "AccessDenied", "AccessDeniedException":
		return fmt.Sprintf("the caller's policy does not allow %s (AWS says: %s)", call, message)
	case "ExpiredToken", "RequestExpired", "InvalidClientTokenId", "SignatureDoesNotMatch", "IncompleteSignature":
		return fmt.Sprintf("the caller's credentials are not good for %s: %s (%s)", call, message, code)
	case "OpenIdIdpCommunicationError":
		return fmt.Sprintf("%s: IAM cannot reach the issuer to learn its certificate; publish it first, or give a thumbprint (AWS says: %s)",
			call, message)
	}
	return ""
}

// brief returns the error of one attempt in few words.
func brief(err error) error {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return fmt.Errorf("%s (%s)", api.ErrorMessage(), api.ErrorCode())
	}
	return errors.New(innermost(err))
}

// innermost returns the message of the network error, without what the SDK wraps around it.
func innermost(err error) string {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return oneLine(e)
	}
	return oneLine(err)
}

// oneLine returns the message of an error on one line. The SDK's may have several.
func oneLine(err error) string { return text.Sentence(err.Error(), 0) }
