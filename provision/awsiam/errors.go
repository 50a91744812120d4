package awsiam

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/aws/smithy-go"
	"github.com/keypost/keypost/internal/text"
)

// callError is a call that AWS refused, in one sentence. It wraps the SDK's error.
type callError struct {
	sentence string
	err      error
}

func (e *callError) Error() string { return e.sentence }

func (e *callError) Unwrap() error { return e.err }

// explain says which call failed and why, without the SDK's request IDs and retry counts.
func explain(err error) error {
	op, ok := errors.AsType[*smithy.OperationError](err)
	if !ok {
		return err
	}
	call := strings.ToLower(op.ServiceID) + ":" + op.OperationName
	if errors.Is(err, context.Canceled) {
		return &callError{call + ": interrupted", err}
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return &callError{reason(call, api), err}
	}
	switch said := oneLine(op.Err); {
	case strings.Contains(said, "get identity: get credentials:") && strings.Contains(said, "no EC2 IMDS role found"):
		return &callError{call + ": no AWS credentials were found: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", err}
	case strings.Contains(said, "get identity: get credentials:"):
		_, reason, _ := strings.Cut(said, "get identity: get credentials: ")
		return &callError{call + ": the AWS credentials cannot be had: " + reason, err}
	case nobodyListens(err):
		return &callError{call + ": AWS cannot be reached; see the network, the region and HTTPS_PROXY (" + innermost(err) + ")", err}
	default:
		return &callError{call + ": " + said, err}
	}
}

// brief is what one attempt failed with, in few words.
func brief(err error) error {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return fmt.Errorf("%s (%s)", api.ErrorMessage(), api.ErrorCode())
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return errors.New(innermost(err))
	}
	return err
}

// innermost is the cause alone: what the network said.
func innermost(err error) string {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return oneLine(e)
	}
	return oneLine(err)
}

// oneLine makes the SDK's messages, which may have several lines, one.
func oneLine(err error) string { return text.Sentence(err.Error(), 0) }

func reason(call string, api smithy.APIError) string {
	code, message := api.ErrorCode(), api.ErrorMessage()
	switch code {
	case "AccessDenied", "AccessDeniedException":
		return fmt.Sprintf("the caller's policy does not allow %s (AWS says: %s)", call, message)
	case "ExpiredToken", "InvalidClientTokenId", "SignatureDoesNotMatch", "RequestExpired", "IncompleteSignature":
		return fmt.Sprintf("the caller's credentials are not good for %s: %s (%s)", call, message, code)
	case "LimitExceeded":
		return fmt.Sprintf("%s: a quota of the account is used up: %s", call, message)
	case "OpenIdIdpCommunicationError":
		return fmt.Sprintf("%s: IAM cannot reach the issuer to learn its certificate; publish it first, or give a thumbprint (AWS says: %s)",
			call, message)
	}
	if message == "" {
		return call + ": " + code
	}
	return fmt.Sprintf("%s: %s (%s)", call, message, code)
}
