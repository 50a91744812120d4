package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// build makes the programs that are measured, as make build does.
func (b *bench) build(ctx context.Context) error {
	b.bin = filepath.Join(b.dir, "bin")
	if err := os.Mkdir(b.bin, 0o700); err != nil {
		return err
	}
	const module = "github.com/keypost/keypost/"
	args := []string{"build", "-trimpath", "-tags", "grpcnotrace", "-o", b.bin}
	cmd := exec.CommandContext(ctx, "go", append(args, module+"cmd/keypostd", module+"cmd/keypost", module+"cmd/keypost-signer", module+"test/bench/bare")...) //nolint:gosec // our own programs
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

const keypostdConfig = `dir: %s
issuerURLs: ["https://%s/{name}"]
listen:
  address: %s
  tls: {files: [{cert: %s, key: %s}]}
admin: {address: %s}
`

// startKeypostd starts a keypostd on a directory of key sets.
func (b *bench) startKeypostd(ctx context.Context, name, keySets string) (*server, error) {
	public, err := freeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(b.dir, name+".config.yaml")
	text := fmt.Sprintf(keypostdConfig, keySets, host, public, b.cert.certFile, b.cert.keyFile, admin)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s, err := b.spawn(ctx, program{name: name, argv: []string{filepath.Join(b.bin, "keypostd"), "--config", file}, ready: answersOK("http://" + admin + "/readyz")})
	if err != nil {
		return nil, err
	}
	s.address = public
	return s, nil
}

// startFloor serves what keypostd answers for a directory of key sets.
func (b *bench) startFloor(ctx context.Context, name, keySets string) (*server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s, err := b.spawn(ctx, program{
		name: name, argv: []string{filepath.Join(b.bin, "bare"), address, b.cert.certFile, b.cert.keyFile, keySets},
		ready: connects(address),
	})
	if err != nil {
		return nil, err
	}
	s.address = address
	return s, nil
}
