//go:build e2e

package e2e

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/fakeaws"
)

// account is an AWS account whose STS reaches issuers by this network's names, and trusts its CA as a public one.
type account struct {
	*fakeaws.Server
	ahead atomic.Int64 // by how much its clock is
}

func newAccount(t *testing.T, ca *authority) *account {
	t.Helper()
	a := &account{}
	a.Server = fakeaws.Start(t, fakeaws.Options{
		Roots: ca.Pool(), Dial: (&net.Dialer{}).DialContext,
		Now: func() time.Time { return time.Now().Add(time.Duration(a.ahead.Load())) },
	})
	return a
}

// iam is a client of the account's administrator.
func (a *account) iam(t *testing.T) *iam.Client {
	t.Helper()
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithRegion("us-east-1"), config.WithBaseEndpoint(a.URL),
		config.WithCredentialsProvider(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: setting(a.Env(), "AWS_ACCESS_KEY_ID"), SecretAccessKey: setting(a.Env(), "AWS_SECRET_ACCESS_KEY")}, nil
		})))
	must(t, err)
	return iam.NewFromConfig(cfg)
}

func setting(env []string, name string) string {
	for _, e := range env {
		if value, is := strings.CutPrefix(e, name+"="); is {
			return value
		}
	}
	return ""
}

// provider is the account's provider for an issuer URL.
func (a *account) provider(url string) (fakeaws.Provider, bool) {
	for _, p := range a.State().Providers {
		if p.URL == url {
			return p, true
		}
	}
	return fakeaws.Provider{}, false
}

// keypostAWS runs keypost aws on the server's store in an account.
func (s *server) keypostAWS(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return s.keypostAt(t, env, append([]string{"aws"}, args...)...)
}

// keypostAt runs keypost on the server's store, with what a cloud's clients need in the environment. It may take as long as a
// publication takes to settle.
func (s *server) keypostAt(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return commandWithin(t, 4*time.Minute, s.environ(env), "", binary("keypost"), args...)
}

// environ is what a keypost that writes the server's store and trusts its CA has in its environment, unless env says otherwise.
func (s *server) environ(env []string) []string {
	return append([]string{"KEYPOST_STORE=file://" + s.store, "SSL_CERT_FILE=" + s.ca.file}, env...)
}

// publishedLongAgo stores a key set whose keys were observed everywhere long ago: what waits for a new one does not wait.
func (s *server) publishedLongAgo(t *testing.T, name, url, publicKeyFile string) {
	t.Helper()
	data := read(t, publicKeyFile)
	keys, err := pubkey.Parse(publicKeyFile, data)
	must(t, err)
	policy := keystore.Policy{RelyingParties: []string{"aws"}, TokenLifetime: keystore.DurationPtr(time.Hour)}
	set, err := keystore.New(keystore.Change{At: time.Now().Add(-24 * time.Hour), By: "e2e"},
		keystore.Spec{Name: keystore.Name(name), Issuers: storetest.URLs(t, url), Keys: keys, Policy: policy})
	must(t, err)
	observed := regexp.MustCompile(`(?m)^( *)publishedAt: (.*)$`).ReplaceAllString(storetest.Text(t, set), "$0\n${1}observedAt: $2")
	set, err = keystore.Parse(set.Name(), []byte(observed))
	must(t, err)
	st, err := filestore.Create(s.store)
	must(t, err)
	must(t, keystore.Create(t.Context(), keystore.NewStore(st), set))
}

// credentialsRequest lets a service account in namespace default list buckets.
const credentialsRequest = `apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: app, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: app-credentials, namespace: default}
  serviceAccountNames: [sa1]
  providerSpec:
    apiVersion: cloudcredential.openshift.io/v1
    kind: AWSProviderSpec
    statementEntries: [{effect: Allow, action: ["s3:ListAllMyBuckets"], resource: "*"}]
`

func writeRequests(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(credentialsRequest), 0o600))
	return dir
}

var roleLine = regexp.MustCompile(`role_arn = (\S+)`)

// roleInSecret is the role that a manifest written by keypost gives its workload.
func roleInSecret(t *testing.T, out string) string {
	t.Helper()
	data := read(t, filepath.Join(out, "manifests", "default-app-credentials-credentials.yaml"))
	found := roleLine.FindSubmatch(data)
	if found == nil {
		t.Fatalf("no role in %s", data)
	}
	return string(found[1])
}

// workload is a pod's own way to AWS: the environment that the pod identity webhook sets, and the SDK's default chain.
type workload struct{ tokenFile }

// newWorkload sets the environment of this process for a role at an STS.
func newWorkload(t *testing.T, endpoint, role string) *workload {
	t.Helper()
	w := &workload{newTokenFile(t)}
	for _, v := range [][2]string{
		{"AWS_ROLE_ARN", role}, {"AWS_WEB_IDENTITY_TOKEN_FILE", string(w.tokenFile)}, {"AWS_ROLE_SESSION_NAME", "app"},
		{"AWS_ENDPOINT_URL_STS", endpoint}, {"AWS_REGION", "us-east-1"}, {"AWS_EC2_METADATA_DISABLED", "true"},
		{"AWS_CONFIG_FILE", os.DevNull}, {"AWS_SHARED_CREDENTIALS_FILE", os.DevNull},
		{"AWS_ACCESS_KEY_ID", ""}, {"AWS_SECRET_ACCESS_KEY", ""}, {"AWS_PROFILE", ""},
	} {
		t.Setenv(v[0], v[1])
	}
	return w
}

// assume takes the whole way once, with nothing remembered and nothing tried twice, and says who it has become.
func (w *workload) assume(ctx context.Context) (string, error) {
	cfg, err := w.config(ctx)
	if err != nil {
		return "", err
	}
	who, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", err
	}
	return aws.ToString(who.Arn), nil
}

func (w *workload) config(ctx context.Context) (aws.Config, error) {
	return config.LoadDefaultConfig(ctx, config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }))
}

// with is assume with another token.
func (w *workload) with(t *testing.T, token string) (string, error) {
	t.Helper()
	must(t, w.hold(token))
	return w.assume(t.Context())
}
