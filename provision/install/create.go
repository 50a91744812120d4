package install

import (
	"context"
	"fmt"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/plan"
)

// Cloud is an account, a project or a subscription in which an installation is made. Its methods are called one after
// another. Those that are given a context may make calls of the cloud, and only Identify is called before any other of
// these; none of them changes anything. An error ends the run, and is returned as it is.
type Cloud interface {
	// Check returns an error if what is wanted breaks a rule of the cloud's: for names, lengths, the issuer URL, the
	// cluster's key (zero if it is still to be generated). It is called first, and again for each other key that is
	// published under the issuer URL already and not retired.
	Check(key keystore.VerificationKey) error

	// Identify finds out whose the credentials are, and reports it with [Run.Place]. It refuses what is not meant. It may complete
	// the run's Policy, which a new key set gets, with what is known only then.
	Identify(ctx context.Context) error

	// Plan reads what is there and returns what leads to what is wanted: what trusts the issuer first, then the identities,
	// since one that trusts nothing works for nobody. It is called again if time has passed since; only its last plan is
	// applied.
	Plan(ctx context.Context) (plan.Plan, error)

	// DryRun returns the files with which people make the same by the cloud's own command line: those of the issuer, and
	// those of the identities with their Secrets. It is called without Identify.
	DryRun(d Documents) (issuer, identities []ccoctl.File)

	// Secrets returns the manifests from which the cluster's components learn their identities, once these are made.
	Secrets() []ccoctl.File
}

// CreateOptions say which installation to make.
type CreateOptions struct {
	PublicKey  *PublicKey // the cluster's; nil for the key pair in Dir, generated if need be
	Stored     bool       // without PublicKey: the keys of the key set that has the issuer URL; there must be one
	Identities bool       // it has identities; without them, what trusts the issuer is all that is made, and no signing key is handed over
	Notes      []string   // lines of the log, for after the account's: what of the input was left out
	Parallel   int        // changes made at once, at most

	// Copy is given the JWKS that is published, or is going to be, before each Plan; it is not called while the key pair is still to
	// be generated. stored is the key set as it is stored, zero while it is not. Plan then gives the relying party a copy of it, and
	// nobody waits until the issuer URL serves it. Nil where the relying party fetches the keys.
	Copy func(stored keystore.KeySet, jwks []byte)

	// TrustPlanned says that what trusts the issuer URL is in the plan. A run that finds nothing to change then sends no relying
	// party to the URL that was not sent there before: it sees that the keys are served, and does not wait again.
	TrustPlanned bool
}

// Created is an installation.
type Created struct {
	Preview    *plan.Preview // with mode Preview; everything else is zero then
	KeySet     keystore.KeySet
	PrivateKey string // path; empty if the cluster's private key is elsewhere
	Same       bool   // everything was there already, as it should be
}

// Title begins the last line of a run's log.
func (c Created) Title() string {
	if c.Same {
		return "Already there for"
	}
	return "Made for"
}

