package s3store

import (
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

func withVersions(t *testing.T, st *Backend) {
	t.Helper()
	_, err := st.s3.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: aws.String(bucket), VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	must(t, err)
}

// What is stored is the newest version; a delete marker is an absence, and old versions are neither listed nor loaded.
func TestOldVersionsAreNotThere(t *testing.T) {
	sv := gateway(t)
	st := open(t, sv.url, newPrefix())
	withVersions(t, st)
	create(t, st, "prod-a")
	s, err := keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("x"))
	must(t, err)
	stored, rev, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
	if err != nil || stored.Digest() != s.Digest() || len(list(t, st)) != 1 || list(t, st)["prod-a"] != rev {
		t.Errorf("Load = generation %d, %v; List = %v", stored.Generation(), err, list(t, st))
	}
	_, err = st.s3.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(bucket), Key: aws.String(st.key("prod-a"))})
	must(t, err)
	if _, _, err := keystore.NewStore(st).Load(t.Context(), "prod-a"); !errors.Is(err, keystore.ErrNotFound) || len(list(t, st)) != 0 {
		t.Errorf("after the deletion Load = %v, List = %v", err, list(t, st))
	}
}
