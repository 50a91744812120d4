package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"go.uber.org/zap"

	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/listen"
)

// maxReason bounds what is printed of a reason, in characters. It may quote the name of a file that somebody else chose.
const maxReason = 1000

// check prints the configuration with its defaults and how much would be served, and returns an error for each key set
// in the directory that would not be. It reads the directory as a fresh process would and asks nobody else.
func (d *daemon) check(ctx context.Context, stdout io.Writer) error {
	if err := printConfig(stdout, d.c); err != nil {
		return err
	}
	if files, is := d.certificates.(*listen.Files); is {
		for _, cert := range files.Alone() {
			if _, err := fmt.Fprintf(stdout, "# warning: %q holds the server's certificate alone: unless a root signed it itself, add its intermediates, or relying parties refuse it\n", cert); err != nil {
				return err
			}
		}
	}
	c := d.publishing
	c.Log = zap.NewNop() // its warnings are returned as errors
	publisher := issuer.NewPublisher(c)
	if err := publisher.Refresh(ctx); err != nil {
		return err
	}
	all := publisher.Report().Issuers
	var errs []error
	issuers, served := 0, 0
	for _, s := range all {
		if s.Served {
			issuers, served = issuers+len(s.Issuers), served+1
		}
		if s.Rejected != "" {
			errs = append(errs, fmt.Errorf("key set %q would not be served (%s): %s", s.Name, s.Rejected, text.OneLine(s.Message, maxReason)))
		}
	}
	if _, err := fmt.Fprintf(stdout, "# %s would be served, of %d of %s in %s\n",
		text.Count(issuers, "issuer URL", "issuer URLs"), served, text.Count(len(all), "key set", "key sets"), d.c.Dir); err != nil {
		return err
	}
	if len(all) == 0 && !d.c.AllowEmpty {
		errs = append(errs, fmt.Errorf("%s holds no key set, so that keypostd would not be ready; add one, or set allowEmpty: true if there is none yet", d.c.Dir))
	}
	return errors.Join(errs...)
}

func printConfig(w io.Writer, c config) error {
	settings, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	_, err = w.Write(settings)
	return err
}
