//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/yaml"
)

// TestKubeadmPatches: a real kube-apiserver runs with the flags of the manifest that kubeadm v1.34.4 writes, patched as docs/platforms has
// kubeadm patch it, and has its tokens signed by keypost-signer. The manifests in testdata/kubeadm are kubeadm's own output; that a kubelet
// restarts the pods is not shown.
func TestKubeadmPatches(t *testing.T) {
	const host = "10.99.0.41"
	ca := newAuthority(t)
	addAddress(t, host)
	startEtcd(t)
	c := &cluster{name: "kubeadm", ca: ca, address: host + ":6443", key: newRSAKey(t, 2048), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	c.writeKubeconfig(t)
	dir := t.TempDir()
	pki, socketDir := filepath.Join(dir, "pki"), filepath.Join(dir, "run")
	writePKI(t, ca, pki, host)
	startSignerOf(t, c, dir, filepath.Join(socketDir, "signer.sock"))
	tokens := filepath.Join(dir, "tokens.csv")
	must(t, os.WriteFile(tokens, []byte(adminToken+`,admin,1,"system:masters"`+"\n"), 0o600))

	words := patched(t, "kube-apiserver")
	if all := strings.Join(words, " "); !strings.Contains(all, "--service-account-signing-endpoint=") || strings.Contains(all, "key-file=/etc/kubernetes/pki/sa.") {
		t.Fatalf("the patched command is %s", all)
	}
	here := strings.NewReplacer("/etc/kubernetes/pki", pki, "/run/keypost-signer", socketDir, "192.0.2.10", host, "https://127.0.0.1:2379", "http://127.0.0.1:2379")
	flags := []string{"--bind-address=" + host, "--etcd-prefix=/kubeadm", "--token-auth-file=" + tokens}
	for _, flag := range words[1:] {
		flags = append(flags, here.Replace(flag))
	}
	c.awaitReady(t, start(t, "apiserver-kubeadm", kubeBinary("kube-apiserver"), flags...))
	c.createAccount(t)
	token := c.token(t)
	if jwks := c.kubectl(t, "get", "--raw", "/openid/v1/jwks"); !strings.Contains(jwks, kidOf(t, token)) {
		t.Errorf("the key that signs is not listed: %s", jwks)
	}
	c.reviews(t, token, "a token that keypost-signer signed")

	c.kubectl(t, "--namespace", "kube-system", "create", "serviceaccount", "default")
	c.kubectl(t, "apply", "--dry-run=server", "-f", filepath.Join("..", "..", "cmd", "keypost-signer", "kubeadm", "keypost-signer.yaml"))

	if all := strings.Join(patched(t, "kube-controller-manager"), " "); strings.Contains(all, "private-key-file") {
		t.Errorf("the kube-controller-manager keeps a key: %s", all)
	}
}

// patched returns the command of kubeadm's manifest after our patch of it.
func patched(t *testing.T, component string) []string {
	t.Helper()
	manifest := jsonOf(t, filepath.Join("testdata", "kubeadm", component+".yaml"))
	patch, err := jsonpatch.DecodePatch(jsonOf(t, filepath.Join("..", "..", "cmd", "keypost-signer", "kubeadm", "patches", component+"+json.yaml")))
	must(t, err)
	result, err := patch.Apply(manifest)
	must(t, err)
	var pod struct {
		Spec struct {
			Containers []struct{ Command []string }
		}
	}
	must(t, yaml.Unmarshal(result, &pod))
	return pod.Spec.Containers[0].Command
}

func jsonOf(t *testing.T, file string) []byte {
	t.Helper()
	text, err := yaml.YAMLToJSON(read(t, file))
	must(t, err)
	return text
}

// writePKI writes the files that kubeadm's flags name.
func writePKI(t *testing.T, ca *authority, pki, host string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(pki, "etcd"), 0o700))
	cert, key := ca.issue(t, "kubeadm", host)
	for _, name := range []string{"ca.crt", "etcd/ca.crt", "front-proxy-ca.crt"} {
		must(t, os.Symlink(ca.file, filepath.Join(pki, name)))
	}
	for _, name := range []string{"apiserver", "apiserver-etcd-client", "apiserver-kubelet-client", "front-proxy-client"} {
		must(t, os.Symlink(cert, filepath.Join(pki, name+".crt")))
		must(t, os.Symlink(key, filepath.Join(pki, name+".key")))
	}
}

// startSignerOf starts a keypost-signer that holds the cluster's key, with a key set of it.
func startSignerOf(t *testing.T, c *cluster, dir, socket string) {
	t.Helper()
	keys := filepath.Join(dir, "keys")
	must(t, os.MkdirAll(keys, 0o700))
	writePrivateKey(t, filepath.Join(keys, "sa.key"), c.key)
	startSignerWith(t, c, binary("keypost-signer"), dir, socket, "keys: "+keys)
}

// startSignerWith starts a keypost-signer whose configuration says where the cluster's key is held, with a key set of it.
func startSignerWith(t *testing.T, c *cluster, program, dir, socket, held string) {
	t.Helper()
	keySets, config, public := filepath.Join(dir, "keysets"), filepath.Join(dir, "signer.yaml"), filepath.Join(dir, "sa.pub")
	for _, d := range []string{keySets, filepath.Dir(socket)} {
		must(t, os.MkdirAll(d, 0o700))
	}
	writePublicKey(t, public, c.key)
	command(t, nil, "", binary("keypost"), "issuer", "add", "prod-a", "--url", "https://oidc.example.com/prod-a", "--public-key-file", public,
		"--relying-party", "aws", "--token-lifetime", "24h", "--store", "file://"+keySets).ok(t)
	must(t, os.WriteFile(config, fmt.Appendf(nil, "dir: %s\nkeySet: prod-a\n%s\nsocket: {path: %s, uids: [%d]}\nadmin: {address: \"127.0.0.1:0\"}\n", keySets, held, socket, os.Getuid()), 0o600))
	p := start(t, "signer", program, "--config", config)
	p.await(t, "its socket", func(context.Context) error {
		_, err := os.Stat(socket)
		return err
	})
}

// reviews has the cluster review a token with an audience of clouds, as a server does that another one's token is shown to.
func (c *cluster) reviews(t *testing.T, token, what string) {
	t.Helper()
	review := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":%q,"audiences":[%q]}}`, token, audience)
	out := command(t, nil, review, kubeBinary("kubectl"), "--kubeconfig", c.kubeconfig, "create", "-f", "-", "-o", "jsonpath={.status}").ok(t)
	if !strings.Contains(out, `"authenticated":true`) {
		t.Errorf("%s: %s", what, out)
	}
}
