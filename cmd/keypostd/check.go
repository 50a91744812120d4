package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

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
	var errs []error
	warnings, shut := d.warnings(time.Now())
	if shut != nil {
		errs = append(errs, shut)
	}
	for _, w := range warnings {
		if _, err := fmt.Fprintf(stdout, "# warning: %s\n", w); err != nil {
			return err
		}
	}
	c := d.publishing
	c.Log = zap.NewNop() // its warnings are returned as errors
	publisher := issuer.NewPublisher(c)
	if err := publisher.Refresh(ctx); err != nil {
		return err
	}
	all := publisher.Report().Issuers
	issuers, served, apart := 0, 0, 0
	for _, s := range all {
		if s.Rejected == "" && s.Message != "" {
			apart++
		}
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
	if apart > 0 {
		if _, err := fmt.Fprintf(stdout, "# %s would not be, as nobody is to read the documents (reach copies), and no pattern has the issuer URLs\n", text.Count(apart, "key set", "key sets")); err != nil {
			return err
		}
	}
	switch {
	case d.c.AllowEmpty || len(all) > apart:
	case apart > 0:
		errs = append(errs, fmt.Errorf("%s holds no key set that is to be served, so that keypostd would not be ready; add one, or set allowEmpty: true if there is none yet", d.c.Dir))
	default:
		errs = append(errs, fmt.Errorf("%s holds no key set, so that keypostd would not be ready; add one, or set allowEmpty: true if there is none yet", d.c.Dir))
	}
	return errors.Join(errs...)
}

// warnings returns what is wrong with files and lets keypostd start all the same: a clock may be wrong, and become right. The error is
// that nobody would get in.
func (d *daemon) warnings(now time.Time) (all []string, shut error) {
	warn := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if d.c.Listen.HTTP2 != nil {
		warn("listen.http2 has no effect: keypostd serves HTTP/1.1 only; remove it, because the next version refuses it")
	}
	switch c := d.certificates.(type) {
	case *listen.Files:
		for _, cert := range c.Alone() {
			warn("%q holds only the server's certificate: unless a root signed it itself, add its intermediates, or relying parties refuse it", cert)
		}
	case *listen.ACME:
		for _, one := range c.InUse() {
			if !one.Until.IsZero() && now.After(one.Until) {
				warn("the certificate in %s has expired (at %s); it is served until the CA has given a new one, and the log says why if it does not",
					one.From, one.Until.UTC().Format(time.RFC3339))
			}
		}
	}
	if d.shield == nil {
		return all, nil
	}
	for _, file := range d.shield.Exposed() {
		warn("%q holds a secret of listen.shield, and every user of this machine may read it: run chmod o-r on it", file)
	}
	expired, nobody := d.shield.ExpiredCAs(now)
	file, which := d.c.Listen.Shield.ClientCAFile, text.OneLine(strings.Join(expired, ", "), maxReason)
	switch {
	case nobody:
		shut = fmt.Errorf("every CA in %s (listen.shield.clientCAFile) has expired, so that nobody gets in: %s; put the CA there that signs the CDN's certificate now, and restart", file, which)
	case len(expired) > 0:
		warn("a CA in %s (listen.shield.clientCAFile) has expired: %s; take it out once the CDN shows a certificate of another", file, which)
	}
	return all, shut
}

func printConfig(w io.Writer, c config) error {
	settings, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	_, err = w.Write(settings)
	return err
}
