package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/provision/signingkey"
)

func (a *app) key() *cobra.Command {
	list, remove := a.keyList(), a.keyRemove()
	list.Aliases, remove.SuggestFor = []string{"ls"}, []string{"delete", "rm"}
	g := group("key", "Generate keys, and move them through their states",
		a.keyGenerate(), list, a.keyAdd(), a.keyPromote(), a.keyRetire(), remove, a.keyRevoke())
	g.Aliases = []string{"keys"}
	return g
}

type generateFlags struct {
	dir, kind string
	paths     signingkey.Paths
}

func (a *app) keyGenerate() *cobra.Command {
	f := &generateFlags{}
	cmd := &cobra.Command{
		Use:   "generate --out DIR",
		Short: "Generate a signing key for a cluster",
		Long: "Generate a signing key: the private half for kube-apiserver --service-account-signing-key-file, the public half\n" +
			"for keypost issuer add or key add. Files are never overwritten. The private key stays on this machine.",
		Args: exactly(0),
		RunE: a.do(func(context.Context, []string) error { return a.generate(f) }),
	}
	fs := cmd.Flags()
	fs.StringVar(&f.dir, "out", "", "directory to write sa.key and sa.pub to")
	fs.StringVar(&f.paths.Private, "private-key-file", "", "file for the private key, instead of --out")
	fs.StringVar(&f.paths.Public, "public-key-file", "", "file for the public key, instead of --out")
	fs.StringVar(&f.kind, "type", string(signingkey.RSA3072), "rsa2048, rsa3072, rsa4096, p256, p384 or p521; Entra accepts RSA only")
	return cmd
}

func (a *app) generate(f *generateFlags) error {
	paths := f.paths
	switch both := paths.Private != "" && paths.Public != ""; {
	case f.dir != "" && (paths.Private != "" || paths.Public != ""), f.dir == "" && !both:
		return usagef("give --out DIR, or --private-key-file FILE and --public-key-file FILE")
	case f.dir != "":
		paths = signingkey.Paths{Private: filepath.Join(f.dir, "sa.key"), Public: filepath.Join(f.dir, "sa.pub")}
	}
	if !slices.Contains(signingkey.Kinds(), signingkey.Kind(f.kind)) {
		return usagef("--type %q: use one of %v", f.kind, signingkey.Kinds())
	}
	if f.dir != "" {
		err := os.Mkdir(f.dir, 0o700)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return withHint(fmt.Errorf("--out %s: there is no directory to make it in", f.dir), "mkdir -p %s", quoted(filepath.Dir(filepath.Clean(f.dir))))
		case err != nil && !errors.Is(err, os.ErrExist):
			return fmt.Errorf("--out %s: %w", f.dir, reason(err))
		}
	}
	if err := paths.CheckFree(); err != nil {
		return withHint(err, "move it away, or choose another place")
	}
	key, err := signingkey.Generate(signingkey.Kind(f.kind))
	if err != nil {
		return err
	}
	if err := key.Write(paths); err != nil {
		return err
	}
	return a.printGenerated(key.Public(), paths)
}

func (a *app) printGenerated(k keystore.VerificationKey, paths signingkey.Paths) error {
	v := struct {
		Kid     keystore.KeyID `json:"kid"`
		Alg     string         `json:"alg"`
		Private string         `json:"privateKeyFile"`
		Public  string         `json:"publicKeyFile"`
	}{k.ID(), k.Alg(), paths.Private, paths.Public}
	err := a.print(v, func(w *tabwriter.Writer) {
		row(w, "kid:", v.Kid)
		row(w, "alg:", v.Alg)
		row(w, "private key:", v.Private)
		row(w, "public key:", v.Public)
	})
	a.notice("next: %s (a new issuer), or %s", command{"issuer", "add", "NAME", "--url", "URL", "--public-key-file", paths.Public},
		command{"key", "add", "ISSUER", "--public-key-file", paths.Public})
	return err
}

