// Package mirrorcmd has the command keypost mirror, which keeps a copy of a store in a directory, with metrics and health.
package mirrorcmd

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/open"
	"github.com/keypost/keypost/keystore/policy"
	"github.com/keypost/keypost/keystore/replicate"
)

// options are the flags and arguments of mirror.
type options struct {
	f            *cli.Factory
	dir          string
	poll         time.Duration
	adminAddress string
	issuerURLs   []string
	once         bool
	allowEmpty   bool
	dev          bool
}

// NewCmdMirror returns mirror.
func NewCmdMirror(f *cli.Factory) *cobra.Command {
	o := &options{f: f}
	cmd := f.Command("mirror --store URL DIR", "Keep a copy of a store in a directory, for keypostd beside it", cobra.ExactArgs(1), o.run)
	cli.WithoutResult(cmd)
	cmd.Long = "Copy every key set of a store into DIR, which must exist, and go on with whatever changes there. Nothing in DIR is\n" +
		"removed or replaced by an older version, and whatever happens to the store, the last good copy stays. A file\n" +
		replicate.HeartbeatFile + " records when the last complete listing was taken. Runs in the foreground until SIGTERM."
	fs := cmd.Flags()
	fs.DurationVar(&o.poll, "poll", policy.MaxPoll, "how often everything is listed, beside the watch that a directory and Kubernetes have: 1s to 15s, which the gates of keys count with")
	fs.StringVar(&o.adminAddress, "admin-address", "", "serve /metrics, /livez, /readyz and the copied documents there, such as 127.0.0.1:9091")
	fs.StringArrayVar(&o.issuerURLs, "issuer-url", nil,
		"pattern as in keypostd's issuerURLs (repeatable): refuse what keypostd would refuse (default: nothing)")
	fs.BoolVar(&o.once, "once", false, "end as soon as DIR has a complete copy, if the store cannot be read an earlier one; waits up to 5 minutes for what the store does not return")
	fs.BoolVar(&o.allowEmpty, "allow-empty", false, "take a store without key sets for a complete one: there is no issuer yet")
	fs.BoolVar(&o.dev, "dev", false, "copy development key sets too")
	return cmd
}

// mirroring is one run of keypost mirror.
type mirroring struct {
	*replicate.Mirror
	o     *options
	from  *keystore.Store
	copy  *keystore.Store
	dir   *os.Root
	log   *zap.Logger
	notes *replicate.Notes
}

func (o *options) run(ctx context.Context, args []string) error {
	o.dir = args[0]
	m, err := newMirroring(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = m.dir.Close() }()
	if err := m.ReadCopy(ctx); err != nil {
		return err
	}
	m.announce()
	if o.once {
		return m.once(ctx)
	}
	return m.serve(ctx)
}

