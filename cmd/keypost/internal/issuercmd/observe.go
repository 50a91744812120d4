package issuercmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/party"
)

type observeOptions struct {
	*cli.Factory
	flags   observe.Flags
	all     bool
	fetched []string
}

func newObserve(f *cli.Factory) *cobra.Command {
	o := &observeOptions{Factory: f}
	cmd := f.Command("observe ISSUER…|--all", "Look at an issuer's public URLs and record which keys are seen there", cobra.ArbitraryArgs, o.run)
	cmd.Long = fmt.Sprintf("Fetch both JWKS of every issuer URL of a key set for at least ten seconds, over new connections to each public address\n"+
		"and to each origin of the policy, and record which keys every answer had. key promote needs that: a key seen without\n"+
		"a gap for longer than any cache could hide it, and a complete look of the last %.0f minutes. A look is complete if every\n"+
		"address answered and is public; development and private issuers (issuer set --reach private) may be elsewhere.", gate.ObservationFresh.Minutes())
	cmd.Example = "  keypost issuer observe prod-a --store file://./keysets --observations file://./observations"
	fs := cmd.Flags()
	o.flags.Register(fs)
	fs.BoolVar(&o.all, "all", false, "every key set of the store that is in use")
	fs.StringArrayVar(&o.fetched, "fetched", nil, "`PARTY=TIME`: the relying party shows that it last fetched the keys then; a key that the fetch may not have had is not promoted "+
		"until a later time is given (repeatable)")
	return cmd
}

// looked is a look at one issuer URL, as scripts read it.
type looked struct {
	KeySet                keystore.Name `json:"keySet"`
	Issuer                string        `json:"issuer"`
	Vantage               string        `json:"vantage,omitempty"`
	Complete              bool          `json:"complete"`
	Missing               []string      `json:"missing,omitempty"` // why it is not complete
	Addresses             []string      `json:"addresses"`
	Keys                  []seenKey     `json:"keys"` // of the key set
	observation.Lifetimes               // of each the longest that an answer allowed caches
	SharedCache           string        `json:"sharedCache,omitempty"`
}

type seenKey struct {
	Kid   keystore.KeyID `json:"kid"`
	State keystore.State `json:"state"`
	Since time.Time      `json:"seenSince,omitzero"` // zero = not every answer had it
}

func (o *observeOptions) run(ctx context.Context, args []string) error {
	st, err := o.OpenStore(ctx)
	if err != nil {
		return err
	}
	sets, unread, err := o.InUse(ctx, st, args, o.all)
	if err != nil {
		return err
	}
	for _, s := range sets {
		if s.Policy().Reach == keystore.ReachCopies {
			o.Notice("nobody reads the documents of %q (reach copies), so there is nothing to look at; what was uploaded is read back with: %s", s.Name(), cli.SyncCommand(s.Name()))
		}
	}
	fetched, err := o.fetches(sets)
	if err != nil {
		return err
	}
	observer, err := o.flags.Open(ctx, o.Factory) // which makes a directory: not for an issuer that was mistyped
	if err != nil {
		return err
	}
	for name, f := range fetched {
		if err := observer.Records.AddFetched(ctx, sets[0].Name(), name, f); err != nil {
			return err
		}
		o.Notice("recorded: %s last fetched the keys at %s; a key that this fetch may not have had is not promoted", name, cli.Stamp(f.At))
	}
	observer.Progress = o.Live().Progress("looking", "issuers")
	results := observer.All(ctx, sets...)
	observer.Progress.End()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rows, incomplete := []looked{}, 0
	for _, r := range results {
		if len(r.Missing()) > 0 {
			incomplete++
		}
		rows = append(rows, rowOf(r))
	}
	if err := o.Print(map[string]any{"looks": rows}, func(w *terminal.Table) { lookTable(w, rows) }); err != nil {
		return err
	}
	if incomplete > 0 {
		err = fmt.Errorf("%d of %s not complete", incomplete, text.Count(len(results), "look is", "looks are"))
		if slices.ContainsFunc(results, func(r observe.Result) bool { return r.UnknownCA }) {
			err = cli.WithHint(err, observe.OwnCA)
		}
	}
	return errors.Join(err, cli.Unread(unread))
}

// fetches reads --fetched: what relying parties that a policy declares show of their last fetches.
func (o *observeOptions) fetches(sets []keystore.KeySet) (map[string]observation.Fetched, error) {
	if len(o.fetched) > 0 && (o.all || len(sets) != 1) {
		return nil, cli.Usagef("--fetched is about one key set: name it")
	}
	all, c := map[string]observation.Fetched{}, o.Change("", false)
	for _, flag := range o.fetched {
		name, when, _ := strings.Cut(flag, "=")
		at, err := time.Parse(time.RFC3339, when)
		switch shown := cli.OneLine(flag); {
		case err != nil:
			return nil, cli.Usagef("--fetched %q: give a name and a time, such as anthropic=2026-03-01T12:00:00Z", shown)
		case at.After(c.At.Add(gate.ClockTolerance)):
			return nil, cli.Usagef("--fetched %q: that time is still to come", shown)
		case party.IsUpload(name) || !slices.Contains(sets[0].Policy().RelyingParties, name):
			return nil, cli.Usagef("--fetched %q: the policy of key set %q names no such relying party that fetches", shown, sets[0].Name())
		}
		all[name] = observation.Fetched{At: at.UTC(), Read: c.At.UTC().Truncate(time.Second), By: c.By}
	}
	return all, nil
}

func rowOf(r observe.Result) looked {
	row := looked{
		KeySet: r.Set.Name(), Issuer: r.Subject.Issuer, Vantage: r.Subject.Vantage, Complete: len(r.Missing()) == 0, Missing: r.Missing(),
		Addresses: append([]string{}, r.Look.Addresses...), Keys: []seenKey{}, Lifetimes: r.Look.Lifetimes, SharedCache: r.Look.SharedCache,
	}
	for _, k := range r.Set.Keys() {
		seen := seenKey{Kid: k.ID(), State: k.State}
		for _, s := range r.Record.Seen {
			if s.Key == (observation.Key{ID: k.ID(), Fingerprint: k.Fingerprint()}) {
				seen.Since = s.Since
			}
		}
		row.Keys = append(row.Keys, seen)
	}
	return row
}

// lookTable prints a line for each key, and beside the first the look itself.
func lookTable(w *terminal.Table, rows []looked) {
	w.Row("ISSUER", "LOOK", "KEY", "STATE", "SEEN SINCE", "MAX-AGE", "SHARED CACHE")
	for _, r := range rows {
		look, cache := "complete", r.SharedCache
		if !r.Complete {
			look = strings.Join(r.Missing, "; ")
		}
		if cache == "" {
			cache = "none seen"
		}
		if len(r.Keys) == 0 {
			w.Row(r.Issuer, look, "-", "-", "-", r.MaxAge, cache)
		}
		for i, k := range r.Keys {
			since := "not seen"
			if !k.Since.IsZero() {
				since = cli.Stamp(k.Since)
			}
			if i == 0 {
				w.Row(r.Issuer, look, k.Kid, k.State, since, r.MaxAge, cache)
			} else {
				w.Row("", "", k.Kid, k.State, since, "", "")
			}
		}
	}
}
