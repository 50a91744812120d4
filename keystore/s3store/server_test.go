package s3store

import (
	"bytes"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/process"
)

const (
	bucket    = "keysets"
	rootKey   = "root-access-key"
	rootPass  = "root-secret"
	inRegion  = "us-east-1"
	versioned = "versioned" // directory of old versions
)

// server is a real S3 server, with its objects as files under dir.
type server struct {
	url, dir string
}

// program returns the path of a tool that test/tools installs. Where it is not installed the test is skipped, which
// .ci/run does not let pass.
func program(t testing.TB, tool string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("../../test/tools/"+tool, "--built")
	cmd.Stderr = &stderr
	path, err := cmd.Output()
	if err != nil {
		t.Skipf("needs %s: %v %s", tool, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(path))
}

// gateway starts a versitygw with one bucket.
func gateway(t testing.TB) *server {
	t.Helper()
	sv := emptyGateway(t)
	must(t, os.Mkdir(filepath.Join(sv.dir, bucket), 0o755))
	return sv
}

func emptyGateway(t testing.TB) *server {
	t.Helper()
	path, dir := program(t, "versitygw"), t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "data"), 0o755))
	must(t, os.Mkdir(filepath.Join(dir, versioned), 0o755))
	must(t, os.Mkdir(filepath.Join(dir, "iam"), 0o755))
	address := process.FreeAddress(t)
	start(t, address, path, "--access", rootKey, "--secret", rootPass, "--region", inRegion, "--port", address, "--quiet", "--keep-alive",
		"--iam-dir", filepath.Join(dir, "iam"), "--iam-cache-disable",
		"posix", "--versioning-dir", filepath.Join(dir, versioned), filepath.Join(dir, "data"))
	return &server{"http://" + address, filepath.Join(dir, "data")}
}

// start runs a server until the test ends and waits until it answers at address.
func start(t testing.TB, address, path string, args ...string) {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	p := process.Start(t, cmd)
	t.Cleanup(func() { p.Stop(5 * time.Second) })
	p.Await(t, path+" answers", func() error {
		answer, err := http.Get("http://" + address)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	})
}

// as makes the credentials of the SDK's chain those of one user, and nothing of the machine's own configuration count.
func as(t testing.TB, key, secret string) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": "",
		"AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "", "AWS_ROLE_ARN": "",
	} {
		t.Setenv(name, value)
	}
}

// open opens a store at an endpoint with root's credentials, and o's other options.
func open(t testing.TB, url string, o Options) *Backend {
	t.Helper()
	as(t, rootKey, rootPass)
	return reopen(t, url, o)
}

// reopen is open with whatever credentials are in the environment.
func reopen(t testing.TB, url string, o Options) *Backend {
	t.Helper()
	o.Bucket, o.Endpoint, o.Region = bucket, url, inRegion
	st, err := Open(t.Context(), o)
	must(t, err)
	return st
}

func newPrefix() Options { return Options{Prefix: "clusters/" + strings.ToLower(rand.Text())} }

func create(t testing.TB, st keystore.Backend, n keystore.Name) keystore.KeySet {
	t.Helper()
	s := storetest.KeySet(t, n)
	must(t, keystore.Create(t.Context(), keystore.NewStore(st), s))
	return s
}

func list(t testing.TB, st keystore.Backend) map[keystore.Name]keystore.Revision {
	t.Helper()
	all, err := st.List(t.Context())
	must(t, err)
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err, want error, part string) {
	t.Helper()
	if err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), part) {
		t.Errorf("the error is %v, want %v with %q", err, want, part)
	}
}
