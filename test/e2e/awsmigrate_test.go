//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/go-jose/go-jose/v4"
)

// The issuers of the move: ccoctl's public bucket, and keypostd.
const (
	bucketHost   = "prod-a-oidc.s3.us-east-1.amazonaws.com"
	bucketIssuer = "https://" + bucketHost
	newIssuer    = "https://oidc.keypost.test/prod-a"
	roleName     = "prod-a-default-app-credentials"
)

// TestAWSMigrateUnderAWorkload moves a cluster of two kube-apiservers from the bucket to keypostd, step after step,
// while a workload assumes its role again and again with whatever token the kubelet would give it.
func TestAWSMigrateUnderAWorkload(t *testing.T) {
	s := newMoveScene(t)
	w := newWorkload(t, s.account.URL, s.role)
	kubelet := s.startKubelet(t, w)
	working := w.keepAssuming(t)
	cached := kubelet.token() // what a program that never reads its file again goes on using

	s.begin(t)
	s.halfSwitched(t)
	s.switched(t)
	working.expectSteady(t)
	kubelet.stop()
	if arn, err := w.with(t, cached); err != nil {
		t.Errorf("a token of %s before --finish: became %q, %v", bucketIssuer, arn, err)
	}
	must(t, w.hold(kubelet.token()))
	working = w.keepAssuming(t)
	s.finish(t)
	working.expectSteady(t)
	if _, err := w.with(t, cached); err == nil || !strings.Contains(err.Error(), "No OpenIDConnect provider found in your account for "+bucketIssuer) {
		t.Errorf("a token of %s after --finish: %v", bucketIssuer, err)
	}
}

// TestAWSReplacedStatementFails shows that the harness of TestAWSMigrateUnderAWorkload can fail: the same move with the
// trust statement replaced, as a script of update-assume-role-policy does it, locks the workload out.
func TestAWSReplacedStatementFails(t *testing.T) {
	s := newMoveScene(t)
	w := newWorkload(t, s.account.URL, s.role)
	s.startKubelet(t, w)
	working := w.keepAssuming(t)
	await(t, "the workload works", func(context.Context) error {
		if working.tried.Load() < 10 {
			return fmt.Errorf("%d attempts", working.tried.Load())
		}
		return nil
	})
	if n := working.failed.Load(); n > 0 {
		t.Fatalf("%d failures before anything was replaced: %v", n, working.stop()[0])
	}
	_, err := s.account.iam(t).UpdateAssumeRolePolicy(t.Context(), &iam.UpdateAssumeRolePolicyInput{
		RoleName: aws.String(roleName), PolicyDocument: aws.String(ccoctlTrust(newIssuer))})
	must(t, err)
	await(t, "the workload fails", func(context.Context) error {
		if working.failed.Load() == 0 {
			return fmt.Errorf("%d attempts went well", working.tried.Load())
		}
		return nil
	})
	if failure := working.stop()[0]; !strings.Contains(failure.Error(), "AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity") {
		t.Errorf("it failed with %v", failure)
	}
}

// moveScene is a live cluster whose issuer is ccoctl's bucket, and a keypostd that does not know it yet.
type moveScene struct {
	server  *server
	account *account
	plane   *plane
	role    string // ARN
	opens   string // when --finish said that it would
}

func newMoveScene(t *testing.T) *moveScene {
	ca := newAuthority(t)
	s := &moveScene{server: newStore(t, ca), account: newAccount(t, ca)}
	startEtcd(t)
	s.plane = newPlane(t, ca, "prod-a", "10.99.0.11", "10.99.0.12")
	serveBucket(t, ca, s.plane.key.Public())
	s.plane.serve(t, 0, bucketIssuer)
	s.plane.serve(t, 1, bucketIssuer)
	s.plane.createAccount(t)
	s.plane.apply(t, fmt.Sprintf(podWithToken, "app", "openshift", 7200))
	s.plane.listed(t, s.plane.hosts...)
	s.server.run(t)
	s.registerAsCcoctl(t)
	return s
}

// serveBucket plays S3 with what ccoctl uploads: no caching headers, no content types.
func serveBucket(t *testing.T, ca *authority, key any) {
	t.Helper()
	addHost(t, "127.0.0.2", bucketHost)
	objects := map[string][]byte{}
	objects["/.well-known/openid-configuration"] = fmt.Appendf(nil, `{
	"issuer": "%[1]s",
	"jwks_uri": "%[1]s/keys.json",
    "response_types_supported": ["id_token"],
    "subject_types_supported": ["public"],
    "id_token_signing_alg_values_supported": ["RS256"],
    "claims_supported": ["aud", "exp", "sub", "iat", "iss", "sub"]
}`, bucketIssuer)
	der, err := x509.MarshalPKIXPublicKey(key)
	must(t, err)
	objects["/keys.json"], err = json.MarshalIndent(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{
		Use: "sig", KeyID: kidOfDER(der), Algorithm: "RS256", Key: key,
	}}}, "", "    ")
	must(t, err)
	certFile, keyFile := ca.issue(t, "bucket", bucketHost)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	must(t, err)
	l, err := tls.Listen("tcp", "127.0.0.2:443", &tls.Config{Certificates: []tls.Certificate{pair}})
	must(t, err)
	bucket := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, is := objects[r.URL.Path]
		w.Header().Set("Content-Type", "binary/octet-stream")
		if !is {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write(body)
	})}
	go func() { _ = bucket.Serve(l) }()
	t.Cleanup(func() { _ = bucket.Close() })
}