func (a *app) keyList() *cobra.Command {
	return &cobra.Command{
		Use:   "list ISSUER",
		Short: "List an issuer's keys",
		Args:  exactly(1),
		RunE: a.do(func(ctx context.Context, args []string) error {
			st, err := a.openStore(ctx)
			if err != nil {
				return err
			}
			s, err := catalog.Find(ctx, st, args[0])
			if err != nil {
				return err
			}
			return a.printKeys(s)
		}),
	}
}

func (a *app) printKeys(s keystore.KeySet) error {
	v := view.Of(s, time.Now())
	return a.print(map[string]any{"name": v.Name, "generation": v.Generation, "keys": v.Keys}, func(w *tabwriter.Writer) { view.KeyRows(w, v.Keys) })
}

func (a *app) keyAdd() *cobra.Command {
	f := &keyFlags{}
	cmd := &cobra.Command{
		Use:   "add ISSUER KEYS",
		Short: "Publish a further key, as next: it must not sign yet",
		Long:  "KEYS is --public-key-file FILE…, --jwks FILE|URL, or --kubeconfig FILE [--context NAME].",
		Args:  exactly(1),
		RunE:  a.do(func(ctx context.Context, args []string) error { return a.addKeys(ctx, args[0], *f) }),
	}
	f.Register(cmd.Flags())
	return cmd
}

func (a *app) addKeys(ctx context.Context, issuer string, f keyFlags) error {
	if err := f.Check(); err != nil {
		return err
	}
	m, err := a.readKeys(ctx, f)
	if err != nil {
		return err
	}
	st, err := a.openToWrite(ctx)
	if err != nil {
		return err
	}
	s, err := catalog.Find(ctx, st, issuer)
	if err != nil {
		return err
	}
	fresh := a.unpublished(s, m)
	if len(fresh) > 0 {
		s, err = keystore.Update(ctx, st, s.Name(), func(s keystore.KeySet) (keystore.KeySet, error) {
			return addAll(s, a.change("", false), fresh)
		})
	}
	if err != nil {
		return err
	}
	for _, k := range fresh {
		opens, _ := s.EarliestPromotion(k.ID(), time.Now())
		a.notice("key %s may be promoted at %s at the earliest, if it is observed everywhere from now on", k.ID(), stamp(opens))
	}
	return a.printKeys(s)
}

// unpublished leaves out what is published already, so that a command can be repeated, and of a list what is gone: a
// cluster knows an old key for up to a year after relying parties stopped trusting it.
func (a *app) unpublished(s keystore.KeySet, m material) []keystore.VerificationKey {
	var fresh []keystore.VerificationKey
	for _, k := range m.Keys {
		have, published := s.Key(k.ID())
		gone := slices.ContainsFunc(s.Gone(), func(g keystore.Gone) bool { return g.ID == k.ID() })
		switch {
		case published && have.Equal(k):
			a.notice("key %s is published already (%s)", k.ID(), view.StateText(s, have, time.Now()))
		case gone && m.Listed:
			a.notice("key %s is gone and stays so", k.ID())
		default:
			fresh = append(fresh, k)
		}
	}
	return fresh
}

func addAll(s keystore.KeySet, c keystore.Change, keys []keystore.VerificationKey) (keystore.KeySet, error) {
	var err error
	for _, k := range keys {
		if s, err = s.Add(c, k); err != nil {
			return s, err
		}
	}
	return s, nil
}

// gateFlags pass a closed gate.
type gateFlags struct {
	force  bool
	why    string
	danger string                // what may break
	closed *keystore.NotYetError // what --force passed; nil when nothing was in the way
}

func (f *gateFlags) register(fs *pflag.FlagSet, danger string) {
	f.danger = danger
	fs.BoolVar(&f.force, "force", false, "do it although the gate is closed (needs --why): "+danger)
	fs.StringVar(&f.why, "why", "", "the reason; it is recorded")
}

// take takes a step, and keeps what would have refused it without --force.
func (f *gateFlags) take(c keystore.Change, step func(keystore.Change) (keystore.KeySet, error)) (keystore.KeySet, error) {
	f.closed = nil
	if f.force {
		asked := c
		asked.Force = false
		_, err := step(asked)
		f.closed, _ = errors.AsType[*keystore.NotYetError](err)
	}
	return step(c)
}

