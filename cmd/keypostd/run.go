package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/keypost/keypost/internal/build"
)

// options are the flags. Everything else is in the configuration file, which is read once.
type options struct {
	config  string
	check   bool
	dev     string
	address string
	admin   string
	version bool
}

// run is the program: flags, configuration, then serving until the context that signalled returns is done. It asks for
// that as late as it can: before, there is nothing to drain, and a signal ends a start that hangs. The code is for
// os.Exit: 0 after a clean stop, 1 for an error, 2 for wrong usage.
func run(signalled func() (context.Context, context.CancelFunc), args []string, stdout, stderr io.Writer) (int, error) {
	o, err := parseFlags(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		printUsage(stdout)
		return 0, nil
	case err != nil:
		return 2, err
	case o.version:
		fmt.Fprintln(stdout, "keypostd", build.Version())
		return 0, nil
	}
	c, err := o.load()
	if err != nil {
		return 1, err
	}
	memory, noLimit := limitMemory()
	c = c.fit(memory)
	d, err := newDaemon(c, o.dev, stderr)
	if err != nil {
		return 1, err
	}
	if o.check {
		err = d.check(context.Background(), stdout)
	} else {
		signal.Ignore(syscall.SIGPIPE) // the reader of the log may end before this process does
		d.logLimits(memory, noLimit)
		ctx, stop := signalled()
		defer stop()
		err = d.serve(ctx)
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

func parseFlags(args []string) (options, error) {
	var o options
	f := o.flags()
	if err := f.Parse(args); err != nil {
		return o, err
	}
	return o, o.checkUsage(f)
}

func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("keypostd", flag.ContinueOnError)
	f.SetOutput(io.Discard) // main prints the error, once and without the list of flags
	f.StringVar(&o.config, "config", "", "read the configuration from `FILE`")
	f.BoolVar(&o.check, "check", false, "check the configuration and the key sets in its directory, print what would be served, and exit")
	f.StringVar(&o.dev, "dev", "", "development: serve `DIR`/keysets on loopback with a certificate of its own")
	f.StringVar(&o.address, "address", "127.0.0.1:8443", "with --dev: listen on this loopback `ADDRESS`")
	f.StringVar(&o.admin, "admin-address", "127.0.0.1:9090", "with --dev: metrics and health on this loopback `ADDRESS`")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
	return f
}

func printUsage(w io.Writer) {
	fmt.Fprintln(w, "Usage: keypostd --config FILE [--check]\n       keypostd --dev DIR [--address ADDRESS] [--admin-address ADDRESS]")
	f := new(options).flags()
	f.SetOutput(w)
	f.PrintDefaults()
}

func (o options) checkUsage(f *flag.FlagSet) error {
	given := map[string]bool{}
	f.Visit(func(x *flag.Flag) { given[x.Name] = true })
	switch {
	case o.version:
		return nil
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case (o.config == "") == (o.dev == ""):
		return errors.New("give either --config FILE or --dev DIR")
	case o.dev == "" && (given["address"] || given["admin-address"]):
		return errors.New("--address and --admin-address go with --dev; otherwise set listen.address and admin.address in the configuration")
	}
	return nil
}

func (o options) load() (config, error) {
	if o.dev == "" {
		return readConfig(o.config)
	}
	return devConfig(o.dev, o.address, o.admin)
}
