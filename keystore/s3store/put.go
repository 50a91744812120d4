package s3store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

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
	rev, err := s.put(ctx, s.key(n), old, doc)
	if err != nil {
		return "", s.refused(err, s.key(n))
	}
	return rev, nil
}

// refused wraps the error of a write in ErrConflict or ErrReadOnly where it means that.
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

// put writes an object on the condition that old names. No ACL is set: buckets
// made since 2023 refuse them, and access is the policy's.
func (s *Backend) put(ctx context.Context, key string, old keystore.Revision, data []byte) (keystore.Revision, error) {
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
	out, err := s.s3.PutObject(ctx, in)
	if err != nil {
		return "", err
	}
	rev, err := revisionOf(out.ETag)
	if err != nil {
		return "", fmt.Errorf("s3://%s/%s: %w", s.o.Bucket, key, err)
	}
	return rev, nil
}
