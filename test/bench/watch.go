package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/keys"
)

const (
	passBar   bar = 60  // seconds, until every issuer was looked at once
	memoryBar bar = 256 // MiB
	watched       = 1000
)

// watch measures the first pass of keypost watch over issuers that one keypostd serves: all of them are new, so that
// their looks are closer together than ever after. keypostd has the core for servers, watch the other one.
func (b *bench) watch(ctx context.Context, r *report) error {
	defer b.stopAll()
	dir := filepath.Join(b.dir, "watched")
	if err := writeStrongCorpus(ctx, dir); err != nil {
		return err
	}
	served, err := b.startKeypostd(ctx, "watched-keypostd", dir)
	if err != nil {
		return err
	}
	admin, err := freeAddress()
	if err != nil {
		return err
	}
	// It is ready once every issuer was looked at.
	w, err := b.spawn(ctx, program{name: "watch", ready: answersOK("http://" + admin + "/readyz"), beside: true, argv: []string{filepath.Join(b.bin, "keypost"),
		"watch", "--store", "file://" + dir, "--ca-file", b.cert.certFile, "--connect", served.address, "--every", "5m", "--listen", admin}})
	if err != nil {
		return err
	}
	cpu, err := w.cpuTime()
	if err != nil {
		return err
	}
	memory, err := w.status("VmHWM")
	if err != nil {
		return err
	}
	r.table(fmt.Sprintf("keypost watch, the first pass over %d issuers on loopback (8 rounds of 3 documents in more than 10 s each)", watched), "", "", "")
	r.row("time", fmt.Sprintf("%.1f s", w.ready.Seconds()), r.verdict(w.ready.Seconds(), passBar, "%.0f s"))
	r.row("CPU time", fmt.Sprintf("%.1f s, %.1f ms per issuer", cpu.Seconds(), 1000*cpu.Seconds()/watched), "")
	r.row("memory, at most", fmt.Sprintf("%.1f MiB", mebibytes(memory)), r.verdict(mebibytes(memory), memoryBar, "%.0f MiB"))
	r.end()
	return nil
}

// writeStrongCorpus writes key sets with a P-256 key each: relying parties look at the strength of keys.
func writeStrongCorpus(ctx context.Context, dir string) error {
	for i := range watched {
		key, err := keystore.NewPublic(keys.NewEC().Public())
		if err != nil {
			return err
		}
		if err := publishKey(ctx, dir, issuerName(i), key); err != nil {
			return err
		}
	}
	return nil
}
