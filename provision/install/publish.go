package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

// Publication is a key set to publish under one issuer URL.
type Publication struct {
	Name   keystore.Name // if the key set has to be made
	URL    string
	Source string // where the keys come from; for messages
	What   string // which keys they are, for the log; may be empty
	Keys   []keystore.VerificationKey
	Policy keystore.Policy
	Dev    bool
	Stored keystore.KeySet // with this issuer URL; zero if there is none

	NoStore bool // there is no key store yet: publishing makes it

	Settled bool // the cloud trusts the URL already, and the run sends no relying party there
	Copied  bool // relying parties are given a copy of the keys: nobody has to reach the URL
	Moved   bool // the keys are those of a live cluster that moves here: another key set may publish them
}

// JWKS returns the published keys, or those that are going to be.
func (p *Publication) JWKS() ([]byte, error) {
	if p.Found() {
		return issuer.RenderJWKS(p.Stored)
	}
	set, err := keystore.New(keystore.Change{At: time.Now()}, p.spec())
	if err != nil {
		return nil, err
	}
	return issuer.RenderJWKS(set)
}

// Found reports whether a key set with the issuer URL is stored.
func (p *Publication) Found() bool { return p.Stored.Name() != "" }

func (p *Publication) spec() keystore.Spec {
	u, _ := keystore.ParseIssuerURL(p.URL, p.Dev) // New refuses the zero URL
	return keystore.Spec{Name: p.Name, Issuers: []keystore.IssuerURL{u}, Keys: p.Keys, Policy: p.Policy, Dev: p.Dev}
}

// find looks for the stored key set with the issuer URL, whatever its name. Without one, the URL and the name must be free, and the keys
// no other cluster's.
func (p *Publication) find(ctx context.Context, r keystore.Reader) error {
	c, err := catalog.ReadAll(ctx, r)
	if err != nil {
		return err
	}
	if err, unread := c.Unread[p.Name]; unread {
		return fmt.Errorf("publish under the name %q: %w", p.Name, err)
	}
	if s, published := c.InUse(p.URL); published {
		p.Stored = s
		return nil
	}
	err = c.CheckFree(p.spec())
	switch {
	case err == nil:
		return p.checkOwn(c)
	case catalog.KindOf(err) == catalog.Reuse:
		return Refuse(Withdrawn, "publish %s under the name %q: %w", p.URL, p.Name, err)
	case catalog.KindOf(err) == catalog.Unread:
		return fmt.Errorf("publish %s: %w", p.URL, err)
	}
	return Refuse(Taken, "publish %s under the name %q: %w", p.URL, p.Name, err)
}

// checkOwn returns an error if another key set publishes, or has revoked, a key of p that does not move here. Subjects are unique in one
// cluster only: one cluster's tokens would be good for what trusts the other.
func (p *Publication) checkOwn(c catalog.Contents) error {
	if p.Moved {
		return nil
	}
	shared, err := c.CheckKeys(p.Name, p.Keys, false)
	if err != nil || len(shared) == 0 {
		return err
	}
	s := shared[0]
	return &Error{Problem: OthersKey, KeySet: s.In, File: p.Source, Err: fmt.Errorf("key %s of %s is in key set %q already, so that under %s its cluster "+
		"and this one could speak for each other", s.Key, p.Source, s.In, p.URL)}
}

// lookUp looks for the stored key set without making the store. Without a key set it checks that one can be made.
func (p *Publication) lookUp(ctx context.Context, store KeyStore) error {
	st, err := store.Open(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.NoStore = true
		return p.checkNew()
	case err != nil:
		return err
	}
	if err := p.find(ctx, st); err != nil || p.Found() {
		return err
	}
	return p.checkNew()
}

// sayNoStore reports, before anything else is done, that the key store is to be made: one that was mistyped would be made as well, and
// nothing that serves another store would ever publish its keys.
func (r *Run) sayNoStore(p *Publication) {
	if !p.NoStore {
		return
	}
	does := "a new one is made"
	if r.Mode == Preview {
		does = "a new one would be made"
	}
	r.Line("There is no key store at %s yet: %s", r.Store.Name, does)
}

// checkNew returns an error if no key set can be made of p. Its keys may still have to be generated.
func (p *Publication) checkNew() error {
	if err := p.Name.Check(); err != nil {
		return Refuse(BadName, "the key set is published under the installation's name: %w", err)
	}
	if len(p.Keys) == 0 {
		return nil
	}
	_, err := keystore.New(keystore.Change{At: time.Now()}, p.spec())
	return err
}