func kidOfDER(der []byte) string {
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// ccoctlTrust is the trust policy that ccoctl writes: no audience, and its spaces.
func ccoctlTrust(issuer string) string {
	host := strings.TrimPrefix(issuer, "https://")
	return fmt.Sprintf(`{ "Version": "2012-10-17", "Statement": [ { "Effect": "Allow", "Principal": { "Federated": "arn:aws:iam::123456789012:oidc-provider/%[1]s" }, `+
		`"Action": "sts:AssumeRoleWithWebIdentity", "Condition":  { "StringEquals": { "%[1]s:sub": [ "system:serviceaccount:default:sa1" ] } } } ] }`, host)
}

// registerAsCcoctl makes what ccoctl aws create-all made for the cluster, with its tags.
func (s *moveScene) registerAsCcoctl(t *testing.T) {
	t.Helper()
	client := s.account.iam(t)
	tags := []types.Tag{
		{Key: aws.String("openshift.io/cloud-credential-operator/prod-a"), Value: aws.String("owned")},
		{Key: aws.String("Name"), Value: aws.String("prod-a")},
	}
	_, err := client.CreateOpenIDConnectProvider(t.Context(), &iam.CreateOpenIDConnectProviderInput{
		Url: aws.String(bucketIssuer), ClientIDList: []string{"openshift", audience}, Tags: tags})
	must(t, err)
	role, err := client.CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName: aws.String(roleName), AssumeRolePolicyDocument: aws.String(ccoctlTrust(bucketIssuer)), Tags: tags})
	must(t, err)
	s.role = aws.ToString(role.Role.Arn)
}

// kubelet stands for what renews the workload's token file: it asks one kube-apiserver after the other, and keeps the
// last token while none answers.
type kubelet struct {
	stop func()
	mu   sync.Mutex
	last string
}

func (s *moveScene) startKubelet(t *testing.T, w *workload) *kubelet {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	k, done := &kubelet{}, make(chan struct{})
	client := s.plane.client()
	renew := func(i int) error {
		token, err := s.plane.mint(ctx, client, i%len(s.plane.hosts))
		if err != nil {
			return err
		}
		k.mu.Lock()
		k.last = token
		k.mu.Unlock()
		return w.hold(token)
	}
	must(t, renew(0))
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			_ = renew(i) // a kubelet keeps the token that it has
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	k.stop = func() { cancel(); <-done }
	t.Cleanup(k.stop)
	return k
}

func (k *kubelet) token() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// client asks any server of the plane for the name that their certificates have.
func (p *plane) client() *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(p.ca.cert)
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: p.hosts[0]}}}
}

// mint has the i-th server sign a token for the workload, as a kubelet asks for it.
func (p *plane) mint(ctx context.Context, client *http.Client, i int) (string, error) {
	body := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["openshift"],"expirationSeconds":7200}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+p.at(i)+"/api/v1/namespaces/default/serviceaccounts/sa1/token", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var reply struct{ Status struct{ Token string } }
	if err := json.NewDecoder(res.Body).Decode(&reply); err != nil {
		return "", err
	}
	if reply.Status.Token == "" {
		return "", fmt.Errorf("no token: %s", res.Status)
	}
	return reply.Status.Token, nil
}

func (s *moveScene) args(more ...string) []string {
	return append([]string{"migrate", "--from-issuer-url", bucketIssuer, "--issuer-url", newIssuer,
		"--kubeconfig", s.plane.kubeconfig, "--service-account", "default/sa1"}, more...)
}

func (s *moveScene) keypost(t *testing.T, more ...string) result {
	t.Helper()
	return s.server.keypostAWS(t, s.account.Env(), s.args(more...)...)
}

