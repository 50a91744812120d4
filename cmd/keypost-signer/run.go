package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/keypost/keypost/internal/build"
)

type options struct {
	config  string
	check   bool
	version bool
	keys    bool   // the command keys
	public  string // with keys: the key whose public half is printed
}

// run is the program. The code is for os.Exit: 0 after a clean stop, 1 for an error, 2 for wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o, err := parseFlags(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		printUsage(stdout)
		return 0, nil
	case err != nil:
		return 2, err
	case o.version:
		fmt.Fprintln(stdout, "keypost-signer", build.Version())
		return 0, nil
	}
	c, err := readConfig(o.config)
	if err != nil {
		return 1, err
	}
	switch {
	case o.keys:
		err = listKeys(ctx, c, o.public, stdout)
	case o.check:
		err = check(ctx, c, stdout)
	default:
		err = serve(ctx, c, stderr)
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

func parseFlags(args []string) (options, error) {
	var o options
	if len(args) > 0 && args[0] == "keys" {
		o.keys, args = true, args[1:]
	}
	f := o.flags()
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case o.version:
		return o, nil
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.config == "":
		return o, errors.New("give --config FILE")
	case o.public != "" && !o.keys:
		return o, errors.New("--public goes with the command keys")
	}
	return o, nil
}

func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("keypost-signer", flag.ContinueOnError)
	f.SetOutput(io.Discard) // main prints the error, once and without the list of flags
	f.StringVar(&o.config, "config", "", "read the configuration from `FILE`")
	f.BoolVar(&o.check, "check", false, "check the configuration, the key set and the private keys, print which key would sign, and exit")
	f.StringVar(&o.public, "public", "", "with keys: print the public half of the key `KID` in PEM, for keypost rotate start")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
	return f
}

func printUsage(w io.Writer) {
	fmt.Fprintln(w, "Usage: keypost-signer --config FILE [--check]\n       keypost-signer keys --config FILE [--public KID]")
	f := new(options).flags()
	f.SetOutput(w)
	f.PrintDefaults()
}
