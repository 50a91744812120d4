package api

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

// Explain returns an error that names the failed call and the reason.
func Explain(err error) error {
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
