//go:build e2e_full

package replicas

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/kubestore"
	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/keys"
	"github.com/keypost/keypost/test/process"
)

// backend is a real store that can be taken away.
type backend struct {
	url     string // for --store
	poll    time.Duration
	open    func() *keystore.Store
	stop    func()
	restart func() // returns once the store can be written
}

const (
	adminToken = "replicas-administrator"
	definition = "../../charts/keypost/files/keysets.keypost.dev.yaml"
)

// kube is a kube-apiserver and its etcd.
type kube struct {
	t                      *testing.T
	bin, dir               string
	etcdAt, etcdPeerAt, at string
	client                 *http.Client
	etcd, api              *process.Process
}

func newKube(t *testing.T) *backend {
	k := &kube{t: t, bin: tool(t, "kube"), dir: t.TempDir(), etcdAt: process.FreeAddress(t), etcdPeerAt: process.FreeAddress(t), at: process.FreeAddress(t)}
	ca := authority.New(t)
	ca.Issue(t, k.dir, "127.0.0.1")
	key := keys.NewEC()
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	k.write("sa.key", keys.PEM("PRIVATE KEY", private))
	k.write("sa.pub", keys.PEM("PUBLIC KEY", keys.SPKI(key.Public())))
	k.write("tokens.csv", adminToken+`,admin,1,"system:masters"`+"\n")
	k.write("kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://%s", certificate-authority: %q}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`, k.at, k.path("ca.pem"), adminToken))
	k.client = clientOf(ca, "")
	k.restart()
	k.define()
	b := &backend{url: "kubernetes://default?kubeconfig=" + k.path("kubeconfig"), poll: 10 * time.Second, stop: k.stop, restart: k.restart}
	b.open = func() *keystore.Store {
		st, err := kubestore.Open(t.Context(), "default", kubestore.Options{Kubeconfig: k.path("kubeconfig")})
		must(t, err)
		return keystore.NewStore(st)
	}
	return b
}

func (k *kube) path(name string) string { return filepath.Join(k.dir, name) }

func (k *kube) write(name, text string) { must(k.t, os.WriteFile(k.path(name), []byte(text), 0o600)) }

func (k *kube) stop() {
	k.api.Kill()
	k.etcd.Kill()
}

func (k *kube) restart() {
	k.etcd = start(k.t, nil, filepath.Join(k.bin, "etcd"), "--data-dir", k.path("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", "http://"+k.etcdAt, "--advertise-client-urls", "http://"+k.etcdAt,
		"--listen-peer-urls", "http://"+k.etcdPeerAt, "--initial-advertise-peer-urls", "http://"+k.etcdPeerAt, "--initial-cluster", "default=http://"+k.etcdPeerAt)
	process.Await(k.t, "etcd", func() error { return process.Answers(http.DefaultClient, "http://"+k.etcdAt+"/health", "") })
	_, port, _ := strings.Cut(k.at, ":")
	k.api = start(k.t, nil, filepath.Join(k.bin, "kube-apiserver"),
		"--etcd-servers=http://"+k.etcdAt, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+port,
		"--tls-cert-file="+k.path("tls.crt"), "--tls-private-key-file="+k.path("tls.key"), "--cert-dir="+k.path("certs"),
		"--service-cluster-ip-range=10.96.0.0/24", "--authorization-mode=RBAC", "--token-auth-file="+k.path("tokens.csv"),
		"--service-account-issuer=https://kube.test", "--service-account-signing-key-file="+k.path("sa.key"), "--service-account-key-file="+k.path("sa.pub"),
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none")
	process.Await(k.t, "kube-apiserver", func() error { return process.Answers(k.client, "https://"+k.at+"/readyz", adminToken) })
}

func (k *kube) define() {
	process.Await(k.t, "the definition of KeySet", func() error {
		ctx, cancel := context.WithTimeout(k.t.Context(), 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(k.bin, "kubectl"), "--kubeconfig", k.path("kubeconfig"), "apply", "--server-side", "-f", definition)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl: %w: %s", err, out)
		}
		return process.Answers(k.client, "https://"+k.at+"/apis/keypost.dev/v1/namespaces/default/keysets", adminToken)
	})
}