// newMirroring finds everything that is wrong with the configuration. It asks the store nothing: that may be away
// for a while.
func newMirroring(ctx context.Context, o *options) (*mirroring, error) {
	f := o.f
	if o.poll < time.Second || o.poll > policy.MaxPoll {
		return nil, cli.Usagef("--poll %s: it must be from 1s to %s, which the gates of keys count with", o.poll, policy.MaxPoll)
	}
	if err := service.CheckListen("--admin-address", o.adminAddress); err != nil {
		return nil, err
	}
	// As that of the keypostd beside DIR: what it refuses must not take the place of the last good document, which keypostd
	// would then miss after its next start.
	admission, err := service.Admission(o.issuerURLs, o.dev)
	if err != nil {
		return nil, err
	}
	m := &mirroring{o: o, log: sampled(service.NewLogger(f.Err))}
	store, err := cli.ParseStore(f.Store)
	if err != nil {
		return nil, err
	}
	if m.from, err = cli.Opened(store.Source(ctx)); err != nil {
		return nil, err
	}
	to, err := filestore.Open(o.dir)
	if err != nil {
		return nil, err
	}
	if from, isDir := m.from.Backend().(*filestore.Backend); isDir && sameFile(from.Dir(), to.Dir()) {
		return nil, cli.Usagef("mirror: the store and DIR are the same directory")
	}
	m.copy = keystore.NewStore(to)
	if m.dir, err = os.OpenRoot(o.dir); err != nil {
		return nil, err
	}
	m.notes = replicate.NewNotes(m.dir, open.Place(m.from.Backend()))
	before, err := m.notes.Heartbeat()
	if err != nil {
		m.log.Warn("the heartbeat of an earlier run cannot be read, so that the copy counts as incomplete", zap.Error(err))
	}
	m.Mirror = replicate.NewMirror(replicate.MirrorConfig{
		From: m.from.Backend(), To: to, Admit: admission.Admit, Permitted: admission.Permitted(), OnPass: m.notes.Write,
		Earlier: before, AllowEmpty: o.allowEmpty, Poll: o.poll, Log: m.log,
	})
	return m, nil
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

func (m *mirroring) announce() {
	fields := []zap.Field{zap.String("store", m.o.f.Store), zap.Duration("poll", m.o.poll), zap.String("version", cli.Version())}
	if before := m.Status().Complete; !before.IsZero() {
		fields = append(fields, zap.Time("complete_before", before))
	}
	m.log.Info("mirroring", fields...)
}

// serve mirrors until ctx is done. Only an admin address that cannot be listened on ends it otherwise, at the start.
func (m *mirroring) serve(ctx context.Context) error {
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may end before this process does
	g, ctx := errgroup.WithContext(ctx)
	if m.o.adminAddress != "" {
		s, err := service.Admin{Address: m.o.adminAddress, Metrics: m, Ready: m.Ready, Log: m.log, Store: m.copy}.Listen(ctx)
		if err != nil {
			return err
		}
		g.Go(func() error { return s.Serve(ctx) })
	}
	g.Go(func() error { return service.Until(ctx, func() { m.Run(ctx) }) })
	err := g.Wait()
	if err == nil {
		m.log.Info("stopped")
	}
	return err
}

// Bounds of how long a pass that failed is waited after, with --once.
const (
	minOnce = time.Second
	maxOnce = 15 * time.Second
)

// once ends when a server may begin on DIR. A pass is made in any case, so that it begins on what is new.
func (m *mirroring) once(ctx context.Context) (err error) {
	stopped := service.Until(ctx, func() { err = m.passOnce(ctx) })
	if stopped != nil {
		return stopped
	}
	return err
}

func (m *mirroring) passOnce(ctx context.Context) error {
	for wait := minOnce; ; wait = min(2*wait, maxOnce) {
		pass := m.Pass(ctx)
		ready := m.Ready()
		switch nothing := m.nothingCopied(); {
		case ctx.Err() != nil:
			return ctx.Err()
		case pass == nil && nothing != nil:
			return nothing
		case ready == nil && pass != nil && m.Status().Complete.IsZero():
			m.log.Warn("done without the key sets that cannot be read", zap.Error(pass), zap.Int("key_sets", m.Status().Held))
			return nil
		case ready == nil && pass != nil:
			m.log.Warn("done with the complete copy of an earlier run", zap.Error(pass), zap.Time("complete", m.Status().Complete))
			return nil
		case ready == nil:
			m.log.Info("done", zap.Int("key_sets", m.Status().Held), zap.Int("refused", len(m.Status().Refused)))
			return nil
		}
		m.log.Info("not yet", zap.NamedError("why", ready))
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// nothingCopied returns an error if DIR holds no key set although all of the store's could be read: a server on DIR would
// serve nothing.
func (m *mirroring) nothingCopied() error {
	refusals := m.Status().Refused
	if len(refusals) == 0 || m.Status().Held > 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(refusals)))
	return fmt.Errorf("nothing was copied: each of %d key sets in the store is refused, %q because %s (%s)",
		len(refusals), first, refusals[first].Message, refusals[first].Reason)
}

// sampled lets through the first 50 of one message in a minute, then every 100th: a loop that puts an older document in
// every second must not fill a disk.
func sampled(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Minute, 50, 100)
	}))
}