// Create makes or reuses the cluster's key pair, publishes its public half under the issuer URL, waits until relying
// parties find it there, makes in the cloud what trusts it, and writes what an installer takes. What is there already is
// compared and brought up to date.
func (r *Run) Create(ctx context.Context, o CreateOptions, cloud Cloud) (Created, error) {
	c := &creation{Run: r, o: o, cloud: cloud}
	if err := c.check(ctx); err != nil {
		return Created{}, err
	}
	if r.Mode == DryRun {
		c.Lines(o.Notes)
		return Created{PrivateKey: c.keys.private}, c.dryRun()
	}
	err := cloud.Identify(ctx)
	c.Lines(o.Notes) // what was left out may be why it refuses
	if err != nil {
		return Created{}, err
	}
	c.set.Policy = r.Policy
	if err := c.copyKeys(); err != nil {
		return Created{}, err
	}
	if r.Mode == Preview {
		p, err := cloud.Plan(ctx)
		if err != nil {
			return Created{}, err
		}
		v := p.Preview().After(c.localChanges()...)
		return Created{Preview: &v}, nil
	}
	p, err := c.foresee(ctx)
	if err != nil {
		return Created{}, err
	}
	if !c.o.Stored {
		if err := c.completeKeyPair(&c.keys); err != nil {
			return Created{}, err
		}
		c.set.Keys = []keystore.VerificationKey{c.keys.key}
	}
	fresh := !c.set.Found()
	if err := c.publishKey(ctx); err != nil {
		return Created{}, err
	}
	if err := c.copyKeys(); err != nil {
		return Created{}, err
	}
	if !c.set.Settled {
		if p, err = cloud.Plan(ctx); err != nil {
			return Created{}, err
		}
	}
	if err := c.Apply(ctx, p, o.Parallel); err != nil {
		return Created{}, err
	}
	return Created{KeySet: c.set.Stored, PrivateKey: c.keys.private, Same: !fresh && p.Empty()}, c.handOver()
}

// Identities are those of a release, with what names them in the cluster.
type Identities struct {
	Preview *plan.Preview // with mode Preview; Secrets is empty then
	Secrets []Secret
}

// CreateIdentities makes the identities that a release's CredentialsRequests ask for, for the issuer of a cluster, which the cloud trusts
// already or is told to, and the Secrets that name them. Existing ones are compared and brought up to date. An empty issuerURL is not known.
func (r *Run) CreateIdentities(ctx context.Context, o CreateOptions, cloud Cloud, issuerURL string) (made Identities, err error) {
	if err := cloud.Check(keystore.VerificationKey{}); err != nil {
		return made, err
	}
	if err := r.CheckDir(issuerURL); err != nil {
		return made, err
	}
	if r.Mode == DryRun {
		r.Lines(o.Notes)
		_, files := cloud.DryRun(Documents{})
		return made, r.WriteFiles(files...)
	}
	err = cloud.Identify(ctx)
	r.Lines(o.Notes) // what was left out may be why it refuses
	if err != nil {
		return made, err
	}
	p, err := cloud.Plan(ctx)
	if err != nil {
		return made, err
	}
	if made.Preview, err = r.CarryOut(ctx, p, o.Parallel); err != nil || made.Preview != nil {
		return made, err
	}
	files := cloud.Secrets()
	for _, f := range files {
		if f.Namespace != "" {
			made.Secrets = append(made.Secrets, r.secret(f))
		}
	}
	return made, r.WriteFiles(files...)
}

// foresee asks the cloud, before anything is published and the wait for that, what it has of the installation. What it plans is
// good for the rest of the run only if the publication is settled.
func (c *creation) foresee(ctx context.Context) (p plan.Plan, err error) {
	if !c.set.Found() || c.o.TrustPlanned { // would the cloud refuse the rest?
		p, err = c.cloud.Plan(ctx)
		c.set.Settled = err == nil && c.set.Found() && p.Empty()
	}
	return p, err
}

// creation is one run of [Run.Create].
type creation struct {
	*Run
	o     CreateOptions
	cloud Cloud
	keys  keyPair
	site  site
	set   Publication
}

