package rotatecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/rotation"
	"github.com/keypost/keypost/provision/cluster"
)

type startOptions struct {
	*cli.Factory
	keys    keysource.Flags
	cluster string // kubeconfig of an OpenShift cluster that makes the key
	dryRun  bool
}

func newStart(f *cli.Factory) *cobra.Command {
	o := &startOptions{Factory: f}
	cmd := f.Command("start ISSUER [KEYS]", "Begin to replace the keys that sign by another one, and publish that", cobra.ExactArgs(1), o.run)
	cmd.Long = "KEYS is one key, by --public-key-file FILE, --jwks FILE|URL, or --kubeconfig FILE [--context NAME]; without it, the\n" +
		"key of the key set that is next. The cluster must not sign with it before it is promoted: keypost rotate step says when.\n" +
		"Where the kubeconfig's cluster lists none of the keys that sign, it takes the place of another one: docs/replace-cluster.md.\n" +
		"Nothing but the publication happens here. With --dry-run, print when each step could be taken."
	cmd.Example = "  keypost key generate --out next\n" +
		"  keypost rotate start prod-a --public-key-file next/sa.pub --store file:///srv/keysets\n" +
		"  keypost rotate step prod-a --store file:///srv/keysets --observations file:///srv/observations"
	fs := cmd.Flags()
	o.keys.Register(fs)
	fs.StringVar(&o.cluster, "make-in", "", "kubeconfig `FILE` of an OpenShift cluster: make the key there; its private half never leaves it")
	fs.BoolVar(&o.dryRun, "dry-run", false, "change nothing; print the timetable")
	return cmd
}

func (o *startOptions) run(ctx context.Context, args []string) error {
	if o.keys.Given() {
		if err := o.keys.Check(); err != nil {
			return err
		}
	}
	switch {
	case o.cluster != "" && o.keys.Given():
		return cli.Usagef("give a key or --make-in, not both")
	case o.cluster != "" && o.dryRun:
		return cli.Usagef("--make-in makes a key, which --dry-run does not; leave --make-in out and give any public key to see the timetable")
	}
	st, err := o.OpenStore(ctx)
	if err != nil {
		return err
	}
	s, err := catalog.Find(ctx, st, args[0])
	if err != nil {
		return err
	}
	k, replaces, err := o.key(ctx, s)
	if err != nil {
		return err
	}
	if _, published := s.Key(k.ID()); !published { // key add --force may have published it
		if err := o.CheckTaken(s.Policy(), false, k); err != nil {
			return err
		}
	}
	if err := (cli.Others{Factory: o.Factory, Store: st}).Check(ctx, s.Name(), k); err != nil {
		return err
	}
	cluster, err := o.keys.Cluster(ctx, o.Factory)
	if err != nil {
		return err
	}
	begin := func(s keystore.KeySet) (keystore.KeySet, error) {
		s, err := s.StartRotation(o.Change("", false), k)
		if err == nil && cluster != "" && slices.Index(s.Clusters(), cluster) != 0 { // it is the one that is to sign
			s, err = s.SetCluster(o.Change("", false), cluster)
		}
		if err != nil || !replaces {
			return s, err
		}
		return s.SetServers(o.Change("the keys that sign are those of another cluster", false), []string{rotation.OtherCluster})
	}
	if o.dryRun {
		s, err = begin(s)
	} else {
		s, err = o.Update(ctx, string(s.Name()), begin)
	}
	if err != nil {
		return err
	}
	one, err := stateOf(ctx, o.Factory, s)
	if err != nil {
		return err
	}
	if !o.dryRun {
		o.sayPublished(s, k, replaces)
	}
	return o.Print(one, func(w *terminal.Table) { table(w, []state{one}) })
}

// sayPublished says what may happen from now on.
func (o *startOptions) sayPublished(s keystore.KeySet, k keystore.VerificationKey, replaces bool) {
	until := "Let no signer use it before it is promoted"
	if replaces {
		until = "The cluster that signs with it lists none of the keys that are active: it takes the place of another cluster. Let nothing outside of it depend on its tokens before the key is promoted"
	}
	o.Notice("key %s is published. %s. Its time counts from the first look, so run this now, and again when it says: %s", k.ID(), until, cli.Command{"rotate", "step", string(s.Name())})
	o.SayCopies(s)
}

