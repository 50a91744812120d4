//go:build e2e

package e2e

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/keys"
)

// TestSignerPKCS11: keypost-signer built with the tag pkcs11 signs a real kube-apiserver's tokens with keys in SoftHSM2. SoftHSM2 shows nothing
// of an HSM's latency, limits and failures.
func TestSignerPKCS11(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	program := os.Getenv("KEYPOST_E2E_PKCS11")
	startEtcd(t)
	for port, key := range map[int]crypto.Signer{6443: newRSAKey(t, 2048), 6444: keys.NewEC()} {
		c := &cluster{name: fmt.Sprintf("pkcs11-%d", port), issuer: "https://oidc.example.com/prod-a", key: key}
		c.signer = filepath.Join(dir, c.name, "run", "signer.sock")
		token := newSoftToken(t, filepath.Join(dir, c.name), key)
		t.Setenv("SOFTHSM2_CONF", token.config)
		startSignerWith(t, c, program, filepath.Dir(filepath.Dir(c.signer)), c.signer,
			fmt.Sprintf("pkcs11: {module: %s, token: keypost, pinFile: %s}", softHSM, token.pin))
		c.awaitReady(t, startCluster(t, ca, c, port))
		c.createAccount(t)
		c.reviews(t, c.token(t), "a token signed in SoftHSM2")
		refuseTokenOf(t, program, token)
	}
}

// refuseTokenOf: without the right PIN, and with one that every user can read, the program says what is wrong and never what the PIN is.
func refuseTokenOf(t *testing.T, program string, token softToken) {
	t.Helper()
	config := filepath.Join(filepath.Dir(token.pin), "refused.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "dir: %s\nkeySet: prod-a\npkcs11: {module: %s, token: keypost, pinFile: %s}\n", filepath.Dir(token.pin), softHSM, token.pin), 0o600))
	for _, c := range []struct {
		pin  string
		mode os.FileMode
		want string
	}{{"9876", 0o600, "CKR_PIN_INCORRECT"}, {"1234", 0o644, "run chmod 600 on it"}} {
		must(t, os.WriteFile(token.pin, []byte(c.pin+"\n"), 0o600))
		must(t, os.Chmod(token.pin, c.mode))
		r := command(t, nil, "", program, "keys", "--config", config)
		if r.code != 1 || !strings.Contains(r.stderr, c.want) || strings.Contains(r.stderr+r.stdout, c.pin) {
			t.Errorf("PIN %s, mode %v: exit %d: %s", c.pin, c.mode, r.code, r.stderr)
		}
	}
}

const softHSM = "/usr/lib/softhsm/libsofthsm2.so"

// softToken is a token of SoftHSM2.
type softToken struct{ config, pin string }

// newSoftToken makes a token with the label keypost that holds one key pair.
func newSoftToken(t *testing.T, dir string, key crypto.Signer) softToken {
	t.Helper()
	s := softToken{filepath.Join(dir, "softhsm2.conf"), filepath.Join(dir, "pin")}
	must(t, os.MkdirAll(filepath.Join(dir, "tokens"), 0o700))
	must(t, os.WriteFile(s.config, fmt.Appendf(nil, "directories.tokendir = %s\nobjectstore.backend = file\n", filepath.Join(dir, "tokens")), 0o600))
	must(t, os.WriteFile(s.pin, []byte("1234\n"), 0o600))
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	private := filepath.Join(dir, "import.pem")
	must(t, os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	env := []string{"SOFTHSM2_CONF=" + s.config}
	command(t, env, "", "softhsm2-util", "--init-token", "--free", "--label", "keypost", "--so-pin", "0000", "--pin", "1234").ok(t)
	command(t, env, "", "softhsm2-util", "--import", private, "--token", "keypost", "--label", "sa", "--id", "01", "--pin", "1234").ok(t)
	must(t, os.Remove(private))
	return s
}
