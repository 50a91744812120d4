package awsconf

import (
	"errors"
	"fmt"

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
	if sentence := reason(call, err); sentence != "" {
		return &callError{sentence, err}
	}
	api, ok := errors.AsType[smithy.APIError](err)
	switch {
	case !ok:
		return &callError{call + ": " + text.Sentence(op.Err.Error(), 0), err}
	case api.ErrorMessage() == "":
		return &callError{call + ": " + api.ErrorCode(), err}
	}
	return &callError{fmt.Sprintf("%s: %s (%s)", call, api.ErrorMessage(), api.ErrorCode()), err}
}
