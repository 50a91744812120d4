package awskms

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/keypost/keypost/test/fakeaws"
	"github.com/keypost/keypost/test/keys"
)

// standIn stands for KMS because no emulator is to be had.
type standIn struct {
	fakeaws.KMS
	url string
}

func startKMS(t *testing.T, private map[string]crypto.Signer) *standIn {
	s := &standIn{KMS: fakeaws.KMS{Private: private}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func arn(n int) string { return fmt.Sprintf("arn:aws:kms:eu-west-1:123456789012:key/%d", n) }

func (s *standIn) open(t *testing.T, arns ...string) *Keys {
	t.Helper()
	k, err := Open(t.Context(), func(string) string { return "" }, arns, func(o *config.LoadOptions) error {
		o.BaseEndpoint = s.url
		o.Credentials = aws.CredentialsProvider(credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Each kind of key that KMS has signs what its public half verifies, in the form that package signer asks for.
func TestSign(t *testing.T) {
	t.Parallel()
	private := map[string]crypto.Signer{arn(0): keys.NewRSA()()}
	for i, c := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		private[arn(i+1)] = keys.EC(c, 1)
	}
	kms := startKMS(t, private)
	all, err := kms.open(t, arn(0), arn(1), arn(2), arn(3)).Keys(t.Context())
	if err != nil || len(all) != 4 {
		t.Fatal(all, err)
	}
	for _, k := range all {
		hash := map[string]crypto.Hash{"ES384": crypto.SHA384, "ES512": crypto.SHA512}[k.Public().Alg()]
		if hash == 0 {
			hash = crypto.SHA256
		}
		digest := make([]byte, hash.Size())
		signature, err := k.Sign(t.Context(), digest, hash)
		if err != nil {
			t.Fatal(err)
		}
		switch public := k.Public().Key().(type) {
		case *rsa.PublicKey:
			err = rsa.VerifyPKCS1v15(public, hash, digest, signature)
		case *ecdsa.PublicKey:
			if !ecdsa.VerifyASN1(public, digest, signature) {
				err = fmt.Errorf("%s does not verify", k.Public().Alg())
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// A throttled call is made again. One that goes on being throttled ends with its context, in one sentence.
func TestThrottled(t *testing.T) {
	t.Parallel()
	kms := startKMS(t, map[string]crypto.Signer{arn(1): keys.EC(elliptic.P256(), 1)})
	all, err := kms.open(t, arn(1)).Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kms.Throttle.Store(1)
	if _, err := all[0].Sign(t.Context(), make([]byte, 32), crypto.SHA256); err != nil {
		t.Error(err)
	}
	kms.Throttle.Store(1 << 20)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := all[0].Sign(ctx, make([]byte, 32), crypto.SHA256); err == nil || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}

// What cannot work is named, and hides no other key. A public half is asked for once.
func TestKeys(t *testing.T) {
	t.Parallel()
	kms := startKMS(t, map[string]crypto.Signer{arn(1): keys.EC(elliptic.P256(), 1)})
	k := kms.open(t, arn(1), arn(2))
	for range 3 {
		all, err := k.Keys(t.Context())
		if len(all) != 1 || err == nil || !strings.Contains(err.Error(), arn(2)+": kms:GetPublicKey: Key '"+arn(2)+"' does not exist (NotFoundException)") {
			t.Errorf("%v, %v", all, err)
		}
	}
	if n := kms.Asked.Load(); n != 4 {
		t.Errorf("%d calls, want one for the key that is there and three for the other", n)
	}
	kms.Usage = "ENCRYPT_DECRYPT"
	if _, err := kms.open(t, arn(1)).Keys(t.Context()); err == nil || !strings.Contains(err.Error(), "SIGN_VERIFY") {
		t.Error(err)
	}
}

// A signer must not need a token of the cluster that it signs for, nor follow an alias to a key that nobody has published.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for want, tt := range map[string]struct{ env, arn string }{
		"AWS_WEB_IDENTITY_TOKEN_FILE is set": {"/var/run/token", arn(1)},
		"is not the ARN of a KMS key":        {"", "arn:aws:kms:eu-west-1:123456789012:alias/prod-a"},
	} {
		if _, err := Open(t.Context(), func(string) string { return tt.env }, []string{tt.arn}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
