// Package rotatecmd has the commands of keypost rotate: they take an issuer from one signing key to the next.
package rotatecmd

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/rotation"
)

// NewCmdRotate returns the group of commands.
func NewCmdRotate(f *cli.Factory) *cobra.Command {
	return cli.Group("rotate", "Rotate signing keys step by step, without a refused token", newStart(f), newStep(f), newStatus(f), newRollback(f))
}

// state is a rotation as scripts read it.
type state struct {
	KeySet   keystore.Name              `json:"keySet"`
	Rotation *keystore.Rotation         `json:"rotation"` // null when none is under way
	Back     bool                       `json:"rolledBack,omitempty"`
	Took     []rotation.Taken           `json:"took,omitempty"`
	Waiting  string                     `json:"waiting,omitempty"` // why the next step cannot be taken yet
	Gate     gate.Gate                  `json:"gate,omitempty"`
	ByHand   string                     `json:"byHand,omitempty"` // what a person has to do at the cluster
	Error    string                     `json:"error,omitempty"`  // why no more was done; what was took stays
	Plan     []entry                    `json:"timetable,omitempty"`
	Fetch    string                     `json:"fetch,omitempty"`   // why a relying party may be without the key that is to be promoted
	Uploads  []observation.UploadStatus `json:"uploads,omitempty"` // that relying parties hold, where what was read back is known
}

// entry is a line of a timetable.
type entry struct {
	Step  keystore.RotationStep `json:"step"`
	Opens time.Time             `json:"opens,omitzero"` // at the earliest; absent where nobody can say
}

// stateOf returns the rotation of s and its timetable.
func stateOf(ctx context.Context, f *cli.Factory, s keystore.KeySet) (state, error) {
	st := state{KeySet: s.Name(), Rotation: s.Rotation()}
	var err error
	if st.Uploads, _, err = observe.UploadsOf(ctx, f, s); err != nil || st.Rotation == nil {
		return st, err
	}
	for _, e := range s.History() { // rolled back twice, it goes on as before
		switch {
		case strings.HasPrefix(e.What, keystore.WhatStartRotation):
			st.Back = false
		case e.What == keystore.WhatRollBack:
			st.Back = !st.Back
		}
	}
	var seen keystore.Observed
	if st.Rotation.Step == keystore.StepPromote { // nothing else waits for what is seen
		to, _ := s.Key(st.Rotation.Kid)
		if seen, err = observe.Recorded(ctx, f, s, to); err != nil {
			return st, err
		}
		_, err := s.Promote(f.Change("", false), to.ID(), seen)
		if closed, is := errors.AsType[*keystore.NotYetError](err); is && closed.Gate == gate.GateFetched {
			st.Fetch = closed.Need
		}
	}
	for _, e := range rotation.Timetable(f.Change("", false), s, seen) {
		st.Plan = append(st.Plan, entry{e.Step, cli.NotBefore(e.Opens)})
	}
	return st, nil
}

// what explains the steps, in the order in which they are taken. A rotation that was rolled back goes from the new key to the old one.
func what(step keystore.RotationStep, back bool) string {
	to, from := "new", "old"
	if back {
		to, from = from, to
	}
	switch step {
	case keystore.StepPromote:
		return "let the " + to + " key sign, once it was seen for longer than any cache could hide it"
	case keystore.StepRetire:
		return "retire the " + from + " key, once every kube-apiserver signs with the " + to + " one"
	case keystore.StepRemove:
		return "remove the " + from + " key, once its last token has expired"
	}
	return string(step)
}

func table(w *terminal.Table, states []state) {
	for i, s := range states {
		if i > 0 {
			w.Row()
		}
		rotationRows(w, s)
		for _, c := range s.Uploads { // without a rotation too: one that was forgotten has a removed key still
			if problem := c.Problem(); problem != "" {
				w.Row("  upload", "not ready", problem)
			}
		}
	}
}

