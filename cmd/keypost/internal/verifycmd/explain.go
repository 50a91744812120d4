package verifycmd

import (
	"slices"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/issuer/verify/finding"
)

// explainCause prints a row of the table of causes.
func (opts *verifyOptions) explainCause() error {
	known := slices.IndexFunc(finding.Causes(), func(c finding.Cause) bool { return c.Code == opts.explain })
	if known < 0 {
		return cli.Usagef("keypost knows no cause %q; give a name that keypost verify printed", opts.explain)
	}
	c := finding.Causes()[known]
	return opts.f.Print(c, func(w *terminal.Table) {
		w.Row(c.Code, c.Title)
		for _, a := range c.Answers {
			w.Row("", a.Party+" answers: "+a.Text)
		}
		if c.Effect != "" {
			w.Row("", "effect: "+c.Effect)
		}
		w.Row("", "repair: "+c.Repair)
		w.Row("", "source: "+c.Source)
	})
}
