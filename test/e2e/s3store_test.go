//go:build e2e

package e2e

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// bucketScene is key sets in a bucket of a versitygw, the command line that writes them, and a keypostd that gets them
// through a mirror whose user may read and nothing else.
type bucketScene struct {
	*server
	dir     string // the bucket
	gateway *process
	mirror  *process
	issuer  string
}

const (
	gatewayAddress = "127.0.0.1:7070"
	bucketURL      = "s3://keysets/clusters?region=us-east-1&endpoint=http://" + gatewayAddress
	writerKey      = "writer-access-key"
	readerKey      = "reader-access-key"
	gatewaySecret  = "gateway-secret"
)

// s3Tool returns a program that test/tools installs; test/e2e/run does it beforehand.
func s3Tool(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("../tools/"+name, "--built").Output()
	if err != nil {
		t.Skipf("needs %s: run test/tools/%s", name, name)
	}
	return strings.TrimSpace(string(out))
}

// asUser is the environment of whoever has an access key, with nothing of this machine's AWS configuration in it.
func asUser(key string) []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + key, "AWS_SECRET_ACCESS_KEY=" + gatewaySecret, "AWS_SESSION_TOKEN=", "AWS_PROFILE=",
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_WEB_IDENTITY_TOKEN_FILE=",
	}
}

func setEnv(t *testing.T, env []string) {
	t.Helper()
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
}

func newBucketScene(t *testing.T) *bucketScene {
	t.Helper()
	data := t.TempDir()
	b := &bucketScene{server: newStore(t, newAuthority(t)), issuer: "https://oidc.keypost.test/prod-a"}
	b.dir = filepath.Join(data, "data", "keysets")
	must(t, os.MkdirAll(b.dir, 0o755))
	must(t, os.MkdirAll(filepath.Join(data, "iam"), 0o755))
	b.startGateway(t)
	b.grantReading(t)
	return b
}

func (b *bucketScene) startGateway(t *testing.T) {
	t.Helper()
	data := filepath.Dir(b.dir)
	b.gateway = start(t, "versitygw", s3Tool(t, "versitygw"), "--access", writerKey, "--secret", gatewaySecret, "--region", "us-east-1",
		"--port", gatewayAddress, "--quiet", "--iam-dir", filepath.Join(filepath.Dir(data), "iam"), "--iam-cache-disable", "posix", data)
	b.gateway.await(t, "answering", func(context.Context) error {
		res, err := http.Get("http://" + gatewayAddress)
		if err != nil {
			return err
		}
		return res.Body.Close()
	})
}

// grantReading makes a user of whom the documented policy is all that she may do.
func (b *bucketScene) grantReading(t *testing.T) {
	t.Helper()
	command(t, nil, "", s3Tool(t, "versitygw"), "admin", "--access", writerKey, "--secret", gatewaySecret,
		"--endpoint-url", "http://"+gatewayAddress, "create-user", "--access", readerKey, "--secret", gatewaySecret, "--role", "user").ok(t)
	policy, err := os.ReadFile("../../keystore/s3store/testdata/reader-policy.json")
	must(t, err)
	named := strings.ReplaceAll(string(policy), `"Effect":`, `"Principal": {"AWS": ["`+readerKey+`"]}, "Effect":`)
	_, err = s3Client().PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: aws.String("keysets"), Policy: &named})
	must(t, err)
}

// s3Client is the administrator of the bucket.
func s3Client() *s3.Client {
	return s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://" + gatewayAddress), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(writerKey, gatewaySecret, ""),
	})
}

// write runs the command line on the bucket with the rights of key.
func (b *bucketScene) write(t *testing.T, key string, args ...string) result {
	t.Helper()
	return command(t, append(asUser(key), "KEYPOST_STORE="+bucketURL), "", binary("keypost"), args...)
}

func (b *bucketScene) startMirror(t *testing.T) {
	t.Helper()
	setEnv(t, asUser(readerKey))
	b.mirror = start(t, "mirror", binary("keypost"), "mirror", "--store", bucketURL, "--poll", "1s", b.store)
}

func ecFile(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(newECKey(t).Public())
	must(t, err)
	file := filepath.Join(t.TempDir(), "key.pub")
	writePEM(t, file, "PUBLIC KEY", der)
	return file
}

// kids returns the key IDs that are served; a request that fails fails the test.
func (b *bucketScene) kids(t *testing.T) (all []string) {
	t.Helper()
	for _, k := range object(t, get(t, b.ca.client(), b.issuer+"/keys.json"))["keys"].([]any) {
		all = append(all, k.(map[string]any)["kid"].(string))
	}
	return all
}

