package rotatecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/rotation"
	"github.com/keypost/keypost/provision/cluster"
)

type stepOptions struct {
	*cli.Factory
	flags               observe.Flags
	access              cluster.Access
	all, exitCode, wait bool

	observer *observe.Observer // opened when a look is needed
}

func newStep(f *cli.Factory) *cobra.Command {
	o := &stepOptions{Factory: f}
	cmd := f.Command("step ISSUER…|--all", "Take every step of the rotations under way whose gate is open", cobra.ArbitraryArgs, o.run)
	cmd.Long = "Promote the new key once it was seen in public for longer than any cache could hide it, looking if there is no fresh\n" +
		"look; retire the old one once each kube-apiserver, asked at its own address, signs with the new one (--kubeconfig); and\n" +
		"remove it once its last token has expired. A step is taken whole or not at all, so this may be run again and again, by a\n" +
		"timer too. It starts no rotation. Without --kubeconfig the old key is retired by hand: keypost key retire."
	cmd.Example = "  keypost rotate step prod-a --kubeconfig prod-a.kubeconfig --store file:///srv/keysets --observations file:///srv/observations\n" +
		"  keypost rotate step --all --store file:///srv/keysets --observations file:///srv/observations"
	fs := cmd.Flags()
	o.flags.Register(f, fs)
	fs.BoolVar(&o.all, "all", false, "every key set of the store that is in use")
	fs.BoolVar(&o.exitCode, "exit-code", false, "exit with 75 when a step cannot be taken yet")
	fs.BoolVar(&o.wait, "wait", false, "go on until the rotation is complete, or a person has to act")
	fs.StringVar(&o.access.Kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster whose tokens the keys sign")
	fs.StringVar(&o.access.Context, "context", "", "context in the kubeconfig (default the current one)")
	fs.StringVar(&o.access.ServiceAccount, "service-account", "", "`NAMESPACE/NAME` that tokens are minted for, which are not kept (default default/default)")
	return cmd
}

func (o *stepOptions) run(ctx context.Context, args []string) error {
	switch {
	case o.access.Kubeconfig == "" && (o.access.Context != "" || o.access.ServiceAccount != ""):
		return cli.Usagef("--context and --service-account need --kubeconfig")
	case o.access.Kubeconfig != "" && (o.all || len(args) > 1):
		return cli.Usagef("a cluster signs for one issuer; give one with --kubeconfig")
	}
	st, err := o.OpenToWrite(ctx)
	if err != nil {
		return err
	}
	sets, unread, err := choose(ctx, st, args, o.all)
	if err != nil {
		return err
	}
	d := rotation.Driver{Store: st, Observer: o, Change: func() keystore.Change { return o.Change("", false) }}
	if o.access.Kubeconfig != "" {
		if d.Cluster, err = o.cluster(ctx); err != nil {
			return err
		}
	}
	states, failed, waiting := []state{}, []error{}, 0
	for _, s := range sets {
		if s.Rotation() == nil && o.all {
			continue
		}
		one, err := o.step(ctx, d, s.Name())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("key set %q: %w", s.Name(), err))
			continue
		}
		if one.Waiting != "" {
			waiting++
		}
		states = append(states, one)
	}
	if err := o.Print(map[string]any{"rotations": states}, func(w *tabwriter.Writer) { table(w, states) }); err != nil {
		return err
	}
	if len(failed) > 0 || len(unread) > 0 {
		return errors.Join(append(failed, unreadable(unread))...)
	}
	if waiting > 0 && o.exitCode {
		return waitingError(waiting)
	}
	return nil
}

// cluster returns the signer's side of the cluster, of which OpenShift does more by itself.
func (o *stepOptions) cluster(ctx context.Context) (rotation.Cluster, error) {
	signing := cluster.Signing{Access: o.access}
	openShift, err := cluster.IsOpenShift(ctx, o.access)
	if err != nil || !openShift {
		return signing, err
	}
	return cluster.OpenShift{Signing: signing}, nil
}

