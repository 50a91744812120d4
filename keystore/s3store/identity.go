package s3store

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// Identity returns the ARN of the principal by which AWS knows who calls it. It is empty for a server that is not AWS, which has
// no such answer, unless the AWS configuration names an STS beside it.
func (s *Backend) Identity(ctx context.Context) (string, error) {
	if s.s3.Options().BaseEndpoint != nil && s.sts.Options().BaseEndpoint == nil {
		return "", nil
	}
	caller, err := s.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", fmt.Errorf("ask AWS for the principal of the key store %s: %w", s.o.place(), err)
	}
	return aws.ToString(caller.Arn), nil
}
