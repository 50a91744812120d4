// Bench measures what keypostd costs, and fails when it costs more than it may: processor time per request against a
// bare net/http server, memory per issuer, allocations, and the time until a change is served.
//
// Whatever is compared is compared within one run, in turns, and the noise is printed beside it. It needs two cores
// and a machine with little else to do; nginx is compared when it is installed.
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
	"time"
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

// The numbers of issuers. The largest one has no bar.
const (
	few    = 1
	many   = 10000
	masses = 100000
)

type options struct {
	rounds, changes int
	masses          bool
}

func run(ctx context.Context) (missed int, err error) {
	var o options
	flag.IntVar(&o.rounds, "rounds", 25, "compare the servers in this many rounds")
	flag.IntVar(&o.changes, "changes", 50, "make this many changes")
	flag.BoolVar(&o.masses, "masses", true, fmt.Sprintf("measure %d issuers too", masses))
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
	if err := b.prepare(ctx, o); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if err := r.memory(ctx, b.keySets(many), many); err != nil {
		return err
	}
	sides, err := b.start(ctx, r, o)
	if err != nil {
		return err
	}
	if err := b.cores.pinLoad(); err != nil {
		return fmt.Errorf("move to one core: %w", err)
	}
	r.note("\n%d rounds, in which the servers answer short bursts of requests from %d connections in turns. The ratio is", o.rounds, connections)
	r.note("the median over the rounds, in each of which a server is compared with the two bare ones.")
	for _, m := range modes() {
		all, err := b.compare(ctx, m, sides, o.rounds)
		if err != nil {
			return err
		}
		r.comparison(m, sides, all)
	}
	if err := r.idle(sides, pollInterval); err != nil {
		return err
	}
	changed, err := b.changes(ctx, find(sides, many), b.keySets(many), o.changes)
	if err != nil {
		return err
	}
	r.changes(changed, many)
	return r.provisioning(ctx)
}

// pollInterval is keypostd's default.
const pollInterval = 10 * time.Second

func (b *bench) prepare(ctx context.Context, o options) (err error) {
	if err := b.build(ctx); err != nil {
		return err
	}
	if b.cert, err = newCertificate(b.dir); err != nil {
		return err
	}
	all := many
	if o.masses {
		all = masses
	}
	if err := writeCorpus(ctx, b.keySets(all), all); err != nil {
		return err
	}
	for _, n := range []int{few, many} {
		if n == all {
			continue
		}
		if err := linkCorpus(b.keySets(all), b.keySets(n), n); err != nil {
			return err
		}
	}
	return nil
}

func find(sides []side, issuers int) side {
	for _, s := range sides {
		if s.issuers == issuers && !s.baseline {
			return s
		}
	}
	return side{}
}

const ratioBar bar = 1.08

// start starts every server, and makes sure that all of them answer alike.
func (b *bench) start(ctx context.Context, r *report, o options) ([]side, error) {
	sides, err := b.startKeypostds(ctx, o)
	if err != nil {
		return nil, err
	}
	model, err := b.answerOf(ctx, sides[0])
	if err != nil {
		return nil, err
	}
	bares, err := b.startBares(ctx, model)
	if err != nil {
		return nil, err
	}
	sides = append(bares, sides...)
	for _, s := range sides {
		if err := b.check(ctx, s, model); err != nil {
			return nil, err
		}
	}
	return b.addNginx(ctx, r, sides, model)
}

func (b *bench) startKeypostds(ctx context.Context, o options) ([]side, error) {
	sides := []side{{issuers: few, most: ratioBar}, {issuers: many, most: ratioBar}}
	if o.masses {
		sides = append(sides, side{issuers: masses, most: noBar})
	}
	for i := range sides {
		s := &sides[i]
		s.label = fmt.Sprintf("keypostd, issuers: %d", s.issuers)
		var err error
		if s.server, err = b.startKeypostd(ctx, b.keySets(s.issuers)); err != nil {
			return nil, err
		}
	}
	return sides, nil
}

// startBares starts two, one of which tells how much two equal servers differ.
func (b *bench) startBares(ctx context.Context, model exchange) ([]side, error) {
	var sides []side
	for _, name := range []string{"bare net/http", "bare net/http again"} {
		s, err := b.startBare(ctx, strings.ReplaceAll(name, "/", "-"), model.raw)
		if err != nil {
			return nil, err
		}
		sides = append(sides, side{label: name, server: s, issuers: 1, most: noBar, baseline: true})
	}
	return sides, nil
}

func (b *bench) answerOf(ctx context.Context, s side) (exchange, error) {
	t := newTarget(s.server.address, s.issuers, b.cert.roots)
	e, err := t.ask(ctx, t.request(0, ""))
	if err != nil {
		err = fmt.Errorf("ask %s: %w", s.label, err)
	}
	return e, err
}

func (b *bench) check(ctx context.Context, s side, model exchange, except ...string) error {
	e, err := b.answerOf(ctx, s)
	if err != nil {
		return err
	}
	if err := sameAnswer(e, model, except...); err != nil {
		return fmt.Errorf("%s answers otherwise: %w", s.label, err)
	}
	return nil
}

func (b *bench) addNginx(ctx context.Context, r *report, sides []side, model exchange) ([]side, error) {
	s, err := b.startNginx(ctx, many, model.header, model.body)
	if errors.Is(err, errNoNginx) {
		r.note("not compared: %v", err)
		return sides, nil
	}
	if err != nil {
		return nil, err
	}
	for _, n := range []int{few, many} {
		nginx := side{label: fmt.Sprintf("nginx, issuers: %d", n), server: s, issuers: n, most: noBar}
		if err := b.check(ctx, nginx, model, "Server", "Accept-Ranges", "Connection"); err != nil {
			return nil, err
		}
		sides = append(sides, nginx)
	}
	return sides, nil
}