// publish stores the key set, unless it is there.
func (r *Run) publish(ctx context.Context, p *Publication) error {
	if p.Found() {
		return nil
	}
	st, err := r.Store.Create(ctx)
	if err != nil {
		return err
	}
	added, err := catalog.Add(ctx, st, p.spec(), catalog.AddOptions{Change: r.Store.Change()})
	for _, n := range added.Unread {
		r.Report(Event{Kind: UnreadKeySet, KeySet: n, Text: fmt.Sprintf("key set %q cannot be read", n)})
	}
	for _, s := range added.Shared {
		r.Warn("key %s is also in key set %q: anyone who signs with it can speak for both issuers", s.Key, s.In)
	}
	if err != nil {
		return err
	}
	p.Stored = added.KeySet
	r.Line("Key set %s%s stored in %s", p.Name, p.What, r.Store.Name)
	return nil
}

// CheckReadable returns an error if nobody can read the documents of a key set, the zero one for none: what is to fetch keys from url
// finds none there, and a run would wait for them and then give up.
func CheckReadable(s keystore.KeySet, url string) error {
	if s.Policy().Reach != keystore.ReachCopies {
		return nil
	}
	return &Error{Problem: OnlyCopies, KeySet: s.Name(), Err: fmt.Errorf("the policy of key set %q says that nobody can read its documents (reach copies), "+
		"and the keys would have to be fetched from %s", s.Name(), url)}
}

// checkKey returns an error unless the cluster may sign with its key, now or after a promotion. Tokens signed with another
// are trusted by nobody.
func (p *Publication) checkKey(s keystore.KeySet) error {
	if len(p.Keys) == 0 {
		return &Error{Problem: KeyNeeded, KeySet: s.Name(), Err: fmt.Errorf("%s is published already (key set %q), and tokens signed with a new key pair "+
			"would not be trusted", p.URL, s.Name())}
	}
	key := p.Keys[0]
	k, published := s.Key(key.ID())
	switch {
	case !published || !k.Equal(key):
		return p.notPublished(s, key)
	case k.State == keystore.Retired:
		return &Error{Problem: KeyRetired, KeySet: s.Name(), Err: fmt.Errorf("key %s of %s is retired in key set %q: nothing may sign with it", key.ID(), p.Source, s.Name())}
	}
	return nil
}

// takeStored takes the keys of the stored key set, since there is no file with one.
func (p *Publication) takeStored(file string) error {
	if !p.Found() {
		return Refuse(NoKey, "there is no key to publish: no key set has the issuer URL %s, and there is no file %s", p.URL, file)
	}
	for _, k := range p.Stored.Keys() {
		p.Keys = append(p.Keys, k.VerificationKey)
	}
	if len(p.Keys) == 0 {
		return Refuse(NoKey, "key set %q has no keys, so that no token of %s would be trusted", p.Stored.Name(), p.URL)
	}
	return nil
}

func (p *Publication) notPublished(s keystore.KeySet, k keystore.VerificationKey) error {
	for _, g := range s.Remains() {
		if g.Bars(k) {
			return &Error{Problem: KeyNotPublished, KeySet: s.Name(), File: p.Source, Err: fmt.Errorf("the key %s of %s is gone from key set %q (%s; %s at %s) and never "+
				"comes back, so that no token signed with it would be trusted", k.ID(), p.Source, s.Name(), p.URL, g.Why, g.At.UTC().Format(time.RFC3339))}
		}
	}
	return &Error{Problem: KeyNotPublished, KeySet: s.Name(), File: p.Source, Err: fmt.Errorf("key set %q (%s) does not have the key %s of %s, "+
		"so that no token signed with it would be trusted", s.Name(), p.URL, k.ID(), p.Source)}
}

// StillPublished is an issuer that nothing in the cloud trusts any more, and whose keys other accounts and clouds may still need.
type StillPublished struct {
	URL    string
	KeySet string // that publishes it, if the key store has one
	Signs  bool   // a key of KeySet is active: a cluster may sign with it
	Asked  bool   // the key store could be asked, so that an empty KeySet means that it publishes nothing
}

// StillPublished looks for the key sets of issuers in the store.
func (r *Run) StillPublished(ctx context.Context, urls []string) []StillPublished {
	var all []StillPublished
	for _, url := range urls {
		s, asked := r.publishedBy(ctx, url)
		signs := slices.ContainsFunc(s.Keys(), func(k keystore.Key) bool { return k.State == keystore.Active })
		all = append(all, StillPublished{URL: url, KeySet: string(s.Name()), Signs: signs, Asked: asked})
	}
	return all
}

// publishedBy returns the key set with an issuer URL, the zero one if there is none, and whether the store could be asked.
func (r *Run) publishedBy(ctx context.Context, url string) (s keystore.KeySet, asked bool) {
	if r.Store.Open == nil {
		return s, false
	}
	c, err := r.ReadStore(ctx)
	s, found := c.InUse(url)
	return s, found || err == nil && len(c.Unread) == 0
}

// ReadStore reads the store that was given. The error of one that is not there is [fs.ErrNotExist].
func (r *Run) ReadStore(ctx context.Context) (catalog.Contents, error) {
	st, err := r.Store.Open(ctx)
	if err != nil {
		return catalog.Contents{}, err
	}
	return catalog.ReadAll(ctx, st)
}