func rotationRows(w *terminal.Table, s state) {
	if s.Rotation == nil {
		w.Row(s.KeySet, "no rotation is under way")
		return
	}
	direction := "rotates to key "
	if s.Back {
		direction = "was rolled back: rotates back to key "
	}
	w.Row(s.KeySet, direction+string(s.Rotation.Kid)+", since "+s.Rotation.ID)
	for i, e := range s.Plan {
		when := "not known: declare how long tokens live"
		switch {
		case i > 0 && e.Step == keystore.StepRetire: // no clock opens it
			when = "after that"
		case !e.Opens.IsZero():
			when = cli.Stamp(e.Opens)
		}
		w.Row("  "+string(e.Step), when, what(e.Step, s.Back))
	}
	if s.Fetch != "" {
		w.Row("  fetch", "not ready", s.Fetch)
	}
}

func newStatus(f *cli.Factory) *cobra.Command {
	var all bool
	cmd := f.Command("status ISSUER…|--all", "Print the rotations under way, and when their steps can be taken", cobra.ArbitraryArgs, func(ctx context.Context, args []string) error {
		st, err := f.OpenStore(ctx)
		if err != nil {
			return err
		}
		sets, unread, err := f.InUse(ctx, st, args, all)
		if err != nil {
			return err
		}
		states := []state{}
		for _, s := range sets {
			one, err := stateOf(ctx, f, s)
			if err != nil {
				return err
			}
			states = append(states, one)
		}
		if err := f.Print(map[string]any{"rotations": states}, func(w *terminal.Table) { table(w, states) }); err != nil {
			return err
		}
		return cli.Unread(unread)
	})
	cmd.Example = "  keypost rotate status prod-a --store file:///srv/keysets --observations file:///srv/observations\n" +
		"  keypost rotate status --all -o json --store file:///srv/keysets --observations file:///srv/observations"
	cmd.Flags().BoolVar(&all, "all", false, "every key set of the store that is in use")
	return cmd
}

func newRollback(f *cli.Factory) *cobra.Command {
	var why string
	cmd := f.Command("rollback ISSUER --why REASON", "Turn a rotation around: the old key signs again, and the new one leaves", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		s, err := f.Update(ctx, args[0], func(s keystore.KeySet) (keystore.KeySet, error) { return s.RollBack(f.Change(why, false)) })
		if err != nil {
			return err
		}
		afterRollback(f, s)
		one, err := stateOf(ctx, f, s)
		if err != nil {
			return err
		}
		return f.Print(one, func(w *terminal.Table) { table(w, []state{one}) })
	})
	cmd.Long = "Turn the rotation around wherever it is, until the old key is removed: a retired key signs again at once, and the new one\n" +
		"leaves as a replaced one does. Rolled back again, it goes on as before."
	cmd.Example = "  keypost rotate rollback prod-a --why 'the new key is slow' --store file:///srv/keysets\n" +
		"  keypost rotate step prod-a --kubeconfig prod-a.kubeconfig --store file:///srv/keysets --observations file:///srv/observations"
	cmd.Flags().StringVar(&why, "why", "", "the reason; it is recorded")
	return cmd
}

// afterRollback says what comes after one. A key that was next may have signed only by mistake.
func afterRollback(f *cli.Factory, s keystore.KeySet) {
	r, name := s.Rotation(), string(s.Name())
	leaves, step := r.Replaces[0], cli.Command{"rotate", "step", name}
	if k, _ := s.Key(leaves); k.State != keystore.Next {
		f.Notice("%s waits for you:", name)
		f.Notice("  1. let the cluster sign with %s again", r.Kid)
		f.Notice("  2. take key %s out: %s", leaves, step)
		return
	}
	f.Notice("key %s was not promoted; take it out in one of two ways:", leaves)
	f.Notice("  ask each kube-apiserver first: %s", append(step, "--kubeconfig", "FILE"))
	f.Notice("  at once, if nothing has ever signed with it: %s", cli.Command{"key", "remove", name, string(leaves), "--never-signed"})
}
