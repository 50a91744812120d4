package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
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
	f.keys.register(fs)
	f.policy.register(fs)
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
	spec.Keys = m.keys
	a.compareIssuer(m, spec.Issuers[0])
	// Everything is tried before the store is touched, so that a mistake leaves no directory behind.
	if _, err := keystore.New(a.change(f.why, false), spec); err != nil {
		return err
	}
	st, err := a.createStore(ctx)
	if err != nil {
		return err
	}
	s, err := a.storeNew(ctx, st, spec, f)
	if err != nil {
		return err
	}
	return a.printAdded(s, f.keys.caFile)
}

// spec checks what was typed, without the keys.
func (f *addFlags) spec(name keystore.Name) (keystore.Spec, error) {
	if err := name.Check(); err != nil {
		return keystore.Spec{}, &usageError{err}
	}
	if len(f.urls) == 0 {
		return keystore.Spec{}, usagef("issuer add needs --url URL")
	}
	for _, u := range f.urls {
		if _, err := keystore.ParseIssuerURL(u, f.dev); err != nil {
			return keystore.Spec{}, &usageError{err}
		}
	}
	switch {
	case f.reuse && f.why == "":
		return keystore.Spec{}, usagef("--reuse-url needs --why REASON")
	case f.force && f.why == "":
		return keystore.Spec{}, usagef("--force needs --why REASON")
	}
	if err := f.keys.check(); err != nil {
		return keystore.Spec{}, err
	}
	policy, err := f.policy.apply(newPolicy())
	if err == nil {
		err = policy.Check(f.dev)
	}
	if err != nil {
		return keystore.Spec{}, &usageError{err}
	}
	return keystore.Spec{Name: name, Issuers: f.urls, Policy: policy, Dev: f.dev}, nil
}

func (a *app) compareIssuer(m material, url string) {
	if m.issuer == "" || m.issuer == url {
		return
	}
	if m.cluster {
		a.warn("the cluster's own issuer is %s: its tokens are good for %s only once kube-apiserver has --service-account-issuer=%s as the first one", m.issuer, url, url)
		return
	}
	a.warn("the keys are those of the issuer %s; its tokens are not good for %s", m.issuer, url)
}

// storeNew creates the key set, or reopens a withdrawn one of the same name.
func (a *app) storeNew(ctx context.Context, st *keystore.Store, spec keystore.Spec, f *addFlags) (keystore.KeySet, error) {
	was, err := readAll(ctx, st, nil)
	if err != nil {
		return keystore.KeySet{}, err
	}
	if err, is := was.broken[spec.Name]; is {
		return keystore.KeySet{}, fmt.Errorf("add key set %q: it exists already, and %w", spec.Name, err)
	}
	c := claimsOn(was.sets, spec)
	if err := c.check(spec, f.reuse); err != nil {
		return keystore.KeySet{}, err
	}
	if err := checkUnread(was.broken, spec.Issuers, f.force); err != nil {
		return keystore.KeySet{}, err
	}
	for n := range was.broken {
		a.warn("key set %q cannot be read; keypost issuer list says why", n)
	}
	a.warnSharedKeys(was.sets, spec)
	s, err := a.write(ctx, st, spec, c, f)
	if err != nil {
		return s, err
	}
	return s, checkAlone(ctx, st, was.revisions, s)
}

func (a *app) write(ctx context.Context, st *keystore.Store, spec keystore.Spec, c claims, f *addFlags) (keystore.KeySet, error) {
	if c.same != nil {
		return keystore.Update(ctx, st, spec.Name, func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Reopen(a.change(f.why, f.force), spec)
		})
	}
	spec.Gone = c.gone()
	s, err := keystore.New(a.change(f.why, f.force), spec)
	if err != nil {
		return s, err
	}
	return s, keystore.Create(ctx, st, s)
}

// claims are the stored key sets that have, or had, the name or a URL of a new one.
type claims struct {
	same      *keystore.KeySet // of the same name
	live      []keystore.KeySet
	withdrawn []keystore.KeySet
}

func claimsOn(sets []keystore.KeySet, spec keystore.Spec) claims {
	var c claims
	for _, s := range sets {
		switch {
		case s.Name() == spec.Name:
			c.same = &s
		case !overlaps(s.Issuers(), spec.Issuers):
		case s.Withdrawn():
			c.withdrawn = append(c.withdrawn, s)
		default:
			c.live = append(c.live, s)
		}
	}
	return c
}

// overlaps compares what requests are looked up by, host and path, not the strings.
func overlaps(has []keystore.IssuerURL, urls []string) bool {
	for _, raw := range urls {
		u, err := keystore.ParseIssuerURL(raw, true)
		if err == nil && slices.ContainsFunc(has, u.Overlaps) {
			return true
		}
	}
	return false
}

func (c claims) check(spec keystore.Spec, reuse bool) error {
	if len(c.live) > 0 {
		return withHint(fmt.Errorf("key set %q has that issuer URL already", c.live[0].Name()), "%s adds keys to it", command{"key", "add", string(c.live[0].Name())})
	}
	if c.same != nil && !c.same.Withdrawn() {
		return withHint(fmt.Errorf("key set %q exists already (%s)", spec.Name, strings.Join(urls(*c.same), ", ")), "%s adds keys to it", command{"key", "add", string(spec.Name)})
	}
	if c.same != nil {
		for _, u := range urls(*c.same) {
			if !slices.Contains(spec.Issuers, u) {
				return withHint(fmt.Errorf("the name %q belongs to a withdrawn key set with the issuer URL %s, which must stay on record", spec.Name, u), "choose another name")
			}
		}
	}
	if c.same != nil && len(c.withdrawn) > 0 {
		return withHint(fmt.Errorf("both %q and %q had such a URL before they were withdrawn", spec.Name, c.withdrawn[0].Name()), "choose another name")
	}
	if (c.same != nil || len(c.withdrawn) > 0) && !reuse {
		return withHint(errors.New("the issuer URL belonged to a key set that was withdrawn; relying parties may still trust what it stood for"), "to give it out again nevertheless, add --reuse-url --why REASON")
	}
	return nil
}

// gone is what may never come back under a URL that is given out again.
func (c claims) gone() []keystore.Gone {
	var lines []keystore.Gone
	for _, s := range c.withdrawn {
		lines = append(lines, s.Remains()...)
	}
	return lines
}

// warnSharedKeys: subjects are unique in one cluster only, so two issuers with one key can speak for each other.
func (a *app) warnSharedKeys(sets []keystore.KeySet, spec keystore.Spec) {
	given := map[keystore.Fingerprint]bool{}
	for _, k := range spec.Keys {
		given[k.Fingerprint()] = true
	}
	for _, s := range sets {
		for _, k := range s.Keys() {
			if given[k.Fingerprint()] && s.Name() != spec.Name && !s.Withdrawn() {
				a.warn("key %s is also in key set %q: whoever signs with it can speak for both issuers", k.ID(), s.Name())
			}
		}
	}
}

func (a *app) printAdded(s keystore.KeySet, caFile string) error {
	v := viewOf(s, time.Now())
	err := a.print(v, func(w *tabwriter.Writer) {
		row(w, "added "+string(v.Name), strings.Join(v.Issuers, " "), fmt.Sprintf("generation %d", v.Generation))
		row(w)
		keyRows(w, v.Keys)
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
