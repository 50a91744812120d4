package awsiam

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/smithy-go"
)

// callError is a call that AWS refused, in one sentence. It wraps the SDK's error.
type callError struct {
	call, why string
	err       error
}

func (e *callError) Error() string { return e.call + ": " + e.why }

func (e *callError) Unwrap() error { return e.err }

// explain says which call failed and why, without the SDK's request IDs and retry counts.
func explain(err error) error {
	if err == nil {
		return nil
	}
	op, ok := errors.AsType[*smithy.OperationError](err)
	if !ok {
		return err
	}
	call := strings.ToLower(op.ServiceID) + ":" + op.OperationName
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return &callError{call: call, why: op.Err.Error(), err: err}
	}
	return &callError{call: call, why: reason(call, api), err: err}
}

func reason(call string, api smithy.APIError) string {
	code, message := api.ErrorCode(), api.ErrorMessage()
	switch code {
	case "AccessDenied", "AccessDeniedException":
		return fmt.Sprintf("the caller's policy does not allow %s (AWS says: %s)", call, message)
	case "ExpiredToken", "InvalidClientTokenId", "SignatureDoesNotMatch", "RequestExpired", "IncompleteSignature":
		return fmt.Sprintf("the caller's credentials are not good: %s (%s)", message, code)
	case "LimitExceeded":
		return fmt.Sprintf("a quota of the account is used up: %s", message)
	case "OpenIdIdpCommunicationError":
		return fmt.Sprintf("IAM cannot reach the issuer to learn its certificate; publish it first, or give a thumbprint (AWS says: %s)", message)
	}
	if message == "" {
		return code
	}
	return fmt.Sprintf("%s (%s)", message, code)
}
