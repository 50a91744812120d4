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
	"slices"
	"strconv"
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

type options struct {
	rounds, changes int
	watched         int
	signer          bool
	issuers         []int
}

func parseFlags(args []string) (o options, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 25, "compare the servers in this `many` rounds")
	f.IntVar(&o.changes, "changes", 50, "make this `many` changes; 0 leaves that part out")
	f.IntVar(&o.watched, "watch", 1000, "watch this many issuers with keypost watch; 0 leaves that part out")
	f.BoolVar(&o.signer, "signer", false, "only measure keypost-signer")
	for _, p := range populations() {
		o.issuers = append(o.issuers, p.issuers)
	}
	f.Func("issuers", "measure these `numbers` of issuers (default 1,1000,10000,100000)", func(list string) error {
		o.issuers = nil
		for one := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(one)
			if err != nil || n < 1 || n > masses {
				return fmt.Errorf("%q is not a number from 1 to %d", one, masses)
			}
			o.issuers = append(o.issuers, n)
		}
		return nil
	})
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.rounds < 1 || o.changes < 0 || o.watched < 0 || f.NArg() > 0 {
		return o, errors.New("at least one round, no negative number of changes or issuers and no arguments")
	}
	return o, nil
}

func run(ctx context.Context) (missed int, err error) {
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
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
	err = b.all(ctx, r, o)
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

// all runs every part.
func (b *bench) all(ctx context.Context, r *report, o options) error {
	if o.signer {
		if err := errors.Join(b.programs(ctx), b.cores.pinLoad()); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		return b.signer(ctx, r)
	}
	if err := b.prepare(ctx, o); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if err := r.memory(ctx, b.keySets(many), many); err != nil {
		return err
	}
	if err := b.cores.pinLoad(); err != nil {
		return fmt.Errorf("move to one core: %w", err)
	}
	r.note("\n%d rounds, in which the servers answer short bursts of requests from %d connections in turns. The ratio is", o.rounds, connections)
	r.note("the median over the rounds, in each of which a server is compared with the two floors: net/http with the same")
	r.note("documents in a map, and nothing else.")
	for _, n := range o.issuers {
		p := ofSize(n)
		if err := b.population(ctx, r, p, o); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if err := b.change(ctx, r, o.changes); err != nil {
		return err
	}
	if err := b.watch(ctx, r, o.watched); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return b.signer(ctx, r)
}

// change measures changes in a keypostd that runs by itself.
func (b *bench) change(ctx context.Context, r *report, count int) error {
	if count == 0 {
		return nil
	}
	defer b.stopAll()
	s, err := b.startKeypostd(ctx, "changed", b.keypostd(), b.keySets(many))
	if err != nil {
		return err
	}
	changed, err := b.changes(ctx, side{server: s, issuers: many}, b.keySets(many), count)
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

func (b *bench) prepare(ctx context.Context, o options) error {
	if err := b.programs(ctx); err != nil {
		return err
	}
	all := max(many, slices.Max(o.issuers))
	if err := writeCorpus(ctx, b.keySets(all), all); err != nil {
		return err
	}
	numbers := append([]int{many}, o.issuers...)
	slices.Sort(numbers)
	for _, n := range slices.Compact(numbers) {
		if n == all {
			continue
		}
		if err := linkCorpus(b.keySets(all), b.keySets(n), n); err != nil {
			return err
		}
	}
	return nil
}
