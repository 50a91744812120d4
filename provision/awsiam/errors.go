package awsiam

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/smithy-go"
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
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return &callError{reason(call, api), err}
	}
	return &callError{call + ": " + op.Err.Error(), err}
}

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