// warnForced says what --force passed, for how long it would have had to wait, and what may break.
func (a *app) warnForced(f *gateFlags) {
	e := f.closed
	if e == nil {
		return
	}
	until, least := e.Opens, ""
	if until.IsZero() {
		until, least = e.Earliest, " at least"
	}
	wait := ""
	if !until.IsZero() {
		left := keystore.Duration(time.Until(until).Round(time.Minute))
		wait = fmt.Sprintf("; the gate would still have been closed until %s (%v)%s", stamp(until), left, least)
	}
	a.warn("forced: %s%s; what may break: %s", e.Need, wait, f.danger)
}

// keyChange is what a command on one key did.
type keyChange struct {
	was, is keystore.KeySet
	id      keystore.KeyID
}

// changeKey applies a transition to the key that the arguments ISSUER KID mean. It may call change several times.
func (a *app) changeKey(ctx context.Context, args []string, change func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error)) (keyChange, error) {
	var c keyChange
	var err error
	c.is, err = a.update(ctx, args[0], func(s keystore.KeySet) (keystore.KeySet, error) {
		k, err := catalog.Key(s, args[1])
		if err != nil {
			return s, err
		}
		c.was, c.id = s, k.ID()
		return change(s, k.ID())
	})
	return c, err
}

func (a *app) keyPromote() *cobra.Command {
	f := &gateFlags{}
	cmd := &cobra.Command{
		Use:   "promote ISSUER KID",
		Short: "Let a key sign: a next one, or a retired one again",
		Args:  exactly(2),
		RunE: a.do(func(ctx context.Context, args []string) error {
			c, err := a.changeKey(ctx, args, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
				return f.take(a.change(f.why, f.force), func(c keystore.Change) (keystore.KeySet, error) { return s.Promote(c, id) })
			})
			if err != nil {
				return err
			}
			a.warnForced(f)
			a.notice("the cluster may now sign with %s; once every kube-apiserver does, retire the key before it", c.id)
			return a.printKeys(c.is)
		}),
	}
	f.register(cmd.Flags(), "relying parties that hold an older copy refuse its tokens")
	return cmd
}

func (a *app) keyRetire() *cobra.Command {
	f := &gateFlags{}
	cmd := &cobra.Command{
		Use:   "retire ISSUER KID --why STATEMENT",
		Short: "Record that a key signs no more; it stays published until its last token has expired",
		Args:  exactly(2),
		RunE: a.do(func(ctx context.Context, args []string) error {
			if f.why == "" {
				return usagef("key retire needs --why STATEMENT: how you know that no kube-apiserver signs with the key; it is recorded")
			}
			c, err := a.changeKey(ctx, args, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
				return f.take(a.change(f.why, f.force), func(c keystore.Change) (keystore.KeySet, error) {
					return s.Retire(c, id, keystore.Evidence{Statement: f.why})
				})
			})
			if err != nil {
				return err
			}
			a.warnForced(f)
			if !slices.ContainsFunc(c.is.Keys(), func(k keystore.Key) bool { return k.State == keystore.Active }) {
				a.warn("no key of %q is active any more", c.is.Name())
			}
			return a.printKeys(c.is)
		}),
	}
	f.register(cmd.Flags(), "tokens that it goes on to sign will be refused once it is removed")
	return cmd
}

func (a *app) keyRemove() *cobra.Command {
	f := &gateFlags{}
	var neverSigned bool
	cmd := &cobra.Command{
		Use:   "remove ISSUER KID",
		Short: "Take a retired key out once its last token has expired; it never comes back",
		Args:  exactly(2),
		RunE: a.do(func(ctx context.Context, args []string) error {
			c, err := a.changeKey(ctx, args, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
				return f.take(a.change(f.why, f.force), func(c keystore.Change) (keystore.KeySet, error) { return s.Remove(c, id, neverSigned) })
			})
			if err != nil {
				return err
			}
			a.warnForced(f)
			a.notice("key %s is gone", c.id)
			return a.printKeys(c.is)
		}),
	}
	f.register(cmd.Flags(), "tokens that it signed are refused from then on")
	cmd.Flags().BoolVar(&neverSigned, "never-signed", false, "my word that a next key has signed nothing")
	return cmd
}