// check reads what is on this machine and in the store, and checks all of it before the first call and the first write.
func (c *creation) check(ctx context.Context) error {
	err := c.CheckDir(c.IssuerURL)
	if err != nil {
		return err
	}
	switch k := c.o.PublicKey; {
	case k != nil:
		c.keys = keyPair{public: k.File, key: k.Key, complete: true}
	case !c.o.Stored:
		if c.keys, err = findKeyPair(c.Dir); err != nil {
			return err
		}
	}
	if err := c.cloud.Check(c.keys.key); err != nil || c.Mode == DryRun {
		return err
	}
	if c.site, err = newSite(c.Site, c.IssuerURL); err != nil {
		return err
	}
	c.set = Publication{Name: keystore.Name(c.Name), URL: c.IssuerURL, Source: c.keys.public, Policy: c.Policy, Dev: c.Dev}
	if !c.keys.missing() {
		c.set.Keys = []keystore.VerificationKey{c.keys.key}
	}
	if err := c.set.lookUp(ctx, c.Store); err != nil {
		return err
	}
	if !c.o.Stored {
		c.sayNoStore(&c.set)
	}
	if c.o.Copy == nil {
		if err := CheckReadable(c.set.Stored, c.set.URL); err != nil {
			return err
		}
	}
	if err := c.checkStored(); err != nil {
		return err
	}
	if c.o.Stored {
		return c.set.takeStored(path(c.Dir, ccoctl.PublicKeyName))
	}
	if !c.set.Found() {
		return nil
	}
	if c.Mode == Preview && c.keys.missing() {
		return nil // the pair is kept elsewhere
	}
	return c.set.checkKey(c.set.Stored)
}

// checkStored has the cloud check the keys that are published already, by any of which the cluster may sign.
func (c *creation) checkStored() error {
	for _, k := range c.set.Stored.Keys() {
		if k.State == keystore.Retired || k.ID() == c.keys.key.ID() {
			continue
		}
		if err := c.cloud.Check(k.VerificationKey); err != nil {
			return err
		}
	}
	return nil
}

// dryRun writes what Create would make in the cloud, for its own command line. As with ccoctl the key pair is real, and stays.
func (c *creation) dryRun() error {
	if err := c.completeKeyPair(&c.keys); err != nil {
		return err
	}
	d, err := c.documents(c.keys.key)
	if err != nil {
		return err
	}
	issuer, identities := c.cloud.DryRun(d)
	if err := c.WriteFiles(issuer...); err != nil {
		return err
	}
	if err := c.writeAuthentication(); err != nil || !c.o.Identities {
		return err
	}
	if err := c.WriteFiles(identities...); err != nil {
		return err
	}
	return c.installSigningKey(c.keys)
}

// localChanges are those that Create makes before it changes anything in the cloud.
func (c *creation) localChanges() []plan.Change {
	if c.set.Found() {
		return nil
	}
	var changes []plan.Change
	if c.keys.missing() {
		changes = append(changes, plan.Change{Verb: plan.Create, Thing: "key pair", Name: c.keys.private})
	}
	return append(changes, plan.Change{Verb: plan.Create, Thing: "key set", Name: c.Name, Diff: []string{"+ " + c.IssuerURL}})
}

// publishKey stores the key set and waits until relying parties find it.
func (c *creation) publishKey(ctx context.Context) error {
	if !c.o.Stored {
		if err := c.publish(ctx, &c.set); err != nil {
			return err
		}
	}
	set := c.set.Stored
	if k, _ := set.Key(c.keys.key.ID()); k.State == keystore.Next {
		c.Report(Event{Kind: KeyIsNext, KeySet: set.Name(), Key: k.ID(),
			Text: fmt.Sprintf("key %s is next in key set %q: the cluster may sign with it only once it is active", k.ID(), set.Name())})
	}
	if c.o.Copy != nil {
		return nil
	}
	return c.awaitServed(ctx, c.site, &c.set)
}

// copyKeys hands out the JWKS of the key set as it is stored, or as it is going to be.
func (c *creation) copyKeys() error {
	if c.o.Copy == nil || !c.set.Found() && c.keys.missing() {
		return nil
	}
	jwks, err := c.set.JWKS()
	if err == nil {
		c.o.Copy(c.set.Stored, jwks)
	}
	return err
}

// handOver writes what the installer takes.
func (c *creation) handOver() error {
	if c.o.Identities {
		if err := c.WriteFiles(c.cloud.Secrets()...); err != nil {
			return err
		}
	}
	if err := c.writeAuthentication(); err != nil || !c.o.Identities {
		return err
	}
	return c.installSigningKey(c.keys)
}
