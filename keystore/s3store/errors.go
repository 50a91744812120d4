package s3store

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/keypost/keypost/internal/awsconf"
)

func code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

func status(err error) int {
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return response.HTTPStatusCode()
	}
	return 0
}

// conflict reports whether a condition was not met. 409 is S3's answer when two writers meet on the wire, 404 its answer to
// an If-Match on an object that is gone; both say that nothing was written.
func conflict(err error) bool {
	switch status(err) {
	case http.StatusPreconditionFailed, http.StatusConflict:
		return true
	}
	return code(err) == "NoSuchKey"
}

// explain returns an error that names the failed call, the object and the cause.
func (s *Backend) explain(err error, key string) error {
	return awsconf.Explain(err, func(op *smithy.OperationError) string {
		return action(op.OperationName) + " on s3://" + s.o.Bucket + "/" + key
	}, s.reason)
}

// action names the IAM action of an operation: what an operator looks for in a policy.
func action(operation string) string {
	if operation == "ListObjectsV2" {
		operation = "ListBucket"
	}
	return "s3:" + operation
}

// reason returns the sentence for an error that asks for something to be done, else "".
func (s *Backend) reason(call string, err error) string {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return ""
	}
	code, message := api.ErrorCode(), api.ErrorMessage()
	switch code {
	case "AccessDenied":
		return fmt.Sprintf("the credentials do not allow %s (the store says: %s)", call, message)
	case "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "RequestTimeTooSkewed":
		return fmt.Sprintf("the credentials are not good for %s: %s (%s)", call, message, code)
	case "NoSuchBucket":
		return fmt.Sprintf("%s: the bucket %s does not exist; nothing is concluded about the key sets in it", call, s.o.Bucket)
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		return fmt.Sprintf("%s: the bucket is in another region; name that one (region=…): %s", call, message)
	}
	return ""
}
