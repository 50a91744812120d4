// Package awskms holds private keys in AWS KMS for package signer. The private halves never leave KMS. It is the only user of the KMS SDK.
package awskms

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go"

	"github.com/keypost/keypost/internal/awsconf"
	"github.com/keypost/keypost/keystore"
)

// Keys are keys of KMS, named by their ARNs. It is not safe for concurrent use.
type Keys struct {
	arns    []string
	clients map[string]*kms.Client // by region
	found   map[string]Key
}

// arnForm is that of one key. An alias may be pointed at another key, which the key set does not know.
var arnForm = regexp.MustCompile(`^arn:[a-z0-9-]+:kms:([a-z0-9-]+):\d{12}:key/[A-Za-z0-9-]+$`)

// limits bound one signature: a kube-apiserver waits for it.
func limits() awsconf.Limits {
	return awsconf.Limits{Attempts: 5, MaxBackoff: time.Second, AttemptTime: 3 * time.Second, Connections: 64}
}

// Open prepares to use keys by their ARNs. It dials nobody. It returns an error if the environment takes credentials from a web identity
// token: the cluster whose tokens the keys sign would have to sign one first.
func Open(ctx context.Context, env func(string) string, arns []string, options ...func(*config.LoadOptions) error) (*Keys, error) {
	if env("AWS_WEB_IDENTITY_TOKEN_FILE") != "" {
		return nil, errors.New("AWS_WEB_IDENTITY_TOKEN_FILE is set: a signer must not depend on a token that it signs; use the instance's role, or a file of credentials")
	}
	k := &Keys{arns: arns, clients: map[string]*kms.Client{}, found: map[string]Key{}}
	for _, arn := range arns {
		m := arnForm.FindStringSubmatch(arn)
		if m == nil {
			return nil, fmt.Errorf("%q is not the ARN of a KMS key, such as arn:aws:kms:eu-west-1:123456789012:key/ID", arn)
		}
		if k.clients[m[1]] != nil {
			continue
		}
		conf, err := config.LoadDefaultConfig(ctx, append(append(limits().Options(), config.WithRegion(m[1])), options...)...)
		if err != nil {
			return nil, fmt.Errorf("load the AWS configuration: %w", err)
		}
		k.clients[m[1]] = kms.NewFromConfig(conf)
	}
	return k, nil
}

// Key is a private key in KMS.
type Key struct {
	public keystore.VerificationKey
	arn    string
	client *kms.Client
}

// Public returns the verification key.
func (k Key) Public() keystore.VerificationKey { return k.public }

// ARN names the key.
func (k Key) ARN() string { return k.arn }

// Keys returns the keys in the order of their ARNs. It asks KMS for the public half of each until it has it. The error names each key
// that KMS did not return; the others are returned with it.
func (k *Keys) Keys(ctx context.Context) ([]Key, error) {
	var all []Key
	var errs []error
	for _, arn := range k.arns {
		key, there := k.found[arn]
		if !there {
			var err error
			if key, err = k.fetch(ctx, arn); err != nil {
				errs = append(errs, fmt.Errorf("KMS key %s: %w", arn, err))
				continue
			}
			k.found[arn] = key
		}
		all = append(all, key)
	}
	return all, errors.Join(errs...)
}

func (k *Keys) fetch(ctx context.Context, arn string) (Key, error) {
	client := k.clients[arnForm.FindStringSubmatch(arn)[1]]
	answer, err := client.GetPublicKey(ctx, &kms.GetPublicKeyInput{KeyId: aws.String(arn)})
	if err != nil {
		return Key{}, explain(err)
	}
	if answer.KeyUsage != types.KeyUsageTypeSignVerify {
		return Key{}, fmt.Errorf("its usage is %s; make one for SIGN_VERIFY", answer.KeyUsage)
	}
	public, err := x509.ParsePKIXPublicKey(answer.PublicKey)
	if err != nil {
		return Key{}, errors.New("KMS returned no public key that this program can read")
	}
	verification, err := keystore.NewPublic(public)
	if err != nil {
		return Key{}, err
	}
	return Key{verification, arn, client}, nil
}

// Sign signs a digest: PKCS #1 v1.5 for RSA, ASN.1 for ECDSA. KMS bounds a message to 4,096 bytes, and claims may be longer.
//
// Source: https://docs.aws.amazon.com/kms/latest/APIReference/API_Sign.html
func (k Key) Sign(ctx context.Context, digest []byte, hash crypto.Hash) ([]byte, error) {
	algorithm := map[string]types.SigningAlgorithmSpec{
		"RS256": types.SigningAlgorithmSpecRsassaPkcs1V15Sha256,
		"ES256": types.SigningAlgorithmSpecEcdsaSha256,
		"ES384": types.SigningAlgorithmSpecEcdsaSha384,
		"ES512": types.SigningAlgorithmSpecEcdsaSha512,
	}[k.public.Alg()]
	if algorithm == "" || hash.Size() != len(digest) {
		return nil, fmt.Errorf("KMS signs no %s", k.public.Alg())
	}
	answer, err := k.client.Sign(ctx, &kms.SignInput{KeyId: aws.String(k.arn), Message: digest, MessageType: types.MessageTypeDigest, SigningAlgorithm: algorithm})
	if err != nil {
		return nil, explain(err)
	}
	return answer.Signature, nil
}

func explain(err error) error {
	return awsconf.Explain(err, func(op *smithy.OperationError) string { return "kms:" + op.OperationName }, func(string, error) string { return "" })
}
