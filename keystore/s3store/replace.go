package s3store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/keypost/keypost/keystore"
)

const contentType = "application/yaml" // RFC 9512

// Replace writes one object, on condition that there is none (old == "") or that it still has the ETag old. S3 is
// durable once it has said 200 (https://docs.aws.amazon.com/AmazonS3/latest/userguide/DataDurability.html). The first
// Replace of a Store is preceded by the proof that the server honours conditions.
func (s *Store) Replace(ctx context.Context, n keystore.Name, old keystore.Revision, set keystore.KeySet) (keystore.Revision, error) {
	if n != set.Name() {
		return "", fmt.Errorf("it is named %q", set.Name())
	}
	data, err := keystore.Encode(set)
	if err != nil {
		return "", err
	}
	if len(data) > keystore.MaxDocument {
		return "", fmt.Errorf("the document has %d bytes; at most %d can be read back", len(data), keystore.MaxDocument)
	}
	if old != "" && !writable(string(old)) {
		return "", fmt.Errorf("%w: no object has the revision %q", keystore.ErrConflict, old)
	}
	if err := s.prove(ctx); err != nil {
		return "", err
	}
	rev, tries, err := s.put(ctx, s.key(n), old, data)
	switch {
	case err == nil:
		return rev, nil
	case tries > 1 && conflict(err):
		return s.settle(ctx, set, data)
	case tries > 1: // an earlier try may have been stored: the caller reads back
		return "", s.explain(err, s.key(n))
	}
	return "", s.refused(err, s.key(n))
}

// refused says of a write that was tried once why nothing was written, where that is what the error means.
func (s *Store) refused(err error, key string) error {
	switch {
	case code(err) == "NoSuchBucket":
	case conflict(err):
		return fmt.Errorf("%w: s3://%s/%s has another revision", keystore.ErrConflict, s.o.Bucket, key)
	case code(err) == "AccessDenied":
		return fmt.Errorf("%w: %w", keystore.ErrReadOnly, s.explain(err, key))
	}
	return s.explain(err, key)
}

// settle finds out what a conflict means that answers the second try of a write. The first may have been stored, with
// its answer lost, and then the condition fails because of our own bytes; taking that for another's write would apply
// the change twice.
func (s *Store) settle(ctx context.Context, set keystore.KeySet, data []byte) (keystore.Revision, error) {
	key := s.key(set.Name())
	stored, rev, err := s.get(ctx, key)
	switch {
	case err != nil && errors.Is(err, keystore.ErrNotFound):
		return "", fmt.Errorf("s3://%s/%s: it was removed while it was written", s.o.Bucket, key)
	case err != nil:
		return "", fmt.Errorf("whether the write took effect is unknown: %w", err)
	case bytes.Equal(stored, data):
		return rev, nil
	}
	// Generations only grow: had ours been stored, then what has replaced it would have a later one.
	if is, err := keystore.Parse(set.Name(), stored); err == nil && is.Generation() <= set.Generation() {
		return "", fmt.Errorf("%w: s3://%s/%s has another revision", keystore.ErrConflict, s.o.Bucket, key)
	}
	return "", fmt.Errorf("s3://%s/%s was written again meanwhile, so whether this write took effect is unknown; "+
		"look at it and repeat the command if need be", s.o.Bucket, key)
}

// put writes an object on the condition that old names and counts the requests that it took. No ACL is set: buckets
// made since 2023 refuse them, and access is the policy's.
func (s *Store) put(ctx context.Context, key string, old keystore.Revision, data []byte) (keystore.Revision, int, error) {
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
