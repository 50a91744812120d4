package s3store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/process"
)

// A bucket with versions is the recommended one: it keeps what was overwritten.
func TestConformanceInAVersionedBucket(t *testing.T) {
	sv := gateway(t)
	withVersions(t, open(t, sv.url, Options{}))
	storetest.Run(t, func(t *testing.T) keystore.Backend { return open(t, sv.url, newPrefix()) })
}

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

// rclone says 200 to conditional writes and overwrites.
func TestRcloneIsRefused(t *testing.T) {
	path, dir, address := program(t, "rclone"), t.TempDir(), process.FreeAddress(t)
	must(t, os.Mkdir(filepath.Join(dir, bucket), 0o755))
	start(t, address, path, "serve", "s3", "--addr", address, "--auth-key", rootKey+","+rootPass, "--config", os.DevNull, dir)
	st := open(t, "http://"+address, Options{Prefix: "clusters"})
	wantError(t, keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, "prod-a")), errNoConditions, "use a store that honours them")
	if _, err := os.Stat(filepath.Join(dir, bucket, "clusters", "prod-a.yaml")); err == nil {
		t.Error("the key set was written all the same")
	}
	if all := list(t, st); len(all) != 0 {
		t.Errorf("List = %v", all)
	}
}
