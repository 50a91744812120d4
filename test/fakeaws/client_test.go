package fakeaws

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/keypost/keypost/test/fakecloud/cluster"
)

const (
	issuerURL = cluster.IssuerURL
	trustText = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow",` +
		`"Principal":{"Federated":"arn:aws:iam::123456789012:oidc-provider/oidc.example.com/prod-a"},` +
		`"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{` +
		`"oidc.example.com/prod-a:aud":"openshift","oidc.example.com/prod-a:sub":"system:serviceaccount:ns:sa"}}}]}`
)

// The longest of the SDK's names, in short.
type (
	makeProvider = iam.CreateOpenIDConnectProviderInput
	makeRole     = iam.CreateRoleInput
	takeRole     = sts.AssumeRoleWithWebIdentityInput
)

// configuration is what the SDK would read from Env.
func configuration(s *Server) aws.Config {
	return aws.Config{
		Region:       regionOf(s.options.Partition),
		BaseEndpoint: aws.String(s.URL),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: AccessKeyID, SecretAccessKey: secretAccessKey}, nil
		}),
		Retryer: func() aws.Retryer { return aws.NopRetryer{} },
	}
}

func iamOf(s *Server) *iam.Client { return iam.NewFromConfig(configuration(s)) }
func stsOf(s *Server) *sts.Client { return sts.NewFromConfig(configuration(s)) }

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// refused fails the test unless err is AWS's error of that code, and its sentence contains says.
func refused(t testing.TB, err error, code, says string) {
	t.Helper()
	var api smithy.APIError
	if !errors.As(err, &api) {
		t.Fatalf("got %v, want %s", err, code)
	}
	if api.ErrorCode() != code || !strings.Contains(api.ErrorMessage(), says) {
		t.Errorf("got %s: %s\nwant %s: …%s…", api.ErrorCode(), api.ErrorMessage(), code, says)
	}
}