// TestS3Store: from the command line through a bucket and a mirror to a relying party, and what must not get there.
func TestS3Store(t *testing.T) {
	b := newBucketScene(t)
	b.write(t, writerKey, "issuer", "add", "prod-a", "--url", b.issuer, "--public-key-file", ecFile(t)).ok(t)
	b.startMirror(t)
	b.run(t)
	await(t, "prod-a is served", func(ctx context.Context) error { return expect(ctx, b.ca.client(), b.issuer+"/keys.json", "") })
	first := b.kids(t)
	backup := b.document(t)

	t.Run("the user of a mirror cannot write", func(t *testing.T) {
		r := b.write(t, readerKey, "key", "add", "prod-a", "--public-key-file", ecFile(t))
		if r.code != 1 || !strings.Contains(r.stderr, "the credentials do not allow s3:PutObject") {
			t.Errorf("exit code %d: %s", r.code, r.stderr)
		}
		if got := b.document(t); got != backup {
			t.Errorf("stored is\n%s", got)
		}
	})
	t.Run("a key that was added is served within a poll", func(t *testing.T) {
		b.write(t, writerKey, "key", "add", "prod-a", "--public-key-file", ecFile(t)).ok(t)
		began := time.Now()
		b.awaitKeys(t, 2)
		t.Logf("served after %v", time.Since(began))
	})
	t.Run("a restored backup changes nothing", func(t *testing.T) {
		now := b.document(t)
		b.put(t, backup)
		b.stays(t, 2)
		b.put(t, now)
	})
	t.Run("a bucket that was made again, empty, changes nothing", func(t *testing.T) {
		must(t, os.Rename(b.dir, b.dir+"-away"))
		b.stays(t, 2)
		must(t, os.Mkdir(b.dir, 0o755))
		b.stays(t, 2)
		must(t, os.Remove(b.dir))
		must(t, os.Rename(b.dir+"-away", b.dir))
	})
	t.Run("an outage changes nothing, and afterwards all goes on", func(t *testing.T) {
		b.gateway.stop(t, 5*time.Second)
		b.mirror.stop(t, 5*time.Second)
		b.startMirror(t)
		b.stays(t, 2)
		b.startGateway(t)
		b.write(t, writerKey, "key", "revoke", "prod-a", b.newest(t, first), "--why", "test").ok(t)
		b.awaitKeys(t, 1)
	})
	t.Run("a store that ignores conditions is refused", func(t *testing.T) { refusedByKeypost(t) })
}

// newest returns the key that is served and was not at first.
func (b *bucketScene) newest(t *testing.T, first []string) string {
	t.Helper()
	for _, id := range b.kids(t) {
		if !slices.Contains(first, id) {
			return id
		}
	}
	t.Fatal("no new key is served")
	return ""
}

func (b *bucketScene) awaitKeys(t *testing.T, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d keys", n), func(context.Context) error {
		if got := len(b.kids(t)); got != n {
			return fmt.Errorf("%d keys are served", got)
		}
		return nil
	})
}

// stays watches what is served over two polls: nothing of it may change, and no request may fail.
func (b *bucketScene) stays(t *testing.T, keys int) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 2500*time.Millisecond; time.Sleep(20 * time.Millisecond) {
		if got := b.kids(t); len(got) != keys {
			t.Fatalf("served are the keys %v, want %d", got, keys)
		}
	}
}

func (b *bucketScene) document(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, "clusters", "prod-a.yaml"))
	must(t, err)
	return string(data)
}

// put writes the document as a tool would that knows nothing of generations.
func (b *bucketScene) put(t *testing.T, text string) {
	t.Helper()
	_, err := s3Client().PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: aws.String("keysets"), Key: aws.String("clusters/prod-a.yaml"), Body: strings.NewReader(text),
	})
	must(t, err)
}

// refusedByKeypost shows a store to keypost that answers 200 to conditional writes and overwrites.
func refusedByKeypost(t *testing.T) {
	dir, address := t.TempDir(), "127.0.0.1:7071"
	must(t, os.Mkdir(filepath.Join(dir, "keysets"), 0o755))
	rclone := start(t, "rclone", s3Tool(t, "rclone"), "serve", "s3", "--addr", address,
		"--auth-key", writerKey+","+gatewaySecret, "--config", os.DevNull, dir)
	rclone.await(t, "answering", func(context.Context) error {
		res, err := http.Get("http://" + address)
		if err != nil {
			return err
		}
		return res.Body.Close()
	})
	r := command(t, append(asUser(writerKey), "KEYPOST_STORE="+strings.ReplaceAll(bucketURL, gatewayAddress, address)), "",
		binary("keypost"), "issuer", "add", "prod-a", "--url", "https://oidc.keypost.test/prod-a", "--public-key-file", ecFile(t))
	if r.code != 1 || !strings.Contains(r.stderr, "the store ignores conditions on writes") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "keysets", "clusters", "prod-a.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key set was written all the same: %v", err)
	}
}