// waitingError is how many rotations wait for a gate.
type waitingError int

func (n waitingError) Error() string {
	return text.Count(int(n), "rotation waits", "rotations wait") + " for a gate"
}

// ExitCode returns the exit code of "not yet".
func (waitingError) ExitCode() int { return cli.ExitNotYet }

// step takes the open steps of one rotation, and with --wait those that open later too.
func (o *stepOptions) step(ctx context.Context, d rotation.Driver, n keystore.Name) (state, error) {
	for said := ""; ; {
		out, err := d.Step(ctx, n)
		if err != nil {
			return state{}, err
		}
		for _, took := range out.Took {
			o.Notice("%s: %s of key %s", n, took.Step, took.Key)
		}
		if out.Waiting == nil {
			if len(out.Took) > 0 {
				o.Notice("%s: the rotation is complete", n)
			}
			return stateOf(ctx, o.Factory, out.Set)
		}
		if line := strings.TrimSuffix(out.Waiting.Error()+"; "+out.ByHand, "; "); line != said {
			o.Notice("%s: %s", n, line)
			said = line
		}
		person := out.Waiting.Gate == keystore.GateSigning && d.Cluster == nil || out.Waiting.Gate == keystore.GateUndeclared || out.Waiting.Gate == keystore.GateEdge
		if person {
			o.Notice("hint: %s", o.Line(nextCommand(out.Set, out.Waiting)))
		}
		if !o.wait || person {
			one, err := stateOf(ctx, o.Factory, out.Set)
			one.Took, one.Waiting, one.Gate, one.ByHand = out.Took, out.Waiting.Error(), out.Waiting.Gate, out.ByHand
			return one, err
		}
		if err := pause(ctx, out.Waiting); err != nil {
			return state{}, err
		}
	}
}

// nextCommand returns what a person gives when the store cannot know by itself.
func nextCommand(s keystore.KeySet, e *keystore.NotYetError) cli.Command {
	switch e.Gate {
	case keystore.GateEdge:
		return cli.Command{"issuer", "set", string(s.Name()), "--edge-hold", "DURATION"}
	case keystore.GateUndeclared:
		return cli.Command{"issuer", "set", string(s.Name()), "--token-lifetime", "DURATION"}
	}
	return cli.Command{"key", "retire", string(s.Name()), string(e.Key), "--why", "each kube-apiserver was asked"}
}

// How long --wait sleeps: until a gate opens, but no longer than a complete look stays fresh; or until somebody may have
// done what is missing.
const (
	longPause  = 10 * time.Minute
	shortPause = 30 * time.Second
)

func pause(ctx context.Context, e *keystore.NotYetError) error {
	d := shortPause
	if !e.Opens.IsZero() {
		d = min(max(time.Until(e.Opens), 0), longPause)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Recorded implements [rotation.Observer].
func (o *stepOptions) Recorded(ctx context.Context, s keystore.KeySet, k keystore.Key) (keystore.Observed, error) {
	return observe.Recorded(ctx, o.Factory, s, k)
}

// Look implements [rotation.Observer].
func (o *stepOptions) Look(ctx context.Context, s keystore.KeySet) error {
	if o.observer == nil {
		opened, err := o.flags.Open(ctx, o.Factory)
		if err != nil {
			return err
		}
		o.observer = &opened
	}
	return o.observer.Counting(ctx, o.Factory, s)
}

// unreadable returns an error that names the key sets that could not be read; nil for none.
func unreadable(names []keystore.Name) error {
	if len(names) == 0 {
		return nil
	}
	words := make([]string, len(names))
	for i, n := range names {
		words[i] = fmt.Sprintf("%q", n)
	}
	return fmt.Errorf("%s cannot be read: %s", text.Count(len(names), "key set", "key sets"), strings.Join(words, ", "))
}
