package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/keypost/keypost/keystore"
)

// List names every key set with its revision, by one listing of the prefix: a request per thousand objects, and none
// per key set.
func (s *Backend) List(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	all := map[keystore.Name]keystore.Revision{}
	tokens := map[string]bool{"": true} // of the pages so far; "" is the first one's
	for token := ""; ; {
		page, err := s.page(ctx, s.o.dir(), token)
		if err != nil {
			return nil, err
		}
		if err := s.add(all, page); err != nil {
			return nil, s.incomplete(err)
		}
		if !*page.IsTruncated {
			return all, nil
		}
		token = aws.ToString(page.NextContinuationToken)
		if tokens[token] {
			return nil, s.incomplete(errors.New("there is another page, but no token for it"))
		}
		tokens[token] = true
	}
}

func (s *Backend) incomplete(err error) error {
	return fmt.Errorf("the listing of %s cannot be trusted: %w", s.o.place(), err)
}

// page asks for one page of a listing and makes sure that it is one: an empty answer with status 200 would otherwise
// be the listing of an empty bucket.
func (s *Backend) page(ctx context.Context, prefix, token string) (*s3.ListObjectsV2Output, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	page, err := s.s3.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: &s.o.Bucket, Prefix: nonEmpty(prefix), Delimiter: aws.String("/"), ContinuationToken: nonEmpty(token),
		EncodingType: types.EncodingTypeUrl, ExpectedBucketOwner: nonEmpty(s.o.Account),
	})
	if err != nil {
		return nil, s.explain(err, prefix)
	}
	if page.IsTruncated == nil {
		return nil, s.incomplete(errors.New("the answer does not say whether it is the last page"))
	}
	if n := len(page.Contents) + len(page.CommonPrefixes); page.KeyCount != nil && int(*page.KeyCount) != n {
		return nil, s.incomplete(fmt.Errorf("a page that announces %d keys has %d", *page.KeyCount, n))
	}
	return page, nil
}

func (s *Backend) add(all map[keystore.Name]keystore.Revision, page *s3.ListObjectsV2Output) error {
	for _, object := range page.Contents {
		key, err := unescape(string(page.EncodingType), aws.ToString(object.Key))
		if err != nil {
			return fmt.Errorf("the key %q is not URL-encoded", aws.ToString(object.Key))
		}
		n, ok := s.nameOf(key)
		if !ok {
			continue
		}
		if all[n], err = revisionOf(object.ETag); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// Get returns one document. With a [*keystore.BrokenError] (an object that can be not a document) it returns the object's
// revision. The SDK compares what arrived with the checksum that the store keeps, where it keeps one.
func (s *Backend) Get(ctx context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	if n.Check() != nil { // never asked for: some servers resolve ".."
		return nil, "", fmt.Errorf("%w at %s", keystore.ErrNotFound, s.o.place())
	}
	key := s.key(n)
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	out, err := s.s3.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.o.Bucket, Key: &key, ChecksumMode: types.ChecksumModeEnabled, ExpectedBucketOwner: nonEmpty(s.o.Account),
	})
	if err != nil {
		return nil, "", s.absent(ctx, key, err)
	}
	defer out.Body.Close() //nolint:errcheck // nothing was written
	rev, err := revisionOf(out.ETag)
	if err != nil {
		return nil, "", fmt.Errorf("%s%s: %w", s.o.place(), key, err)
	}
	length := aws.ToInt64(out.ContentLength)
	if length > keystore.MaxDocument {
		err := fmt.Errorf("%s has %d bytes; a key set has at most %d", key, length, keystore.MaxDocument)
		return nil, rev, &keystore.BrokenError{Name: n, Reason: keystore.ReasonBroken, Err: err}
	}
	data, err := io.ReadAll(io.LimitReader(out.Body, keystore.MaxDocument+1))
	if err == nil && int64(len(data)) != length {
		err = fmt.Errorf("%d bytes came of %d", len(data), length)
	}
	if err != nil {
		return nil, "", fmt.Errorf("s3:GetObject on s3://%s/%s: %w", s.o.Bucket, key, err)
	}
	return data, rev, nil
}

// stored looks for one key in the listing. Keys are listed in their order, so that one that begins with it follows.
func (s *Backend) stored(ctx context.Context, key string) (rev keystore.Revision, stored bool, err error) {
	page, err := s.page(ctx, key, "")
	if err != nil {
		return "", false, err
	}
	for _, object := range page.Contents {
		if listed, err := unescape(string(page.EncodingType), aws.ToString(object.Key)); err == nil && listed == key {
			rev, err := revisionOf(object.ETag)
			return rev, true, err
		}
	}
	return "", false, nil
}

// absent distinguishes an object that does not exist, and one that nobody here may read (archived, encrypted with another's key),
// from trouble with the store, which lists nothing either. Only S3's own error code counts: a 404 of a proxy, or of a bucket that
// is gone, is trouble.
//
// Who may list nothing but the prefix gets 403 for an object that is not there: the permission that would turn it into
// 404 is s3:ListBucket without a condition, since s3:prefix has no value in a GetObject. The listing knows.
func (s *Backend) absent(ctx context.Context, key string, err error) error {
	notFound := fmt.Errorf("%w at s3://%s/%s", keystore.ErrNotFound, s.o.Bucket, key)
	if code(err) == "NoSuchKey" {
		return notFound
	}
	why := s.explain(err, key)
	if refused := status(err); refused < 400 || refused >= 500 || refused == http.StatusTooManyRequests {
		return why
	}
	switch _, stored, err := s.stored(ctx, key); {
	case err != nil:
		return why
	case !stored:
		return notFound
	}
	return &keystore.UnreadableError{Err: why}
}

func nonEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
