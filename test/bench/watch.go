package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/keypost/keypost/keystore"
)

const (
	passBar   bar = 60  // seconds, until every issuer was looked at once
	memoryBar bar = 256 // MiB
)

// watch measures the first pass of keypost watch over n issuers that one keypostd serves: all of them are new, so that
// their looks are closer together than ever after. keypostd has the core for servers, watch the other one.
func (b *bench) watch(ctx context.Context, r *report, n int) error {
	if n == 0 {
		return nil
	}
	defer b.stopAll()
	dir := filepath.Join(b.dir, "watched")
	if err := writeStrongCorpus(dir, n); err != nil {
		return err
	}
	served, err := b.startKeypostd(ctx, "watched-keypostd", b.keypostd(), dir)
	if err != nil {
		return err
	}
	began := time.Now()
	w, err := b.startWatch(ctx, dir, served.address)
	if err != nil {
		return err
	}
	ready := answersOK("http://" + w.admin + "/readyz")
	if err := w.await(ctx, ready); err != nil {
		return fmt.Errorf("the first pass: %w", err)
	}
	pass := time.Since(began)
	cpu, err := w.cpuTime()
	if err != nil {
		return err
	}
	memory, err := w.status("VmHWM")
	if err != nil {
		return err
	}
	r.table(fmt.Sprintf("keypost watch, the first pass over %d issuers on loopback (8 rounds of 3 documents in more than 10 s each)", n), "", "", "")
	r.row("time", fmt.Sprintf("%.1f s", pass.Seconds()), r.verdict(pass.Seconds(), passBar, "%.0f s"))
	r.row("CPU time", fmt.Sprintf("%.1f s, %.1f ms per issuer", cpu.Seconds(), 1000*cpu.Seconds()/float64(n)), "")
	r.row("memory, at most", fmt.Sprintf("%.1f MiB", mebibytes(memory)), r.verdict(mebibytes(memory), memoryBar, "%.0f MiB"))
	r.end()
	return nil
}

// startWatch starts keypost watch on this process's core.
func (b *bench) startWatch(ctx context.Context, store, address string) (*server, error) {
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s := &server{log: filepath.Join(b.dir, "watch.log"), gone: make(chan struct{}), admin: admin}
	out, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()                                                                                                                    //nolint:errcheck // the child has its own
	s.cmd = exec.CommandContext(ctx, filepath.Join(b.bin, "keypost"), "watch", "--store", "file://"+store, "--ca-file", b.cert.certFile, //nolint:gosec // our own program
		"--connect", address, "--every", "5m", "--listen", admin)
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.Env = out, out, withoutRuntime(os.Environ())
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	b.servers = append(b.servers, s)
	go func() { _ = s.cmd.Wait(); close(s.gone) }() // how it ends does not matter, it is killed
	return s, nil
}

// writeStrongCorpus writes n key sets with a P-256 key each: relying parties look at the strength of keys.
func writeStrongCorpus(dir string, n int) error {
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // public data
		return err
	}
	for i := range n {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		key, err := keystore.NewPublic(private.Public())
		if err != nil {
			return err
		}
		url, err := keystore.ParseIssuerURL(issuerURL(i), false)
		if err != nil {
			return err
		}
		s, err := keystore.New(keystore.Change{At: time.Now().Add(-30 * 24 * time.Hour)}, keystore.Spec{
			Name: issuerName(i), Issuers: []keystore.IssuerURL{url}, Keys: []keystore.VerificationKey{key}, Policy: keystore.Policy{RelyingParties: []string{"aws"}},
		})
		if err != nil {
			return err
		}
		text, err := keystore.Encode(s)
		if err != nil {
			return err
		}
		if err := os.WriteFile(documentPath(dir, i), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
