package contract

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakeaws"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/fakegcp"
	"github.com/keypost/keypost/test/process"
)

// firstRun is how long a new installation may take beside its keypostd. Nearly all of it is for a busy machine.
const firstRun = 30 * time.Second

// A new installation beside keypostd takes seconds in every cloud: the first one, for which keypostd has nothing at all and answers 503,
// and the next ones, whose URLs it does not know and answers 404.
func TestANewInstallationTakesSeconds(t *testing.T) {
	t.Parallel()
	bin, dir, port := t.TempDir(), filepath.Join(t.TempDir(), "dev"), freePort(t)
	must(t, process.Build("../..", bin, "./cmd/keypost"))
	v := startWith(t, settings{dir: filepath.Join(dir, "keysets"), config: filepath.Join(dir, "keypostd.yaml")},
		"--dev", dir, "--address", "127.0.0.1:"+port, "--admin-address", "127.0.0.1:"+freePort(t))
	requests := t.TempDir()
	for _, provider := range []string{
		"kind: AzureProviderSpec, permissions: [Microsoft.Compute/disks/read]",
		`kind: AWSProviderSpec, statementEntries: [{effect: Allow, action: ["ec2:DescribeVolumes"], resource: "*"}]`,
		"kind: GCPProviderSpec, predefinedRoles: [roles/compute.viewer]",
	} {
		file := filepath.Join(requests, provider[6:11]+".yaml")
		must(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: one, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: one, namespace: one-ns}
  serviceAccountNames: [a]
  providerSpec: {apiVersion: cloudcredential.openshift.io/v1, %s}
`, provider), 0o600))
	}
	directory, project, account := fakeazure.Start(t, fakeazure.Options{}), fakegcp.Start(t, fakegcp.Options{}), fakeaws.Start(t, fakeaws.Options{AllowPorts: true})
	google, err := project.Env()
	must(t, err)
	for _, cloud := range []struct {
		name string
		env  []string
		args []string
	}{
		{"azure", append(directory.Env(), directory.Tunnel(t)...), []string{"--region", "centralus", "--subscription-id", "11111111-2222-3333-4444-555555555555",
			"--tenant-id", "99999999-8888-7777-6666-555555555555"}},
		{"gcp", append(google, project.Tunnel(t)...), []string{"--project", "my-project"}},
		{"aws", account.Env(), []string{"--region", "us-east-1"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), firstRun)
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "keypost"), slices.Concat([]string{cloud.name, "create-all", "--name", "new-" + cloud.name,
			"--credentials-requests-dir", requests, "--output-dir", filepath.Join(t.TempDir(), "out"), "--issuer-url", "https://localhost:" + port + "/new-" + cloud.name,
			"--dev", "--store", "file://" + v.dir}, cloud.args)...)
		cmd.Env = append(append(os.Environ(), cloud.env...), "NO_PROXY=localhost", "SSL_CERT_FILE="+trusted(t, cloud.env, filepath.Join(dir, "ca.pem")))
		began := time.Now()
		said, err := cmd.CombinedOutput()
		cancel()
		t.Logf("%s: %v", cloud.name, time.Since(began).Round(10*time.Millisecond))
		if err != nil {
			t.Errorf("%s: %v after %v:\n%s", cloud.name, err, time.Since(began), said)
		}
	}
}

// trusted returns a file with the CAs that an environment names already, and one more.
func trusted(t *testing.T, env []string, ca string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trusted.pem")
	var all []byte
	for _, kv := range append([]string{"SSL_CERT_FILE=" + ca}, env...) {
		if name, is := strings.CutPrefix(kv, "SSL_CERT_FILE="); is {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, data...)
		}
	}
	if err := os.WriteFile(file, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
