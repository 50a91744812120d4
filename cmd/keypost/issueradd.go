package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

type addFlags struct {
	urls   []string
	keys   keyFlags
	policy policyFlags
	dev    bool
	reuse  bool
	force  bool
	why    string
}

func (a *app) issuerAdd() *cobra.Command {
	f := &addFlags{}
	cmd := &cobra.Command{
		Use:   "add NAME --url URL KEYS",
		Short: "Publish the keys of a cluster under an issuer URL",
		Long: "Make a key set. Its keys are active at once, as the cluster signs with them already; later ones come in with\n" +
			"keypost key add. --jwks URL takes an existing issuer over, with the key IDs that its tokens carry.\n\n" +
			"KEYS is --public-key-file FILE…, --jwks FILE|URL, or --kubeconfig FILE [--context NAME].\n\n" +
			"An issuer URL belongs to one key set. A URL is refused that another key set has, or may have: one whose document\n" +
			"cannot be read (--force --why goes on). No store can keep two people from adding one URL under two names in the\n" +
			"same second; each of them looks again afterwards and is told.",
		Example: "  keypost issuer add prod-a --url https://oidc.example.com/prod-a --public-key-file sa.pub --relying-party aws",
		Args:    exactly(1),
		RunE:    a.do(func(ctx context.Context, args []string) error { return a.addIssuer(ctx, keystore.Name(args[0]), f) }),
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&f.urls, "url", nil, "issuer URL, as in the tokens' iss (repeatable; the first is canonical)")
	f.keys.Register(fs)
	f.policy.Register(fs)
	fs.BoolVar(&f.dev, "dev", false, "a development key set: ports in URLs and short gates; only keypostd --dev serves it")
	fs.BoolVar(&f.reuse, "reuse-url", false, "give a URL of a withdrawn key set out again; its gone keys stay gone")
	fs.BoolVar(&f.force, "force", false, "add it although another key set cannot be read, which may have the URL as well (needs --why)")
	fs.StringVar(&f.why, "why", "", "the reason; it is recorded")
	return cmd
}

func (a *app) addIssuer(ctx context.Context, name keystore.Name, f *addFlags) error {
	spec, err := f.spec(name)
	if err != nil {
		return err
	}
	m, err := a.readKeys(ctx, f.keys)
	if err != nil {
		return err
	}
	spec.Keys = m.Keys
	a.compareIssuer(m, spec.Issuers[0].String())
	// Everything is tried before the store is touched, so that a mistake leaves no directory behind.
	if _, err := keystore.New(a.change(f.why, false), spec); err != nil {
		return err
	}
	st, err := a.createStore(ctx)
	if err != nil {
		return err
	}
	s, err := a.add(ctx, st, spec, catalog.AddOptions{
		Change: a.change(f.why, f.force), Permit: catalog.Permit{Reuse: f.reuse, Unread: f.force},
	})
	if err != nil {
		return err
	}
	return a.printAdded(s, f.keys.CAFile)
}

// spec checks what was typed, without the keys.
func (f *addFlags) spec(name keystore.Name) (keystore.Spec, error) {
	if err := name.Check(); err != nil {
		return keystore.Spec{}, cli.Usage(err)
	}
	if len(f.urls) == 0 {
		return keystore.Spec{}, usagef("issuer add needs --url URL")
	}
	spec := keystore.Spec{Name: name, Dev: f.dev}
	for _, raw := range f.urls {
		u, err := keystore.ParseIssuerURL(raw, f.dev)
		if err != nil {
			return keystore.Spec{}, cli.Usage(err)
		}
		spec.Issuers = append(spec.Issuers, u)
	}
	switch {
	case f.reuse && f.why == "":
		return keystore.Spec{}, usagef("--reuse-url needs --why REASON")
	case f.force && f.why == "":
		return keystore.Spec{}, usagef("--force needs --why REASON")
	}
	if err := f.keys.Check(); err != nil {
		return keystore.Spec{}, err
	}
	policy, err := f.policy.Apply(newPolicy())
	if err == nil {
		err = policy.Check(f.dev)
	}
	if err != nil {
		return keystore.Spec{}, cli.Usage(err)
	}
	spec.Policy = policy
	return spec, nil
}

func (a *app) compareIssuer(m material, url string) {
	if m.Issuer == "" || m.Issuer == url {
		return
	}
	if m.Cluster {
		a.warn("the cluster's own issuer is %s: its tokens are good for %s only once kube-apiserver has --service-account-issuer=%s as the first one", m.Issuer, url, url)
		return
	}
	a.warn("the keys are those of the issuer %s; its tokens are not good for %s", m.Issuer, url)
}

// add stores a new key set, or reopens a withdrawn one of the same name, and warns of what is unusual about it.
func (a *app) add(ctx context.Context, st *keystore.Store, spec keystore.Spec, o catalog.AddOptions) (keystore.KeySet, error) {
	added, err := catalog.Add(ctx, st, spec, o)
	for _, n := range added.Unread {
		a.warn("key set %q cannot be read; keypost issuer list says why", n)
	}
	for _, s := range added.Shared {
		a.warn("key %s is also in key set %q: whoever signs with it can speak for both issuers", s.Key, s.In)
	}
	return added.KeySet, err
}

func (a *app) printAdded(s keystore.KeySet, caFile string) error {
	v := view.Of(s, time.Now())
	err := a.print(v, func(w *tabwriter.Writer) {
		row(w, "added "+string(v.Name), strings.Join(v.Issuers, " "), fmt.Sprintf("generation %d", v.Generation))
		row(w)
		view.KeyRows(w, v.Keys)
	})
	if err != nil {
		return err
	}
	a.warnPolicy(s.Policy())
	first := v.Issuers[0]
	look := command{"verify", string(v.Name)} // by its name, so that it is compared with the store
	if v.Dev {
		look = append(look, "--dev")
	}
	switch {
	case caFile != "":
		look = append(look, "--ca-file", caFile)
	case v.Dev: // its certificate is of an authority of its own
		look = append(look, "--ca-file", "DIR/ca.pem")
	}
	a.notice("next:")
	a.notice("  %s", look)
	a.notice("  kube-apiserver --service-account-issuer=%s --service-account-jwks-uri=%s%s", first, first, issuer.JWKSPath)
	a.notice("where it runs already, keep its present issuer as a second --service-account-issuer, and let --api-audiences list both or leave it out, or each running pod gets 401")
	return nil
}
