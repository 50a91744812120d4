package issuercmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

type addOptions struct {
	*cli.Factory
	urls   []string
	keys   keysource.Flags
	policy view.PolicyFlags
	dev    bool
	reuse  bool
	force  bool
	why    string
}

func newAdd(f *cli.Factory) *cobra.Command {
	o := &addOptions{Factory: f}
	cmd := f.Command("add NAME --url URL KEYS", "Publish the keys of a cluster under an issuer URL", cobra.ExactArgs(1), o.run)
	cmd.Long = "Make a key set. Its keys are active at once, as the cluster signs with them already; later ones come in with\n" +
		"keypost key add. --jwks URL takes an existing issuer over, with the key IDs that its tokens carry.\n\n" +
		"KEYS is --public-key-file FILE…, --jwks FILE|URL, or --kubeconfig FILE [--context NAME].\n\n" +
		"An issuer URL belongs to one key set: a URL is refused that another key set has. A key set that cannot be read is\n" +
		"named; if it has the URL, keypostd goes on with the one that it serves. A key is refused that another key set had and revoked, and one\n" +
		"whose tokens a declared relying party does not take (Entra takes RS256, Google RS256 and ES256). No store can keep two\n" +
		"people from adding one URL under two names in the same second; each of them checks again afterwards and reports it."
	cmd.Example = "  keypost issuer add prod-a --url https://oidc.example.com/prod-a --public-key-file sa.pub --relying-party aws"
	fs := cmd.Flags()
	fs.StringArrayVar(&o.urls, "url", nil, "issuer URL, as in the tokens' iss (repeatable; the first is canonical)")
	o.keys.Register(fs)
	o.policy.Register(fs)
	fs.BoolVar(&o.dev, "dev", false, "a development key set: ports in URLs and short gates; only keypostd --dev serves it")
	fs.BoolVar(&o.reuse, "reuse-url", false, "give a URL of a withdrawn key set out again; its gone keys stay gone")
	fs.BoolVar(&o.force, "force", false, "add it although another key set has revoked one of the keys, a declared relying party refuses their tokens, or a file is a certificate (needs --why)")
	fs.StringVar(&o.why, "why", "", "the reason; it is recorded")
	return cmd
}

func (o *addOptions) run(ctx context.Context, args []string) error {
	f := o.Factory
	spec, err := o.spec(keystore.Name(args[0]))
	if err != nil {
		return err
	}
	o.keys.Certificates = o.force
	m, err := o.keys.Read(ctx, f)
	if err != nil {
		return err
	}
	spec.Keys = m.Keys
	if err := f.CheckTaken(spec.Policy, o.force, spec.Keys...); err != nil {
		return err
	}
	compareIssuer(f, m, spec.Issuers[0].String())
	// Everything is tried before the store is touched, so that a mistake leaves no directory behind.
	s, err := keystore.New(f.Change(o.why, false), spec)
	if err != nil {
		return err
	}
	if err := o.prices(s, spec); err != nil {
		return err
	}
	st, err := f.CreateStore(ctx)
	if err != nil {
		return err
	}
	added, err := catalog.Add(ctx, st, spec, catalog.AddOptions{
		Change: f.Change(o.why, o.force), Reuse: o.reuse, Revoked: o.force,
	})
	f.WarnOthers(added.Unread, added.Shared)
	if err != nil {
		return err
	}
	return o.print(added.KeySet)
}

// prices has anyone who declares a CDN decide for how long that answers while keypostd is down: a new key waits as long.
func (o *addOptions) prices(s keystore.KeySet, spec keystore.Spec) error {
	if o.dev || spec.Policy.EdgeHold == nil {
		return nil
	}
	o.Notice("%s", view.Prices(s))
	if !o.policy.PricesUnsaid() {
		return nil
	}
	spec.Policy.StaleIfError = keystore.DurationPtr(keystore.DefaultCache().StaleIfError)
	if longer, err := keystore.New(o.Change("", false), spec); err == nil {
		o.Notice("%s", view.Prices(longer))
	}
	return cli.Usagef("with --edge-hold give --stale-if-error as well, such as 0s or 24h: the prices are above")
}

// spec checks what was typed, without the keys.
func (o *addOptions) spec(name keystore.Name) (keystore.Spec, error) {
	if err := name.Check(); err != nil {
		return keystore.Spec{}, cli.Usage(err)
	}
	spec := keystore.Spec{Name: name, Dev: o.dev}
	for _, raw := range o.urls {
		u, err := keystore.ParseIssuerURL(raw, o.dev)
		if err != nil {
			return keystore.Spec{}, cli.Usage(err)
		}
		spec.Issuers = append(spec.Issuers, u)
	}
	if o.reuse && o.why == "" {
		return keystore.Spec{}, cli.Usagef("--reuse-url needs --why REASON")
	}
	if err := o.keys.Check(); err != nil {
		return keystore.Spec{}, err
	}
	policy, err := o.policy.Apply(view.NewPolicy(o.dev))
	if err == nil {
		err = policy.Check(o.dev)
	}
	if err != nil {
		return keystore.Spec{}, cli.Usage(err)
	}
	spec.Policy = policy
	return spec, nil
}

// compareIssuer warns when keys are taken from another issuer than the one that they are published for.
func compareIssuer(f *cli.Factory, m keysource.Material, url string) {
	if m.Issuer == "" || m.Issuer == url {
		return
	}
	if m.Cluster {
		f.Warn("the cluster's own issuer is %s: its tokens are good for %s only once kube-apiserver has --service-account-issuer=%s as the first one", m.Issuer, url, url)
		return
	}
	f.Warn("the keys are those of the issuer %s; its tokens are not good for %s", m.Issuer, url)
}

func (o *addOptions) print(s keystore.KeySet) error {
	f := o.Factory
	urls, name := view.URLs(s), s.Name()
	if err := view.PrintChanged(f, s, "added "+string(name), strings.Join(urls, " "), fmt.Sprintf("generation %d", s.Generation())); err != nil {
		return err
	}
	view.Warn(f, s.Policy())
	ca := ""
	if s.Dev() { // its certificate comes from an authority of its own
		ca = devCA(f.Store)
	}
	f.Notice("next:")
	look := fmt.Sprintf("once keypostd serves it, look: %s", f.Line(cli.Verify(name, s.Dev(), ca)))
	if cli.Syncs(s) {
		look = fmt.Sprintf("upload its keys: %s; %s", f.Line(cli.SyncCommand(name)), look)
	}
	f.Notice("  1. %s", look)
	f.Notice("  2. give each kube-apiserver these flags: %s", cli.Paste(fmt.Sprintf("kube-apiserver --service-account-issuer=%s --service-account-jwks-uri=%s%s", urls[0], urls[0], issuer.JWKSPath)))
	f.Notice("     a cluster that runs already keeps its present issuer as a second --service-account-issuer; list both in --api-audiences, or leave that flag out. Otherwise each running pod gets 401")
	return nil
}

// devCA returns the file with the authority of a keypostd --dev that serves the store: it is beside the key sets.
func devCA(store string) string {
	if u, err := cli.ParseStore(store); err == nil && u.Dir != "" {
		ca := filepath.Join(filepath.Dir(filepath.Clean(u.Dir)), "ca.pem")
		if _, err := os.Stat(ca); err == nil {
			return ca
		}
	}
	return "DIR/ca.pem"
}
