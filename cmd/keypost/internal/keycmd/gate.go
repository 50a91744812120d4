package keycmd

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
)

// gateFlags pass a closed gate.
type gateFlags struct {
	force  bool
	why    string
	danger string                // what may break
	closed *keystore.NotYetError // the gate that --force passed; nil if none was closed
}

func (g *gateFlags) register(fs *pflag.FlagSet, danger string) {
	g.danger = danger
	fs.BoolVar(&g.force, "force", false, "do it although the gate is closed (needs --why): "+danger)
	fs.StringVar(&g.why, "why", "", "the reason; it is recorded")
}

// take takes a step. With --force it first tries without, and keeps the gate that would have refused.
func (g *gateFlags) take(c keystore.Change, step func(keystore.Change) (keystore.KeySet, error)) (keystore.KeySet, error) {
	g.closed = nil
	if g.force {
		asked := c
		asked.Force = false
		_, err := step(asked)
		g.closed, _ = errors.AsType[*keystore.NotYetError](err)
	}
	return step(c)
}

// warn prints the gate that --force passed, how long that would have stayed closed, and what may break.
func (g *gateFlags) warn(f *cli.Factory, now time.Time) {
	e := g.closed
	if e == nil {
		return
	}
	until, least := e.Opens, ""
	if until.IsZero() {
		until, least = e.Earliest, " at least"
	}
	wait := ""
	if !until.IsZero() {
		left := keystore.Duration(until.Sub(now).Round(time.Minute))
		wait = fmt.Sprintf("; the gate would still have been closed until %s (%v)%s", cli.Stamp(until), left, least)
	}
	f.Warn("forced: %s%s; what may break: %s", e.Need, wait, g.danger)
}
