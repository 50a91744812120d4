package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/keystore"
)

type verifyFlags struct {
	tokenFile, caFile, connect string
	dev                        bool
}

func (a *app) verify() *cobra.Command {
	f := &verifyFlags{}
	cmd := &cobra.Command{
		Use:     "verify ISSUER…",
		Aliases: []string{"doctor"},
		Short:   "Look at an issuer's public URL as a relying party does",
		Long: "Fetch the documents of an issuer, by its URL or by its NAME in the store, and say what AWS STS and others would\n" +
			"make of them: URL, TLS, discovery document, both JWKS paths, keys, caching, speed; and of a token, with --token-file.",
		Example: "  kubectl create token default --audience sts.amazonaws.com | keypost verify https://oidc.example.com/prod-a --token-file -",
		Args:    atLeast(1),
		RunE:    a.do(func(ctx context.Context, args []string) error { return a.verifyAll(ctx, args, f) }),
	}
	fs := cmd.Flags()
	fs.StringVar(&f.tokenFile, "token-file", "", "file with a service account token to check, - for stdin")
	fs.StringVar(&f.caFile, "ca-file", "", "PEM file with the CA of the issuer, instead of the system's")
	fs.StringVar(&f.connect, "connect", "", "HOST:PORT to connect to instead of the URL's own: an origin behind a CDN, or before DNS points to it")
	fs.BoolVar(&f.dev, "dev", false, "a development issuer: its URL may have a port")
	return cmd
}

type verified struct {
	Issuer   string           `json:"issuer"`
	Findings []verify.Finding `json:"findings"`
}

func (a *app) verifyAll(ctx context.Context, issuers []string, f *verifyFlags) error {
	o, err := a.verifyOptions(f)
	if err != nil {
		return err
	}
	if o.Token != "" && len(issuers) > 1 {
		return usagef("a token belongs to one issuer; give one with --token-file")
	}
	var results []verified
	failed := 0
	for _, issuer := range issuers {
		target, err := a.target(ctx, issuer, o)
		if err != nil {
			return err
		}
		r := verified{Issuer: target.URL, Findings: verify.Issuer(ctx, target)}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if verify.Failed(r.Findings) {
			failed++
		}
		results = append(results, r)
	}
	if err := a.print(results, func(w *tabwriter.Writer) { findingsTable(w, results) }); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d issuers fail", failed, len(issuers))
	}
	return nil
}

func (a *app) verifyOptions(f *verifyFlags) (verify.Options, error) {
	o := verify.Options{Dev: f.dev}
	roots, err := readRoots(f.caFile)
	if err != nil {
		return o, err
	}
	o.RootCAs = roots
	if f.connect != "" {
		if _, _, err := net.SplitHostPort(f.connect); err != nil {
			return o, usagef("--connect %q is not HOST:PORT", f.connect)
		}
		o.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, f.connect)
		}
	}
	if f.tokenFile == "" {
		return o, nil
	}
	token, err := a.readFile(f.tokenFile, 1<<20)
	if err != nil {
		return o, err
	}
	if o.Token = strings.TrimSpace(string(token)); o.Token == "" {
		return o, fmt.Errorf("read %s: it holds no token", f.tokenFile)
	}
	return o, nil
}

// target resolves a NAME through the store, which then also says which keys must be published.
func (a *app) target(ctx context.Context, issuer string, o verify.Options) (verify.Options, error) {
	if strings.Contains(issuer, "://") {
		o.URL = issuer
		return o, nil
	}
	st, err := a.openStore(ctx)
	if err != nil {
		return o, err
	}
	s, err := load(ctx, st, keystore.Name(issuer))
	if err != nil {
		return o, err
	}
	if s.Withdrawn() {
		return o, errors.New("key set \"" + issuer + "\" was withdrawn at " + stamp(s.WithdrawnAt()))
	}
	o.URL, o.Dev = urls(s)[0], s.Dev()
	o.Expect = []keystore.KeyID{}
	for _, k := range s.Keys() {
		o.Expect = append(o.Expect, k.ID())
	}
	return o, nil
}

func findingsTable(w *tabwriter.Writer, results []verified) {
	for i, r := range results {
		if i > 0 {
			row(w)
		}
		row(w, r.Issuer)
		for _, f := range r.Findings {
			row(w, f.Severity, f.Check, f.Message)
			if f.Hint != "" {
				row(w, "", "", "hint: "+f.Hint)
			}
		}
	}
}
