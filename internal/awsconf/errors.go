package awsconf

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/keypost/keypost/internal/text"
)

// callError is a call that failed, in one sentence, without the SDK's request IDs and retry counts. It wraps the SDK's
// error.
type callError struct {
	sentence string
	err      error
}

func (e *callError) Error() string { return e.sentence }

func (e *callError) Unwrap() error { return e.err }

// Explain returns a failed call of the SDK as an error of one sentence that wraps err. name names the call. reason returns
// the sentence for errors that have one of their own, else "". Any error that is not of a call is returned as it is.
func Explain(err error, name func(*smithy.OperationError) string, reason func(call string, err error) string) error {
	op, ok := errors.AsType[*smithy.OperationError](err)
	if !ok {
		return err
	}
	call := name(op)
	api, ok := errors.AsType[smithy.APIError](err)
	if why, none := WithoutCredentials(err); none && !ok && !errors.Is(err, context.Canceled) {
		return &callError{call + ": " + why, err}
	}
	if sentence := reason(call, err); sentence != "" {
		return &callError{sentence, err}
	}
	switch {
	case !ok:
		return &callError{call + ": " + text.Sentence(op.Err.Error(), 0), err}
	case api.ErrorMessage() == "":
		return &callError{call + ": " + api.ErrorCode(), err}
	}
	return &callError{fmt.Sprintf("%s: %s (%s)", call, api.ErrorMessage(), api.ErrorCode()), err}
}

// WithoutCredentials reports whether a call was not made because there are no credentials, and why there are none.
func WithoutCredentials(err error) (why string, none bool) {
	_, cause, none := strings.Cut(text.Sentence(err.Error(), 0), "get identity: get credentials: ")
	if strings.Contains(cause, "no EC2 IMDS role found") {
		return "no AWS credentials were found: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", none
	}
	return "the AWS credentials cannot be had: " + cause, none
}
