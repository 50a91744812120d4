package aws_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/test/fakeaws"
	"github.com/keypost/keypost/test/scene"
)

const (
	issuerURL = scene.IssuerURL
	oldURL    = "https://prod-a-oidc.s3.us-east-1.amazonaws.com"
)

// world is all that an installation needs: an account and a scene.
type world struct {
	*fakeaws.Server
	*scene.Scene
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{fakeaws.Start(t, fakeaws.Options{}), scene.New(t)}
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// requests writes CredentialsRequests with these names.
func (w *world) requests(t *testing.T, names ...string) *aws.RequestedRoles {
	t.Helper()
	dir := filepath.Join(w.Dir, "requests")
	must(t, os.MkdirAll(dir, 0o700))
	for _, n := range names {
		text := strings.ReplaceAll(`apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: NAME, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: NAME-creds, namespace: ns-NAME}
  serviceAccountNames: [NAME]
  providerSpec:
    apiVersion: cloudcredential.openshift.io/v1
    kind: AWSProviderSpec
    statementEntries: [{effect: Allow, action: ["s3:GetObject"], resource: "*"}]
`, "NAME", n)
		must(t, os.WriteFile(filepath.Join(dir, n+".yaml"), []byte(text), 0o600))
	}
	return &aws.RequestedRoles{Dir: dir}
}

func (w *world) create(t *testing.T, names ...string) aws.CreateOptions {
	t.Helper()
	return aws.CreateOptions{
		Options: aws.Options{
			Options: w.Options("aws"), Config: w.Config(), Region: "us-east-1", ClientIDs: []string{"openshift", "sts.amazonaws.com"}, Usual: true,
		},
		Roles: w.requests(t, names...),
	}
}

// onlyRequests writes CredentialsRequests with these names to a directory of their own.
func (w *world) onlyRequests(t *testing.T, names ...string) string {
	t.Helper()
	from, to := w.requests(t, names...).Dir, t.TempDir()
	for _, n := range names {
		must(t, os.Rename(filepath.Join(from, n+".yaml"), filepath.Join(to, n+".yaml")))
	}
	return to
}

// writes returns how many calls wrote since the last time.
func (w *world) writes() int {
	n := 0
	for _, c := range w.Calls() {
		if c.Write {
			n++
		}
	}
	w.ResetCalls()
	return n
}