// key returns the key to rotate to, and whether it is that of a cluster which has none of the keys that sign.
func (o *startOptions) key(ctx context.Context, s keystore.KeySet) (k keystore.VerificationKey, replaces bool, err error) {
	if o.cluster != "" {
		k, err = o.make(ctx, s)
		return k, false, err
	}
	if !o.keys.Given() {
		k, err = onlyNext(s)
		return k, false, err
	}
	m, err := o.keys.Read(ctx, o.Factory)
	if err != nil {
		return k, false, err
	}
	if m.Cluster && !slices.ContainsFunc(m.Keys, func(k keystore.VerificationKey) bool { return isActive(s, k) }) {
		replaces = true
		if !slices.ContainsFunc(s.Issuers(), func(u keystore.IssuerURL) bool { return u.String() == m.Issuer }) {
			return k, false, fmt.Errorf("start rotation: this cluster's issuer is %s, and it lists none of the keys of %q that are active, so it is another cluster; "+
				"let it run with --service-account-issuer=%s first, if it takes the place of that one", m.Issuer, s.Name(), s.Issuers()[0])
		}
	}
	var choice []keystore.VerificationKey
	for _, k := range m.Keys { // a list also has the keys of today and of yesterday
		if eligible(s, k) || !m.Listed {
			choice = append(choice, k)
		}
	}
	switch len(choice) {
	case 1:
		return choice[0], replaces, nil
	case 0:
		return k, false, fmt.Errorf("start rotation: the source has no key that %q does not list yet or lists as next", s.Name())
	}
	ids := make([]string, len(choice))
	for i, k := range choice {
		ids[i] = string(k.ID())
	}
	return k, false, fmt.Errorf("start rotation: the source has %d keys that %q does not list yet or lists as next (%s), and nobody can say which is to sign; give one with --public-key-file",
		len(choice), s.Name(), strings.Join(ids, ", "))
}

// onlyNext returns the one key of s that is next.
func onlyNext(s keystore.KeySet) (keystore.VerificationKey, error) {
	var choice []keystore.VerificationKey
	for _, k := range s.Keys() {
		if k.State == keystore.Next {
			choice = append(choice, k.VerificationKey)
		}
	}
	if len(choice) != 1 {
		return keystore.VerificationKey{}, cli.WithHint(fmt.Errorf("start rotation: key set %q has %d keys that are next; say which one to rotate to", s.Name(), len(choice)),
			"make one, and give it with --public-key-file: %s", cli.Command{"key", "generate", "--out", "DIR"})
	}
	return choice[0], nil
}

// make has an OpenShift cluster hold a new pair that it does not sign with.
func (o *startOptions) make(ctx context.Context, s keystore.KeySet) (keystore.VerificationKey, error) {
	if r := s.Rotation(); r != nil { // before anything is made
		return keystore.VerificationKey{}, &keystore.RotationError{KeySet: s.Name(), Rotation: *r}
	}
	access := cluster.Access{Kubeconfig: o.cluster}
	openShift, err := cluster.IsOpenShift(ctx, access)
	if err != nil {
		return keystore.VerificationKey{}, err
	}
	if !openShift {
		return keystore.VerificationKey{}, cli.WithHint(errors.New("start rotation: this cluster is not OpenShift, so its signing key is made on a control-plane node"),
			"make one there, and give its public file with --public-key-file: %s", cli.Command{"key", "generate", "--out", "DIR"})
	}
	return cluster.OpenShift{Signing: cluster.Signing{Access: access}}.NextKey(ctx, func(k keystore.VerificationKey) bool { return eligible(s, k) })
}

// isActive reports whether k may sign in s.
func isActive(s keystore.KeySet, k keystore.VerificationKey) bool {
	return slices.ContainsFunc(s.Keys(), func(have keystore.Key) bool {
		return have.State == keystore.Active && have.Fingerprint() == k.Fingerprint()
	})
}

// eligible reports whether k may be what s rotates to: it is new, or next.
func eligible(s keystore.KeySet, k keystore.VerificationKey) bool {
	have, published := s.Key(k.ID())
	_, gone := s.GoneLine(k)
	return !gone && (!published || have.State == keystore.Next)
}
