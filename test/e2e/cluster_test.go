//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// adminToken is the bearer token of every cluster's administrator.
const adminToken = "e2e-administrator"

// cluster is a real kube-apiserver: it signs the tokens of its service accounts.
type cluster struct {
	name, issuer string
	key          crypto.Signer // signs its service account tokens
	publicKey    string        // file with the public half, PEM
	trusts       string        // file with the keys that the server verifies tokens with; publicKey if empty
	kubeconfig   string        // of its administrator
	signer       string        // socket of an external signer, in place of key and trusts
	issuerFlags  []string      // what the kube-apiserver says of issuer and audiences; nil: issuer only
	address      string        // host:port
	ca           *authority
}

// kubeBinary is the path of kube-apiserver, kubectl or etcd.
func kubeBinary(name string) string { return filepath.Join(os.Getenv("KEYPOST_E2E_KUBE"), name) }

// startEtcd starts the one etcd in which every cluster has a prefix of its own.
func startEtcd(t *testing.T) { startEtcdIn(t, t.TempDir()) }

func startEtcdIn(t *testing.T, dir string) *process {
	t.Helper()
	p := start(t, "etcd", kubeBinary("etcd"), "--data-dir", dir, "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380")
	p.await(t, "healthy", func(ctx context.Context) error {
		return expect(ctx, http.DefaultClient, "http://127.0.0.1:2379/health", "")
	})
	return p
}

// startCluster starts a kube-apiserver on a port of 127.0.0.1. The caller awaits it (several start side by side).
func startCluster(t *testing.T, ca *authority, c *cluster, port int, extra ...string) *process {
	t.Helper()
	dir := t.TempDir()
	c.ca, c.address = ca, fmt.Sprintf("127.0.0.1:%d", port)
	c.publicKey, c.kubeconfig = filepath.Join(dir, "sa.pub"), filepath.Join(dir, "kubeconfig")
	writePrivateKey(t, filepath.Join(dir, "sa.key"), c.key)
	writePublicKey(t, c.publicKey, c.key)
	tokens := filepath.Join(dir, "tokens.csv")
	must(t, os.WriteFile(tokens, []byte(adminToken+`,admin,1,"system:masters"`+"\n"), 0o600))
	c.writeKubeconfig(t)
	issuerFlags := c.issuerFlags
	if issuerFlags == nil {
		issuerFlags = []string{"--service-account-issuer=" + c.issuer, "--service-account-jwks-uri=" + c.issuer + "/keys.json", "--api-audiences=" + c.issuer}
	}
	signFlags := []string{"--service-account-signing-key-file=" + filepath.Join(dir, "sa.key"), "--service-account-key-file=" + cmp.Or(c.trusts, c.publicKey)}
	if c.signer != "" {
		signFlags = []string{"--service-account-signing-endpoint=" + c.signer}
	}
	cert, key := ca.issue(t, "apiserver-"+c.name, "127.0.0.1")
	flags := append([]string{
		"--etcd-servers=http://127.0.0.1:2379", "--etcd-prefix=/" + c.name,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
		"--service-cluster-ip-range=10.96.0.0/24", "--authorization-mode=RBAC", "--token-auth-file=" + tokens,
		// No controller manager runs here to make default service accounts, and no node needs the endpoints.
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none",
	}, append(signFlags, issuerFlags...)...)
	return start(t, "apiserver-"+c.name, kubeBinary("kube-apiserver"), append(flags, extra...)...)
}

// startClusters starts kube-apiservers side by side, at ports from 6443 on, and makes the service account of each.
func startClusters(t *testing.T, ca *authority, clusters ...*cluster) {
	t.Helper()
	startEtcd(t)
	var running []*process
	for i, c := range clusters {
		running = append(running, startCluster(t, ca, c, 6443+i))
	}
	for i, c := range clusters {
		c.awaitReady(t, running[i])
		c.createAccount(t)
	}
}

func (c *cluster) writeKubeconfig(t *testing.T) {
	t.Helper()
	ca := read(t, c.ca.file)
	must(t, os.WriteFile(c.kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: %[1]s, cluster: {server: "https://%[2]s", certificate-authority-data: %[3]s}}]
users: [{name: admin, user: {token: %[4]s}}]
contexts: [{name: %[1]s, context: {cluster: %[1]s, user: admin}}]
current-context: %[1]s
`, c.name, c.address, base64.StdEncoding.EncodeToString(ca), adminToken), 0o600))
}

func (c *cluster) awaitReady(t *testing.T, p *process) {
	t.Helper()
	client := c.ca.client()
	p.await(t, "ready", func(ctx context.Context) error {
		return expect(ctx, client, "https://"+c.address+"/readyz", adminToken)
	})
}

// kubeconfigOf writes the administrator's kubeconfig with the bearer token of another.
func kubeconfigOf(t *testing.T, administrator, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, bytes.ReplaceAll(read(t, administrator), []byte(adminToken), []byte(token)), 0o600))
	return file
}

// kubectl runs kubectl as the cluster's administrator and returns its standard output.
func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return command(t, nil, "", kubeBinary("kubectl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...).ok(t)
}

// createAccount makes the service account whose tokens the tests use.
func (c *cluster) createAccount(t *testing.T) {
	t.Helper()
	// The namespace appears some moments after the server is ready.
	await(t, "service account in "+c.name, func(context.Context) error {
		r := command(t, nil, "", kubeBinary("kubectl"), "--kubeconfig", c.kubeconfig, "create", "serviceaccount", "sa1")
		if r.code != 0 && !strings.Contains(r.stderr, "already exists") {
			return fmt.Errorf("kubectl: %s", r.stderr)
		}
		return nil
	})
}

// createNeighbours makes service accounts that are like the one of createAccount but for their namespace or their name.
func (c *cluster) createNeighbours(t *testing.T) {
	t.Helper()
	c.kubectl(t, "create", "namespace", "other")
	c.kubectl(t, "--namespace", "other", "create", "serviceaccount", "sa1")
	c.kubectl(t, "create", "serviceaccount", "sa2")
}

// token has the cluster sign a token for its service account, as a pod with a projected volume gets it.
func (c *cluster) token(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(c.kubectl(t, "create", "token", "sa1", "--audience", audience))
}

// whoami asks the cluster, as an API server that relies on our issuer, who the holder of a token is.
func (c *cluster) whoami(t *testing.T, token string) result {
	t.Helper()
	return command(t, []string{"KUBECONFIG=/dev/null"}, "", kubeBinary("kubectl"), "--server", "https://"+c.address,
		"--certificate-authority", c.ca.file, "--token", token, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
}

// expect says nil when url answers 200.
func expect(ctx context.Context, client *http.Client, url, bearer string) error {
	_, err := fetch(ctx, client, url, bearer)
	return err
}

// fetch returns the body of an answer with 200.
func fetch(ctx context.Context, client *http.Client, url, bearer string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, res.Status, body)
	}
	return body, err
}
