package awsconf

import (
	"errors"
	"testing"

	"github.com/aws/smithy-go"
)

func TestExplain(t *testing.T) {
	name := func(op *smithy.OperationError) string { return op.ServiceID + ":" + op.OperationName }
	known := func(call string, err error) string {
		if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "Known" {
			return call + " is known"
		}
		return ""
	}
	failed := func(cause error) error {
		return &smithy.OperationError{ServiceID: "s3", OperationName: "GetObject", Err: cause}
	}
	plain := errors.New("no call")
	for want, err := range map[string]error{
		"no call":                  plain,
		"s3:GetObject is known":    failed(&smithy.GenericAPIError{Code: "Known", Message: "x"}),
		"s3:GetObject: why (Code)": failed(&smithy.GenericAPIError{Code: "Code", Message: "why"}),
		"s3:GetObject: Code":       failed(&smithy.GenericAPIError{Code: "Code"}),
		"s3:GetObject: two lines":  failed(errors.New("two\nlines")),
		"s3:GetObject: no AWS credentials were found: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY": failed(errors.New(
			"get identity: get credentials: failed to refresh cached credentials, no EC2 IMDS role found, operation error ec2imds: GetMetadata, access disabled")),
		"s3:GetObject: the AWS credentials cannot be had: the process failed": failed(errors.New("get identity: get credentials: the process failed")),
	} {
		got := Explain(err, name, known)
		if got.Error() != want || !errors.Is(got, err) {
			t.Errorf("Explain(%v) = %v, want %q", err, got, want)
		}
	}
}
