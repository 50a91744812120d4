//go:build e2e

package e2e

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/go-jose/go-jose/v4"
)

// TestAWSTokenAssumesTheRole is a new cluster's way: keypost aws create-all first, then a kube-apiserver that signs with
// the key that the installer was given, then its tokens at AWS.
func TestAWSTokenAssumesTheRole(t *testing.T) {
	s := newTokenScene(t)
	t.Run("the right service account becomes the role", s.accepted)
	t.Run("what keypost verify prints repairs the account", s.repaired)
	t.Run("a token that has expired is refused after the clock skew", s.expired)
	t.Run("MinIO's STS accepts the same token", s.minio)
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
	s.a = &cluster{name: "prod-a", issuer: "https://oidc.keypost.test/prod-a", key: readSigningKey(t, filepath.Join(out, "tls", "bound-service-account-signing-key.key"))}
	s.b = &cluster{name: "prod-b", issuer: "https://prod-b.oidc.keypost.test", key: newRSAKey(t, 2048)}
	s.stranger = &cluster{name: "prod-c", issuer: "https://oidc.keypost.test/prod-c", key: newRSAKey(t, 2048)}
	s.server.publishedLongAgo(t, s.a.name, s.a.issuer, filepath.Join(out, "serviceaccount-signer.public"))
	s.startClusters(t)
	s.server.publishedLongAgo(t, s.b.name, s.b.issuer, s.b.publicKey)
	s.server.run(t)
	s.createAll(t, out)
	s.role = roleInSecret(t, out)
	return s
}

func (s *tokenScene) startClusters(t *testing.T) {
	startEtcd(t)
	clusters := []*cluster{s.a, s.b, s.stranger}
	var running []*process
	for i, c := range clusters {
		running = append(running, startCluster(t, s.ca, c, 6443+i))
	}
	for i, c := range clusters {
		c.awaitReady(t, running[i])
		c.createAccount(t)
	}
	s.a.createNeighbours(t)
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

// readSigningKey reads what the installer gives the cluster.
func readSigningKey(t *testing.T, file string) crypto.Signer {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("%s holds no PEM", file)
	}
	if block.Type == "EC PRIVATE KEY" {
		key, err := x509.ParseECPrivateKey(block.Bytes)
		must(t, err)
		return key
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	must(t, err)
	return key
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
	w := newWorkload(t, "http://"+minioAddress, s.startMinIO(t, program))
	right := mint(t, s.a, "default", "sa1", audience)
	if _, err := w.minioBuckets(t, right); err != nil {
		t.Errorf("the right token: %v", err)
	}
	for name, token := range map[string]string{
		"another audience":             mint(t, s.a, "default", "sa1", "vault"),
		"another cluster":              mint(t, s.b, "default", "sa1", audience),
		"signed by an unpublished key": resign(t, right, newRSAKey(t, 2048), jose.RS256, kidOf(t, right)),
	} {
		if status, err := w.minioBuckets(t, token); err == nil || !strings.Contains(err.Error(), "StatusCode: 400") {
			t.Errorf("%s: %d, %v, want it refused by AssumeRoleWithWebIdentity", name, status, err)
		}
	}
	s.predictedOfMinIO(t, w)
}

var minioRole = regexp.MustCompile(`arn:minio:iam:::role/\S+`)

// startMinIO starts MinIO as a relying party of prod-a and returns the role that every token of it may assume.
func (s *tokenScene) startMinIO(t *testing.T, program string) string {
	t.Helper()
	certs := t.TempDir()
	ca, err := os.ReadFile(s.ca.file)
	must(t, err)
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