// begin publishes and registers; it is killed in the midst of it, once, and the next run completes it.
func (s *moveScene) begin(t *testing.T) {
	before := s.keypost(t, "--diff")
	if before.code != 3 || !strings.Contains(before.stdout, newIssuer) || !strings.Contains(before.stdout, roleName) {
		t.Errorf("--diff: exit code %d\n%s%s", before.code, before.stdout, before.stderr)
	}
	s.killed(t)
	r := s.keypost(t)
	if want := "--service-account-issuer=" + newIssuer + " --service-account-issuer=" + bucketIssuer + "\n"; r.ok(t) != want {
		t.Errorf("stdout %q, want the flags alone: %q", r.stdout, want)
	}
	if again := s.keypost(t, "--diff"); again.code != 0 {
		t.Errorf("after it --diff still finds something: %d\n%s%s", again.code, again.stdout, again.stderr)
	}
	if early := s.keypost(t, "--finish"); early.code != 75 || !strings.Contains(early.stderr, "still signs as "+bucketIssuer) {
		t.Errorf("--finish before the switch: exit code %d\n%s", early.code, early.stderr)
	}
}

// killed starts a run and ends it with SIGKILL when the key set is stored.
func (s *moveScene) killed(t *testing.T) {
	t.Helper()
	cmd := exec.Command(binary("keypost"), append([]string{"aws"}, s.args()...)...)
	cmd.Env = append(append(cmd.Environ(), s.account.Env()...), "KEYPOST_STORE=file://"+s.server.store, "SSL_CERT_FILE="+s.server.ca.file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	await(t, "the key set is served", func(ctx context.Context) error {
		return expect(ctx, s.server.ca.client(), newIssuer+"/keys.json", "")
	})
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Errorf("it had ended already: %s", stderr.String())
	}
}

// halfSwitched: one kube-apiserver signs as the new issuer, one does not.
func (s *moveScene) halfSwitched(t *testing.T) {
	s.plane.serve(t, 1, newIssuer, bucketIssuer)
	s.plane.listed(t, s.plane.hosts...)
	r := s.keypost(t, "--finish")
	if want := "the kube-apiserver at " + s.plane.at(0) + " still signs as " + bucketIssuer; r.code != 75 || !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, s.plane.at(1)) {
		t.Errorf("--finish: exit code %d, want 75 and %q\n%s", r.code, want, r.stderr)
	}
}

// switched: all sign as the new issuer, but a token of before may live for two hours and the clock skew.
func (s *moveScene) switched(t *testing.T) {
	s.plane.serve(t, 0, newIssuer, bucketIssuer)
	s.plane.listed(t, s.plane.hosts...)
	from := time.Now()
	first := s.keypost(t, "--finish")
	_, rest, _ := strings.Cut(first.stderr, "possible from ")
	s.opens, _, _ = strings.Cut(rest, " ")
	opens, err := time.Parse(time.RFC3339, s.opens)
	if wait := opens.Sub(from); first.code != 75 || err != nil || wait < 2*time.Hour+6*time.Minute-2*time.Second || wait > 2*time.Hour+7*time.Minute || !strings.Contains(first.stderr, "default/app") {
		t.Errorf("--finish: exit code %d, opens in %v (%v), want 75 and 2h6m because of pod default/app\n%s", first.code, wait, err, first.stderr)
	}
	if again := s.keypost(t, "--finish"); again.code != 75 || !strings.Contains(again.stderr, "possible from "+s.opens) {
		t.Errorf("the second time: exit code %d, want 75 and the same time\n%s", again.code, again.stderr)
	}
}

// finish lets the time pass, by moving the note of it back, and takes the old trust away.
func (s *moveScene) finish(t *testing.T) {
	old, is := s.account.provider(bucketIssuer)
	if !is || old.Tags["keypost.dev/moved-at"] == "" {
		t.Fatalf("no note of the switch at the old provider: %+v", old)
	}
	past := time.Now().Add(-2*time.Hour - 6*time.Minute - time.Second).UTC().Format(time.RFC3339)
	_, err := s.account.iam(t).TagOpenIDConnectProvider(t.Context(), &iam.TagOpenIDConnectProviderInput{
		OpenIDConnectProviderArn: aws.String(old.ARN), Tags: []types.Tag{{Key: aws.String("keypost.dev/moved-at"), Value: aws.String(past)}}})
	must(t, err)
	if r := s.keypost(t, "--finish", "--diff"); r.code != 3 || !strings.Contains(r.stdout, bucketHost) {
		t.Errorf("--finish --diff: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	r := s.keypost(t, "--finish")
	r.ok(t)
	for _, want := range []string{"aws s3 rm s3://prod-a-oidc --recursive", "ccoctl aws delete"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("it does not say %q:\n%s", want, r.stderr)
		}
	}
	state := s.account.State()
	if len(state.Providers) != 1 || state.Providers[0].URL != newIssuer || len(state.Roles) != 1 || strings.Contains(state.Roles[0].Trust, bucketHost) {
		t.Errorf("left over: %+v", state)
	}
	s.keypost(t, "--finish").ok(t)
}
