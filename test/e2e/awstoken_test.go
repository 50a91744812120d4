//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/keypost/keypost/test/keys"
)

// TestAWSTokenAssumesTheRole is a new cluster's way: keypost aws create-all first, then a kube-apiserver that signs with
// the key that the installer was given, then its tokens at AWS.
func TestAWSTokenAssumesTheRole(t *testing.T) {
	s := newTokenScene(t)
	t.Run("the right service account becomes the role", s.accepted)
	t.Run("what keypost verify prints repairs the account", s.repaired)
	t.Run("a token that has expired is refused after the clock skew", s.expired)
	t.Run("MinIO's STS takes and refuses tokens as predicted", s.minio)
}

// tokenScene is what the steps of TestAWSTokenAssumesTheRole share.
type tokenScene struct {
	ca       *authority
	server   *server
	account  *account
	a, b     *cluster // a is made by keypost; b is another cluster in the same account, with a provider of its own
	stranger *cluster // no account knows it
	role     string
}

func newTokenScene(t *testing.T) *tokenScene {
	ca := newAuthority(t)
	s := &tokenScene{ca: ca, server: newStore(t, ca), account: newAccount(t, ca)}
	out := t.TempDir()
	s.server.keypostAWS(t, nil, "create-key-pair", "--output-dir", out).ok(t)
	s.a = &cluster{name: "prod-a", issuer: "https://oidc.keypost.test/prod-a", key: keys.Private(read(t, filepath.Join(out, "tls", "bound-service-account-signing-key.key")))}
	s.b = &cluster{name: "prod-b", issuer: "https://prod-b.oidc.keypost.test", key: newRSAKey(t, 2048)}
	s.stranger = &cluster{name: "prod-c", issuer: "https://oidc.keypost.test/prod-c", key: newRSAKey(t, 2048)}
	s.server.publishedLongAgo(t, s.a.name, s.a.issuer, filepath.Join(out, "serviceaccount-signer.public"))
	startClusters(t, ca, s.a, s.b, s.stranger)
	s.a.createNeighbours(t)
	s.server.publishedLongAgo(t, s.b.name, s.b.issuer, s.b.publicKey)
	s.server.run(t)
	s.createAll(t, out)
	s.role = roleInSecret(t, out)
	return s
}

func (s *tokenScene) createAll(t *testing.T, out string) {
	r := s.server.keypostAWS(t, s.account.Env(), "create-all", "--name", s.a.name, "--region", "us-east-1", "--output-dir", out,
		"--credentials-requests-dir", writeRequests(t), "--issuer-url", s.a.issuer)
	r.ok(t)
	if first, _, _ := strings.Cut(r.stderr, "\n"); !strings.Contains(first, "123456789012") || !strings.Contains(first, s.a.issuer) {
		t.Errorf("the first line names neither account nor issuer: %s", first)
	}
	s.server.keypostAWS(t, s.account.Env(), "create-identity-provider", "--name", s.b.name, "--region", "us-east-1",
		"--output-dir", t.TempDir(), "--public-key-file", s.b.publicKey, "--issuer-url", s.b.issuer).ok(t)
}

func (s *tokenScene) accepted(t *testing.T) {
	w := newWorkload(t, s.account.URL, s.role)
	for _, aud := range []string{"openshift", audience} {
		arn, err := w.with(t, mint(t, s.a, "default", "sa1", aud))
		if want := strings.Replace(strings.Replace(s.role, ":iam:", ":sts:", 1), ":role/", ":assumed-role/", 1) + "/app"; err != nil || arn != want {
			t.Errorf("audience %s: became %q, %v, want %s", aud, arn, err, want)
		}
	}
}

// mint has a cluster sign a token.
func mint(t *testing.T, c *cluster, namespace, account, aud string) string {
	t.Helper()
	return strings.TrimSpace(c.kubectl(t, "--namespace", namespace, "create", "token", account, "--audience", aud))
}

func (s *tokenScene) expired(t *testing.T) {
	w := newWorkload(t, s.account.URL, s.role)
	defer s.account.ahead.Store(0)
	token := strings.TrimSpace(s.a.kubectl(t, "create", "token", "sa1", "--audience", audience, "--duration", "10m"))
	s.account.ahead.Store(int64(14 * time.Minute))
	if _, err := w.with(t, token); err != nil {
		t.Errorf("4 minutes after exp: %v", err)
	}
	s.account.ahead.Store(int64(16 * time.Minute))
	if arn, err := w.with(t, token); err == nil || !strings.Contains(err.Error(), "ExpiredTokenException: Token expired: current date/time") {
		t.Errorf("6 minutes after exp: became %q, %v", arn, err)
	}
}

const minioAddress = "127.0.0.1:19000"

// minio is a second implementation of AWS's call, by others, with a real check of the token.
func (s *tokenScene) minio(t *testing.T) {
	program := os.Getenv("KEYPOST_E2E_MINIO")
	if program == "" {
		t.Skip("MinIO is not here: KEYPOST_E2E_MINIO=$(test/tools/minio) builds and names it")
	}
	s.predictedOfMinIO(t, newWorkload(t, "http://"+minioAddress, s.startMinIO(t, program)))
}

var minioRole = regexp.MustCompile(`arn:minio:iam:::role/\S+`)

// startMinIO starts MinIO as a relying party of prod-a and returns the role that every token of it may assume.
func (s *tokenScene) startMinIO(t *testing.T, program string) string {
	t.Helper()
	certs := t.TempDir()
	ca := read(t, s.ca.file)
	must(t, os.Mkdir(filepath.Join(certs, "CAs"), 0o700))
	must(t, os.WriteFile(filepath.Join(certs, "CAs", "ca.crt"), ca, 0o600))
	for _, v := range [][2]string{
		{"MINIO_IDENTITY_OPENID_CONFIG_URL", s.a.issuer + "/.well-known/openid-configuration"},
		{"MINIO_IDENTITY_OPENID_CLIENT_ID", audience}, {"MINIO_IDENTITY_OPENID_ROLE_POLICY", "readwrite"}, {"MINIO_UPDATE", "off"},
	} {
		t.Setenv(v[0], v[1])
	}
	p := start(t, "minio", program, "server", "--certs-dir", certs, "--address", minioAddress, "--console-address", "127.0.0.1:19001", t.TempDir())
	var role string
	p.await(t, "ready", func(ctx context.Context) error {
		log, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		if role = minioRole.FindString(string(log)); role == "" {
			return fmt.Errorf("it has not printed its role yet")
		}
		return expect(ctx, http.DefaultClient, "http://"+minioAddress+"/minio/health/ready", "")
	})
	return role
}

// minioBuckets has the SDK's chain turn a token into MinIO's credentials and lists the buckets with them.
func (w *workload) minioBuckets(t *testing.T, token string) (status int, err error) {
	t.Helper()
	must(t, w.hold(token))
	cfg, err := w.config(t.Context())
	must(t, err)
	credentials, err := cfg.Credentials.Retrieve(t.Context())
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+minioAddress+"/", nil)
	must(t, err)
	nothing := sha256.Sum256(nil)
	digest := hex.EncodeToString(nothing[:])
	req.Header.Set("X-Amz-Content-Sha256", digest)
	must(t, v4.NewSigner().SignHTTP(t.Context(), credentials, req, digest, "s3", "us-east-1", time.Now()))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return res.StatusCode, fmt.Errorf("list buckets: %s", res.Status)
	}
	return res.StatusCode, nil
}
