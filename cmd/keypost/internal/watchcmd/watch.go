// Package watchcmd has the command keypost watch, which looks at every issuer of a store on a schedule, with metrics and
// health.
package watchcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/issuer/verify/watch"
	"github.com/keypost/keypost/keystore"
)

type options struct {
	*cli.Factory
	flags      observe.Flags
	every      time.Duration
	listen     string
	issuerURLs []string
}

// NewCmdWatch returns watch.
func NewCmdWatch(f *cli.Factory) *cobra.Command {
	o := &options{Factory: f}
	cmd := f.Command("watch --store URL", "Look at every issuer of a store on a schedule, and serve metrics of what is seen", cobra.ExactArgs(0), o.run)
	cli.WithoutResult(cmd)
	cmd.Long = "Look at the public URLs of every key set that is in use, as keypost issuer observe does, and hold what is published\n" +
		"against the store, as keypost verify does. The metric keypost_watch_rogue_key is 1 for an issuer under whose URL a key\n" +
		"is published that the store does not know: page somebody. A key that was removed or revoked and is still in a cache is\n" +
		"not one. The log has a line for each change, with the keys. With --observations each look is recorded as well, as\n" +
		"evidence for key promote. It never writes key sets: give it rights to read them and no more.\n\n" +
		"Of an upload that a relying party holds (issuer set --relying-party gcp-upload:PROVIDER) it knows what was read back\n" +
		"last, in --observations: keypost_watch_upload_failing is 1 for one that is not known to have the published keys, as it\n" +
		"is after each change of the keys until keypost sync-keys has run.\n\n" +
		"Run it outside the network of the servers, where the issuers' names lead to public addresses: a look at others is not\n" +
		"complete, unless the key set is private (--reach). --store has to be the store that is published, and not a copy that may be\n" +
		"older: a key that the copy does not have would be rogue. It dials whatever hosts a store's writers put into issuer URLs and origins:\n" +
		"bind the URLs by --issuer-url, and origins by a network policy. Runs in the foreground until SIGTERM."
	cmd.Example = "  keypost watch --store file:///srv/keysets --observations file:///srv/observations"
	fs := cmd.Flags()
	o.flags.Register(fs)
	o.flags.RegisterNetwork(fs)
	fs.DurationVar(&o.every, "every", defaultEvery, "look at each issuer once in this time")
	fs.StringVar(&o.listen, "listen", "127.0.0.1:9094", "serve /metrics, /livez and /readyz there")
	fs.StringArrayVar(&o.issuerURLs, "issuer-url", nil,
		"pattern as in keypostd's issuerURLs (repeatable): look at no key set with another issuer URL (default: at every one)")
	return cmd
}

const (
	// defaultEvery leaves several looks within the quarter of an hour that an observation stays good for.
	defaultEvery = 5 * time.Minute
	// leastEvery keeps a typing error from becoming a load test.
	leastEvery = 5 * time.Second
)

func (o *options) run(ctx context.Context, _ []string) error {
	w, err := o.watcher(ctx)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may end before this process does
	g, ctx := errgroup.WithContext(ctx)
	s, err := service.Admin{Address: o.listen, Metrics: collector{w, o.every}, Ready: w.Ready, Log: w.Log()}.Listen(ctx)
	if err != nil {
		return err
	}
	w.Log().Info("watching", zap.String("store", o.Store), zap.String("observations", o.Observations), zap.Duration("every", o.every), zap.String("version", cli.Version()))
	g.Go(func() error { return s.Serve(ctx) })
	g.Go(func() error { return service.Until(ctx, func() { w.Run(ctx) }) })
	if err := g.Wait(); err != nil {
		return err
	}
	w.Log().Info("stopped")
	return nil
}

// watcher finds everything that is wrong with the flags. It asks the store nothing: that may be away for a while.
func (o *options) watcher(ctx context.Context) (*watch.Watcher, error) {
	if o.every < leastEvery {
		return nil, cli.Usagef("--every %s: at least %v", o.every, leastEvery)
	}
	if o.listen == "" {
		return nil, cli.Usagef("--listen is empty: give HOST:PORT, such as 127.0.0.1:9094; a watch has to be asked")
	}
	if err := service.CheckListen("--listen", o.listen); err != nil {
		return nil, err
	}
	admission, err := service.Admission(o.issuerURLs, true) // a development key set is looked at as well
	if err != nil {
		return nil, err
	}
	network, err := o.flags.Network()
	if err != nil {
		return nil, err
	}
	store, err := cli.ParseStore(o.Store)
	if err != nil {
		return nil, err
	}
	from, err := store.Source(ctx)
	if err != nil {
		return nil, err
	}
	admits := func(s keystore.KeySet) bool { r := admission.Admit(s); return r == nil || r.Expected() }
	c := watch.Config{
		Store: keystore.NewStore(from), Admits: admits, Every: o.every, Network: network, Vantage: o.flags.Vantage, Log: service.NewLogger(o.Err),
	}
	if o.Observations != "" {
		records := o.CreateObservations
		if _, err := os.Stat(store.Dir); store.Dir != "" && errors.Is(err, fs.ErrNotExist) { // it may be mounted later, or mistyped
			records = o.OpenObservations
		}
		if c.Records, err = records(ctx); errors.Is(err, fs.ErrNotExist) {
			return nil, cli.WithHint(fmt.Errorf("neither the directory of --store, %s, nor that of --observations exists", store.Dir), "check --store, or make the directories")
		} else if err != nil {
			return nil, err
		}
	} else if c.Vantage != "" {
		return nil, cli.Usagef("--vantage names whose looks are recorded; say where with --observations")
	}
	return watch.New(c), nil
}
