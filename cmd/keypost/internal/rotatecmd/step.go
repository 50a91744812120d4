package rotatecmd

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
	"github.com/keypost/keypost/keystore/rotation"
	"github.com/keypost/keypost/provision/cluster"
)

type stepOptions struct {
	*cli.Factory
	access              cluster.Access
	all, exitCode, wait bool
	gone                []string // kube-apiservers that never come back
}

func newStep(f *cli.Factory) *cobra.Command {
	o := &stepOptions{Factory: f}
	cmd := f.Command("step ISSUER…|--all", "Take every step of the rotations under way whose gate is open", cobra.ArbitraryArgs, o.run)
	cmd.Long = "Promote the new key once it was seen in public for longer than any cache could hide it, looking if there is no fresh\n" +
		"look. With --kubeconfig and a keypost-signer beside each kube-apiserver, that waits until each lists the key. Then retire the old one once each kube-apiserver, asked at its own address, signs with the new one (--kubeconfig), also\n" +
		"those that were there earlier in the rotation; and remove it once its last token has expired, by the lifetime that the\n" +
		"policy declares, which is not taken if a pod of the cluster asks for longer ones. Until then each is asked again, and\n" +
		"where one signs with the retired key that is active again, and its time counts anew. A step is taken whole or not at all,\n" +
		"so this may be run again and again, by a timer too. It starts no rotation. Without --kubeconfig the old key is retired by\n" +
		"hand: keypost key retire. Where the issuer's certificate comes from a private CA, no look counts unless SSL_CERT_FILE names it."
	cmd.Example = "  keypost rotate step prod-a --kubeconfig prod-a.kubeconfig --store file:///srv/keysets --observations file:///srv/observations\n" +
		"  keypost rotate step prod-a --wait --store file:///srv/keysets --observations file:///srv/observations\n" +
		"  keypost rotate step --all --store file:///srv/keysets --observations file:///srv/observations"
	fs := cmd.Flags()
	fs.BoolVar(&o.all, "all", false, "every key set of the store that is in use")
	fs.BoolVar(&o.exitCode, "exit-code", false, "exit with 75 when a step cannot be taken yet")
	fs.BoolVar(&o.wait, "wait", false, "go on until the rotation is complete; without --kubeconfig, until a person has to act")
	fs.StringVar(&o.access.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster whose tokens the keys sign")
	fs.StringSliceVar(&o.gone, "gone", nil, "`ADDRESS` of a kube-apiserver that was there in this rotation and never comes back; what it would sign is refused")
	fs.StringToStringVar(&o.access.Reach, "apiserver", nil, "`LISTED=HOST:PORT`: where a kube-apiserver is reached from here, by the address that the cluster lists, such as the end of a tunnel to it (repeatable)")
	fs.StringVar(&o.access.Context, "context", "", "context in the kubeconfig (default the current one)")
	fs.StringVar(&o.access.ServiceAccount, "service-account", "", "`NAMESPACE/NAME` that tokens are minted for, which are not kept (default default/default)")
	return cmd
}

func (o *stepOptions) run(ctx context.Context, args []string) error {
	switch {
	case o.access.Kubeconfig == "" && (o.access.Context != "" || o.access.ServiceAccount != "" || len(o.gone)+len(o.access.Reach) > 0):
		return cli.Usagef("--context, --service-account, --apiserver and --gone need --kubeconfig")
	case o.access.Kubeconfig != "" && (o.all || len(args) > 1):
		return cli.Usagef("a cluster signs for one issuer; give one with --kubeconfig")
	}
	st, err := o.OpenToWrite(ctx)
	if err != nil {
		return err
	}
	sets, unread, err := o.InUse(ctx, st, args, o.all)
	if err != nil {
		return err
	}
	d := rotation.Driver{Store: st, Observer: &observe.Looker{Factory: o.Factory}, Change: func() keystore.Change { return o.Change("", false) }, Gone: o.gone}
	if o.access.Kubeconfig != "" {
		if d.Cluster, err = o.cluster(ctx); err != nil {
			return err
		}
	}
	var runs []*running
	for _, s := range sets {
		if s.Rotation() != nil || !o.all {
			runs = append(runs, &running{set: s, began: time.Now()})
		}
	}
	if err := o.stepAll(ctx, d, runs); err != nil {
		return err
	}
	states, failed, waiting := []state{}, []error{}, 0
	for _, r := range runs {
		states = append(states, r.state)
		if r.err != nil {
			failed = append(failed, fmt.Errorf("key set %q: %w", r.set.Name(), r.err))
		} else if r.waiting != nil {
			waiting++
		}
	}
	if err := o.Print(map[string]any{"rotations": states}, func(w *terminal.Table) { table(w, states) }); err != nil {
		return err
	}
	if len(failed) > 0 || len(unread) > 0 {
		return errors.Join(append(failed, cli.Unread(unread))...)
	}
	if waiting > 0 && o.exitCode {
		return cli.Exit(cli.ExitNotYet, errors.New(text.Count(waiting, "rotation waits", "rotations wait")+" for a gate"))
	}
	return nil
}

// cluster returns the signer's side of the cluster; OpenShift does more of it by itself.
func (o *stepOptions) cluster(ctx context.Context) (rotation.Cluster, error) {
	signing := cluster.Signing{Access: o.access}
	openShift, err := cluster.IsOpenShift(ctx, o.access)
	if err != nil || !openShift {
		return signing, err
	}
	return cluster.OpenShift{Signing: signing}, nil
}

// running is one rotation of those that a run steps.
type running struct {
	set     keystore.KeySet // as loaded or stored last
	began   time.Time       // of waiting for what it waits for
	said    string          // the latest line about that
	early   string          // likewise, who signs with the new key too early
	unasked string          // likewise, why nobody knows who signs with a retired key
	waiting *keystore.NotYetError
	done    bool // nothing more is to be tried
	err     error
	state
}

// stepAll takes the open steps of rotations, and with --wait also those that open later, until each is complete, has failed or
// needs a person. None waits for another one's gate.
func (o *stepOptions) stepAll(ctx context.Context, d rotation.Driver, runs []*running) error {
	for {
		var open []*running
		for _, r := range runs {
			if r.done {
				continue
			}
			o.step(ctx, d, r)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !r.done {
				open = append(open, r)
			}
		}
		if len(open) == 0 {
			return nil
		}
		first, pause := open[0], cli.LookEvery
		for _, r := range open {
			pause = min(pause, cli.PauseFor(r.waiting, shortPause))
			if opens := r.waiting.Opens; !opens.IsZero() && (first.waiting.Opens.IsZero() || opens.Before(first.waiting.Opens)) {
				first = r
			}
		}
		if err := o.Live().Wait(ctx, pause, first.awaited()); err != nil {
			return err
		}
	}
}

// step takes the open steps of one rotation, and notes how far it has come.
func (o *stepOptions) step(ctx context.Context, d rotation.Driver, r *running) {
	out, err := d.Step(ctx, r.set.Name())
	if out.Set.Name() != "" {
		r.set = out.Set
	}
	_, unanswered := errors.AsType[*rotation.UnansweredError](err)
	if unanswered {
		out.ByHand = unlisted(d.Cluster, r.set)
	}
	if unanswered && o.wait && !cluster.Refused(err) { // they are restarted in a rotation
		at := r.set.Rotation()
		out.Waiting = &keystore.NotYetError{Step: string(at.Step), Key: at.Replaces[0], Gate: gate.GateSigning, Need: err.Error()}
		err = nil
	}
	for _, took := range out.Took { // also where a later one fails: these are stored
		o.Notice("%s: %sd key %s", r.set.Name(), took.Step, took.Key) // each step ends in e
		switch {
		case took.Step == rotation.StepResume:
			o.Notice("%s: it was retired, and %s: it is not removed before a token lifetime after it is retired again", r.set.Name(), took.Why)
		case took.Step == keystore.StepRemove && d.Cluster == nil:
			o.Notice("%s: nobody asked whether a kube-apiserver signs with it again: %s", r.set.Name(), out.Unasked)
		}
		if took.Step == keystore.StepRemove {
			o.SayCopies(r.set)
		}
	}
	if d.Cluster != nil && out.Unasked != r.unasked {
		if r.unasked = out.Unasked; r.unasked != "" {
			o.Warn("%s: what each kube-apiserver signs with is not known: %s", r.set.Name(), r.unasked)
		}
	}
	if early := strings.Join(out.Early, ", "); out.Waiting != nil && out.Waiting.Step == string(keystore.StepPromote) && early != r.early {
		if r.early = early; early != "" && slices.Contains(r.set.Rotation().Servers, rotation.OtherCluster) {
			o.Notice("%s: the new cluster is there and signs with its key; relying parties with an older copy refuse its tokens until the key is promoted", r.set.Name())
		} else if early != "" {
			o.Warn("%s: the kube-apiserver %s signs with the new key already, so that anyone who has an older copy refuses its tokens: let it sign with the old key until the new one is promoted", r.set.Name(), early)
		}
	}
	if out.Unknown != "" && len(out.Took) > 0 {
		o.Notice("%s: how long tokens live is not known, so only what the policy declares counts: %s", r.set.Name(), out.Unknown)
	}
	took := append(r.Took, out.Took...)
	if err != nil {
		o.sayByHand(r.set, out.ByHand)
		err = hinted(err, r.set)
		r.state, r.waiting, r.err, r.done = state{KeySet: r.set.Name(), Rotation: r.set.Rotation(), Took: took, Error: err.Error()}, nil, err, true
		return
	}
	if r.state, err = stateOf(ctx, o.Factory, r.set); err != nil {
		r.err, r.Error = err, err.Error()
	}
	r.Took, r.waiting, r.done = took, out.Waiting, !o.wait || err != nil
	if out.Waiting == nil {
		if len(took) > 0 {
			o.Notice("%s: the rotation is complete", r.set.Name())
		}
		r.done = true
		return
	}
	r.Waiting, r.Gate, r.ByHand = out.Waiting.Error(), out.Waiting.Gate, strings.ReplaceAll(out.ByHand, "\n", "; ")
	if line := r.Waiting + r.ByHand; line != r.said {
		o.Notice("%s: %s", r.set.Name(), r.Waiting)
		o.sayByHand(r.set, out.ByHand)
		r.said, r.began = line, time.Now()
		switch {
		case r.Gate == gate.GateCopies && cli.Syncs(r.set):
			o.Notice("hint: %s", cli.SyncCommand(r.set.Name()))
		case r.Gate == gate.GateFetched:
			o.Notice("hint: %s", cli.FetchedCommand(r.set))
		}
	}
	if g := r.Gate; g == gate.GateSigning && d.Cluster == nil || g == gate.GateUndeclared || g == gate.GateEdge {
		o.Notice("hint: %s", o.Line(cli.GateCommand(out.Waiting, r.set)))
		r.done = true
	}
}

// unlisted returns what a person has to do at a cluster that does not say who signs for it: nobody has to be listed for that. OpenShift
// hands a key over by itself.
func unlisted(c rotation.Cluster, s keystore.KeySet) string {
	r := s.Rotation()
	if _, is := c.(cluster.OpenShift); is || r == nil || r.Step != keystore.StepRetire {
		return ""
	}
	if old, _ := s.Key(r.Replaces[0]); old.PromotedAt.IsZero() { // rolled back before anybody was to sign with it
		return ""
	}
	return rotation.ByHand(r.Kid).Do
}

// sayByHand prints what the rotation of s waits for a person to do, as a numbered list.
func (o *stepOptions) sayByHand(s keystore.KeySet, steps string) {
	if steps != "" {
		o.Steps(string(s.Name()), strings.Split(steps, "\n"), cli.Command{"rotate", "step", string(s.Name())})
	}
}

// hinted adds to an error of a cluster that does not answer how else it is asked.
func hinted(err error, s keystore.KeySet) error {
	if _, is := errors.AsType[*rotation.UnansweredError](err); !is || cluster.Refused(err) {
		return err
	}
	const reach = "name the end of a tunnel to that one server with --apiserver LISTED=HOST:PORT"
	if r := s.Rotation(); r.Step == keystore.StepRetire {
		return cli.WithHint(err, reach+"; or retire the old key by hand: %s", cli.GateCommand(&keystore.NotYetError{Gate: gate.GateSigning, Key: r.Replaces[0]}, s))
	}
	return cli.WithHint(err, reach)
}

// awaited returns what r waits for.
func (r *running) awaited() terminal.Awaited {
	return terminal.Awaited{What: fmt.Sprintf("%s: %s key %.8s", r.set.Name(), r.waiting.Step, r.waiting.Key), Since: r.began, Till: cli.NotBefore(r.waiting.Opens)}
}

// shortPause is how long --wait sleeps where a gate opens by an act: until somebody may have done what is missing.
const shortPause = 30 * time.Second
