package main

import (
	"context"
	"crypto/x509"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/open"
)

// app is a Factory for commands that are methods. It goes when the last of them has its package.
type app struct{ *cli.Factory }

type (
	command     = cli.Command
	keyFlags    = keysource.Flags
	material    = keysource.Material
	policyFlags = view.PolicyFlags
)

func (a *app) openStore(ctx context.Context) (*keystore.Store, error)   { return a.OpenStore(ctx) }
func (a *app) openToWrite(ctx context.Context) (*keystore.Store, error) { return a.OpenToWrite(ctx) }
func (a *app) createStore(ctx context.Context) (*keystore.Store, error) { return a.CreateStore(ctx) }
func (a *app) notice(format string, args ...any)                        { a.Notice(format, args...) }
func (a *app) warn(format string, args ...any)                          { a.Warn(format, args...) }
func (a *app) change(why string, force bool) keystore.Change            { return a.Change(why, force) }
func (a *app) print(v any, table func(w *tabwriter.Writer)) error       { return a.Print(v, table) }
func (a *app) readFile(file string, limit int64) ([]byte, error)        { return a.ReadFile(file, limit) }
func (a *app) warnPolicy(p keystore.Policy)                             { view.Warn(a.Factory, p) }

func (a *app) do(work func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return a.Do(work)
}

func (a *app) readKeys(ctx context.Context, f keyFlags) (material, error) {
	return f.Read(ctx, a.Factory)
}

func (a *app) readKeyFile(file string) ([]keystore.VerificationKey, error) {
	return keysource.ReadFile(a.Factory, file)
}

func withHint(err error, format string, args ...any) error { return cli.WithHint(err, format, args...) }
func usagef(format string, args ...any) error              { return cli.Usagef(format, args...) }
func quoted(words ...string) string                        { return cli.Quoted(words...) }
func oneLine(s string) string                              { return cli.OneLine(s) }
func stamp(t time.Time) string                             { return cli.Stamp(t) }
func row(w *tabwriter.Writer, cells ...any)                { cli.Row(w, cells...) }
func exactly(n int) cobra.PositionalArgs                   { return cli.Exactly(n) }
func atLeast(n int) cobra.PositionalArgs                   { return cli.AtLeast(n) }
func reason(err error) error                               { return cli.Reason(err) }
func readRoots(file string) (*x509.CertPool, error)        { return cli.ReadRoots(file) }
func checkConnect(connect string) error                    { return cli.CheckConnect(connect) }
func version() string                                      { return cli.Version() }
func parsePlace(raw string) (open.URL, error)              { return cli.ParseStore(raw) }
func urls(s keystore.KeySet) []string                      { return view.URLs(s) }
func newPolicy() keystore.Policy                           { return view.NewPolicy() }

func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	return cli.Group(use, short, commands...)
}
