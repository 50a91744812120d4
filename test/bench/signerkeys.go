package main

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/keypost/keypost/test/fakeaws"
)

// holder is a place for private keys.
type holder struct {
	name, label string
	program     string
	// hold puts a key there, below dir. It returns the line of signer.yaml that says where it is, and what keypost-signer's environment needs.
	hold func(ctx context.Context, dir string, key crypto.Signer) (line string, env []string, err error)
}

// holders are the places that keypost-signer knows. KMS is played by this process, which the caller's CPU shows: nothing of its network, TLS,
// quotas and latency is there. SoftHSM2 signs within keypost-signer's own process: an HSM takes longer, and takes no CPU of it.
func (b *bench) holders() []holder {
	plain := filepath.Join(b.bin, "keypost-signer")
	return []holder{
		{"files", "keypost-signer, key in a file", plain, inFile},
		{"kms", "keypost-signer, played AWS KMS", plain, inKMS},
		{"pkcs11", "keypost-signer, SoftHSM2", filepath.Join(b.bin, "pkcs11", "keypost-signer"), inSoftHSM},
	}
}

// buildPKCS11 makes the program that can use a token.
func (b *bench) buildPKCS11(ctx context.Context) error {
	program := filepath.Join(b.bin, "pkcs11", "keypost-signer")
	const source = "github.com/keypost/keypost/cmd/keypost-signer"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "grpcnotrace,pkcs11", "-o", program, source) //nolint:gosec // our own
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build with PKCS#11: %w\n%s", err, out)
	}
	return nil
}

// writeKey writes a private key in PEM.
func writeKey(file string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

func inFile(_ context.Context, dir string, key crypto.Signer) (string, []string, error) {
	keys := filepath.Join(dir, "keys")
	return "keys: " + keys, nil, writeKey(filepath.Join(keys, "sa.key"), key)
}

func inKMS(ctx context.Context, _ string, key crypto.Signer) (string, []string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	const arn = "arn:aws:kms:eu-west-1:123456789012:key/bench"
	server := &http.Server{Handler: &fakeaws.KMS{Private: map[string]crypto.Signer{arn: key}}, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(l) }() // if it ends, no token is signed
	return fmt.Sprintf("kms: [%q]", arn), []string{"AWS_ENDPOINT_URL_KMS=http://" + l.Addr().String(),
		"AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=secret"}, nil
}

func inSoftHSM(ctx context.Context, dir string, key crypto.Signer) (string, []string, error) {
	config, pin, private := filepath.Join(dir, "softhsm2.conf"), filepath.Join(dir, "pin"), filepath.Join(dir, "import.pem")
	tokens := filepath.Join(dir, "tokens")
	if err := writeKey(private, key); err != nil {
		return "", nil, err
	}
	for file, text := range map[string]string{config: "directories.tokendir = " + tokens + "\nobjectstore.backend = file\n", pin: "1234\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", nil, err
		}
	}
	if err := os.Mkdir(tokens, 0o700); err != nil {
		return "", nil, err
	}
	env := []string{"SOFTHSM2_CONF=" + config}
	for _, args := range [][]string{
		{"--init-token", "--free", "--label", "bench", "--so-pin", "0000", "--pin", "1234"},
		{"--import", private, "--token", "bench", "--label", "sa", "--id", "01", "--pin", "1234"},
	} {
		cmd := exec.CommandContext(ctx, "softhsm2-util", args...) //nolint:gosec // our own arguments
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", nil, fmt.Errorf("softhsm2-util: %w\n%s", err, out)
		}
	}
	return fmt.Sprintf("pkcs11: {module: /usr/lib/softhsm/libsofthsm2.so, token: bench, pinFile: %s}", pin), env, nil
}
