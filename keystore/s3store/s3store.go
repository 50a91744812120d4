// Package s3store keeps key sets in a private S3 bucket: one object per key set, PREFIX/NAME.yaml, with the same text
// as in every other store. It promises that of several writers none undoes another's change, that a listing is
// complete or an error, and that a document which was cut on its way is an error and never a key set.
//
// What holds the writers apart is the store's own conditional write (If-None-Match, If-Match), nothing else. Before
// its first write a [Backend] therefore makes the server prove that it honours conditions, and refuses one that does not.
//
// Objects directly under the prefix that are named NAME.yaml, by a name that a key set can have, are key sets. All else is
// ignored.
//
// Who may write the objects can make relying parties trust keys. A reader needs no more than s3:ListBucket on the bucket,
// for the s3:prefix PREFIX/*, and s3:GetObject on PREFIX/*; a writer also s3:PutObject there. Where a KMS key encrypts the
// objects, a reader needs kms:Decrypt, and a writer kms:GenerateDataKey too. testdata/reader-policy.json is such a policy.
package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/keypost/keypost/internal/awsconf"
	"github.com/keypost/keypost/keystore"
)

// Time limits. Nothing is gained by trying longer than a poll interval: the next poll tries again.
const (
	attempts = 4
	callTime = 45 * time.Second // one request with its retries
	listTime = 5 * time.Minute  // all pages of a listing
)

func limits() awsconf.Limits {
	return awsconf.Limits{Attempts: attempts, MaxBackoff: 2 * time.Second, AttemptTime: 10 * time.Second, Connections: 32}
}

// Backend is the key sets under one prefix of a bucket. It implements [keystore.Backend] and is safe for concurrent use,
// also by several processes. It watches nothing: readers poll.
type Backend struct {
	s3      *s3.Client
	o       Options
	proving chan struct{} // holds one element while the proof is under way; guards proven
	proven  bool
}

var _ keystore.Backend = (*Backend)(nil)

// Open makes the store that o describes, with the credentials of o.Profile or else of the AWS SDK's usual chain. It
// sends no request: only the first use shows whether the bucket exists and the credentials are good.
func Open(ctx context.Context, o Options) (*Backend, error) {
	o, err := o.Checked()
	if err != nil {
		return nil, err
	}
	cfg, err := o.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("open key store %s: %w", o.place(), err)
	}
	client := s3.NewFromConfig(cfg, o.apply)
	if base := client.Options().BaseEndpoint; base != nil { // AWS_ENDPOINT_URL_S3, or the profile, may name one too
		if err := checkEndpoint(*base); err != nil {
			return nil, err
		}
	}
	return &Backend{s3: client, o: o, proving: make(chan struct{}, 1)}, nil
}

// Place names the bucket, the prefix, the region and the endpoint, if it is not that of AWS, without credentials.
func (s *Backend) Place() string {
	o := s.s3.Options()
	place := s.o.place() + "?region=" + o.Region
	if o.BaseEndpoint != nil {
		place += "&endpoint=" + strings.TrimSuffix(*o.BaseEndpoint, "/")
	}
	return place
}

// load reads the AWS configuration. AWS_PROFILE and the key variables count only where the options name no profile.
func (o Options) load(ctx context.Context) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx, append(limits().Options(),
		config.WithRegion(o.Region),
		config.WithSharedConfigProfile(o.Profile))...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("read the AWS configuration: %w", err)
	}
	if cfg.Region == "" && o.Endpoint != "" {
		cfg.Region = "us-east-1" // other servers have one region, and mostly call it that
	}
	if cfg.Region == "" {
		return aws.Config{}, errors.New("no AWS region is configured; say in which region the bucket is (region=…)")
	}
	return cfg, nil
}

// apply sets what only S3 clients have. Servers other than AWS seldom have a host name per bucket, hence paths.
func (o Options) apply(so *s3.Options) {
	if o.Endpoint != "" {
		so.BaseEndpoint = &o.Endpoint
	}
	so.UsePathStyle = so.BaseEndpoint != nil
	so.DisableLogOutputChecksumValidationSkipped = true // else a line on stderr for each object without a checksum
}

const suffix = ".yaml"

// nameOf is the inverse of key.
func (s *Backend) nameOf(key string) (keystore.Name, bool) {
	base, under := strings.CutPrefix(key, s.o.dir())
	n, isDocument := strings.CutSuffix(base, suffix)
	return keystore.Name(n), under && isDocument && keystore.Name(n).Check() == nil
}

func (s *Backend) key(n keystore.Name) string { return s.o.dir() + string(n) + suffix }

// A revision is an object's ETag without its quotes. Under SSE-KMS it is not a hash of the content, but it is another one
// after every write; elsewhere it is the MD5 of the content, and only who may write the document anyway could make two
// documents with the same one.
func revisionOf(etag *string) (keystore.Revision, error) {
	bare := aws.ToString(etag)
	if len(bare) >= 2 && bare[0] == '"' && bare[len(bare)-1] == '"' {
		bare = bare[1 : len(bare)-1]
	}
	if !writable(bare) {
		return "", fmt.Errorf("the store sends ETag %q, which does not distinguish versions; "+
			"look for a proxy on the way that rewrites answers", aws.ToString(etag))
	}
	return keystore.Revision(bare), nil
}

// writable reports whether text can be an ETag: no weak one (W/"…"), nothing that would break a header.
func writable(bare string) bool {
	return bare != "" && !strings.ContainsFunc(bare, func(r rune) bool { return r <= ' ' || r == '"' || r >= 0x7f })
}

// unescape undoes the listing's encoding of keys, which lets a listing hold any key at all: XML cannot say
// every character.
func unescape(encoding, key string) (string, error) {
	if encoding == "" { // a server that does not know the parameter
		return key, nil
	}
	return url.QueryUnescape(key)
}
