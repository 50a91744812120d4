package s3store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/keypost/keypost/keystore"
)

const contentType = "application/yaml" // RFC 9512

// Put writes one object, on condition that there is none (old == "") or that it still has the ETag old. A write is
// durable once S3 answers 200 (https://docs.aws.amazon.com/AmazonS3/latest/userguide/DataDurability.html). The first Put of a
// Backend is preceded by the proof that the server honours conditions.
//
// The SDK sends a request again after a throttle or a lost answer. A condition that fails then may fail because of our
// own bytes, which the first request stored: [keystore.Store] reads back after each conflict.
func (s *Backend) Put(ctx context.Context, n keystore.Name, old keystore.Revision, doc []byte) (keystore.Revision, error) {
	if old != "" && !writable(string(old)) {
		return "", fmt.Errorf("%w: no object has the revision %q", keystore.ErrConflict, old)
	}
	if err := s.prove(ctx); err != nil {
		return "", err
	}
	rev, tries, err := s.put(ctx, s.key(n), old, doc)
	switch {
	case err == nil:
		return rev, nil
	case tries > 1 && !conflict(err): // an earlier request may have been stored
		return "", s.explain(err, s.key(n))
	}
	return "", s.refused(err, s.key(n))
}

// refused wraps the error of a write that was sent once in ErrConflict or ErrReadOnly where it means that.
func (s *Backend) refused(err error, key string) error {
	switch {
	case code(err) == "NoSuchBucket":
	case conflict(err):
		return fmt.Errorf("%w: s3://%s/%s has another revision", keystore.ErrConflict, s.o.Bucket, key)
	case code(err) == "AccessDenied":
		return fmt.Errorf("%w: %w", keystore.ErrReadOnly, s.explain(err, key))
	}
	return s.explain(err, key)
}

// put writes an object on the condition that old names and counts the requests that it took. No ACL is set: buckets
// made since 2023 refuse them, and access is the policy's.
func (s *Backend) put(ctx context.Context, key string, old keystore.Revision, data []byte) (keystore.Revision, int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	sum := sha256.Sum256(data)
	in := &s3.PutObjectInput{
		Bucket: &s.o.Bucket, Key: &key, Body: bytes.NewReader(data), ExpectedBucketOwner: nonEmpty(s.o.Account),
		ContentType: aws.String(contentType), CacheControl: aws.String("no-store"),
		// A checksum that is given goes as a header. The SDK's own goes behind the body, which not every server reads.
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
	}
	if old == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = aws.String(`"` + string(old) + `"`)
	}
	if s.o.KMSKey != "" {
		in.ServerSideEncryption, in.SSEKMSKeyId = types.ServerSideEncryptionAwsKms, &s.o.KMSKey
	}
	counted := &counter{}
	out, err := s.s3.PutObject(ctx, in, func(o *s3.Options) {
		counted.next = o.HTTPClient
		o.HTTPClient = counted
	})
	if err != nil {
		return "", counted.requests, err
	}
	rev, err := revisionOf(out.ETag)
	if err != nil {
		return "", counted.requests, fmt.Errorf("s3://%s/%s: %w", s.o.Bucket, key, err)
	}
	return rev, counted.requests, nil
}

// counter counts the requests of one call: the SDK does not tell with every error how often it tried.
type counter struct {
	next     s3.HTTPClient
	requests int
}

// Do sends a request.
func (c *counter) Do(r *http.Request) (*http.Response, error) {
	c.requests++
	return c.next.Do(r)
}
