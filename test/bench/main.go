// Bench measures what keypostd costs, and fails when it costs more than it may: processor time per request against a
// bare net/http server with the same documents, memory, the time to start, allocations, and the time until a change is
// served. It also measures a pass of keypost watch. Bars fail the run when they are missed; targets are only reported, with the cause.
//
// Whatever is compared is compared within one run, in turns, and the noise is printed beside it. It needs two cores
// and a machine with little else to do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	missed, err := run(ctx)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	case missed > 0:
		fmt.Fprintln(os.Stderr, "bench: bars missed:", missed)
		os.Exit(1)
	}
}

// rounds is in how many the servers are compared.
const rounds = 25

func run(ctx context.Context) (missed int, err error) {
	signer := flag.Bool("signer", false, "only measure keypost-signer")
	flag.Parse()
	b := &bench{}
	if b.cores, err = pickCores(); err != nil {
		return 0, err
	}
	if b.dir, err = os.MkdirTemp("", "keypost-bench-"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	defer b.stopAll()
	r := newReport(os.Stdout)
	r.note("keypost bench: %s, %d cores (servers on %d, load on %d), %s", processor(), runtime.NumCPU(), b.cores.serverN, b.cores.loadN, runtime.Version())
	if b.cores.serverN == b.cores.loadN {
		r.note("only one core may be used: servers and load share it, expect more noise")
	}
	err = b.all(ctx, r, *signer)
	return r.missed, err
}

func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	_, model, _ := strings.Cut(string(info), "model name")
	line, _, _ := strings.Cut(strings.TrimLeft(model, "\t :"), "\n")
	return line
}

func (b *bench) keySets(n int) string { return filepath.Join(b.dir, fmt.Sprintf("keysets-%d", n)) }

// all runs every part, or only that of keypost-signer.
func (b *bench) all(ctx context.Context, r *report, signer bool) error {
	if signer {
		if err := errors.Join(b.programs(ctx), b.cores.pinLoad()); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		return b.signer(ctx, r)
	}
	if err := b.prepare(ctx); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if err := r.memory(ctx, b.keySets(many), many); err != nil {
		return err
	}
	if err := b.cores.pinLoad(); err != nil {
		return fmt.Errorf("move to one core: %w", err)
	}
	r.note("\n%d rounds, in which the servers answer short bursts of requests from %d connections in turns. The ratio is", rounds, connections)
	r.note("the median over the rounds, in each of which a server is compared with the two floors: net/http with the same")
	r.note("documents in a map, and nothing else.")
	for _, p := range populations() {
		if err := b.population(ctx, r, p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if err := b.change(ctx, r); err != nil {
		return err
	}
	if err := b.watch(ctx, r); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return b.signer(ctx, r)
}

// change measures changes in a keypostd that runs by itself.
func (b *bench) change(ctx context.Context, r *report) error {
	defer b.stopAll()
	s, err := b.startKeypostd(ctx, "changed", b.keySets(many))
	if err != nil {
		return err
	}
	changed, err := b.changes(ctx, side{server: s, issuers: many}, b.keySets(many))
	if err != nil {
		return err
	}
	r.changes(changed, many)
	return nil
}

// programs builds what is measured, and makes its certificate.
func (b *bench) programs(ctx context.Context) (err error) {
	if err := b.build(ctx); err != nil {
		return err
	}
	b.cert, err = newCertificate(b.dir)
	return err
}

func (b *bench) prepare(ctx context.Context) error {
	if err := b.programs(ctx); err != nil {
		return err
	}
	if err := writeCorpus(ctx, b.keySets(masses), masses); err != nil {
		return err
	}
	for _, n := range []int{few, some, many} {
		if err := linkCorpus(b.keySets(masses), b.keySets(n), n); err != nil {
			return err
		}
	}
	return nil
}
