package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

// publication is a key set to publish under one issuer URL.
type publication struct {
	name   keystore.Name // if the key set has to be made
	url    string
	source string // where the keys come from; for messages
	what   string // which keys they are, for the log; may be empty
	keys   []keystore.VerificationKey
	policy keystore.Policy
	dev    bool
	stored keystore.KeySet // with this issuer URL; zero if there is none
}

func (p *publication) found() bool { return p.stored.Name() != "" }

func (p *publication) spec() keystore.Spec {
	u, _ := keystore.ParseIssuerURL(p.url, p.dev) // New refuses the zero URL
	return keystore.Spec{Name: p.name, Issuers: []keystore.IssuerURL{u}, Keys: p.keys, Policy: p.policy, Dev: p.dev}
}

// find looks for the stored key set with the issuer URL, whatever its name. Without one, the URL and the name must be free.
func (p *publication) find(ctx context.Context, r keystore.Reader) error {
	c, err := catalog.ReadAll(ctx, r)
	if err != nil {
		return err
	}
	if err, unread := c.Unread[p.name]; unread {
		return fmt.Errorf("publish under the name %q: %w", p.name, err)
	}
	if s, published := c.InUse(p.url); published {
		p.stored = s
		return nil
	}
	err = c.CheckFree(p.spec())
	unread, isUnread := errors.AsType[*catalog.UnreadError](err)
	switch {
	case err == nil:
		return nil
	case isUnread && unread.HasURL:
		return fmt.Errorf("publish %s: %w", p.url, err)
	case isUnread:
		return problem(PerhapsTaken, "publish %s: %w", p.url, err)
	}
	return problem(Taken, "publish %s under the name %q: %w", p.url, p.name, err)
}

// lookUp looks for the stored key set without making the store. Without a key set it checks that one can be made.
func (p *publication) lookUp(ctx context.Context, store KeyStore) error {
	st, err := store.Open(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p.checkNew()
	case err != nil:
		return err
	}
	if err := p.find(ctx, st); err != nil || p.found() {
		return err
	}
	return p.checkNew()
}

// checkNew returns an error if no key set can be made of p. Its keys may still have to be generated.
func (p *publication) checkNew() error {
	if err := p.name.Check(); err != nil {
		return problem(BadName, "the key set is published under the installation's name: %w", err)
	}
	if len(p.keys) == 0 {
		return nil
	}
	_, err := keystore.New(keystore.Change{At: time.Now()}, p.spec())
	return err
}

// publish stores the key set, unless it is there and passes the check.
func (r *run) publish(ctx context.Context, p *publication, check func(keystore.KeySet) error) error {
	st, err := r.store.Create(ctx)
	if err != nil {
		return err
	}
	if err := p.find(ctx, st); err != nil {
		return err
	}
	if p.found() {
		return check(p.stored)
	}
	added, err := catalog.Add(ctx, st, p.spec(), catalog.AddOptions{Change: keystore.Change{At: time.Now(), By: r.store.By}})
	for _, n := range added.Unread {
		r.report(Event{Kind: UnreadKeySet, KeySet: n, Text: fmt.Sprintf("key set %q cannot be read", n)})
	}
	for _, s := range added.Shared {
		r.warn("key %s is also in key set %q: whoever signs with it can speak for both issuers", s.Key, s.In)
	}
	if err != nil {
		return err
	}
	p.stored = added.KeySet
	r.line("Key set %s%s stored in %s", p.name, p.what, r.store.Name)
	return nil
}

// checkKey returns an error unless the cluster may sign with its key, now or after a promotion. Tokens signed with another
// are trusted by nobody.
func (p *publication) checkKey(s keystore.KeySet) error {
	if len(p.keys) == 0 {
		return problem(KeyNeeded, "%s is published already (key set %q), and tokens signed with a new key pair would not be trusted",
			p.url, s.Name())
	}
	key := p.keys[0]
	k, published := s.Key(key.ID())
	switch {
	case !published || !k.Equal(key):
		return p.notPublished(s, key.ID())
	case k.State == keystore.Retired:
		return problem(KeyRetired, "key %s of %s is retired in key set %q: nothing may sign with it", key.ID(), p.source, s.Name())
	}
	return nil
}

func (p *publication) notPublished(s keystore.KeySet, id keystore.KeyID) error {
	return &Error{Problem: KeyNotPublished, KeySet: s.Name(), File: p.source, Err: fmt.Errorf("key set %q (%s) does not have the key %s of %s, "+
		"so that no token signed with it would be trusted", s.Name(), p.url, id, p.source)}
}
