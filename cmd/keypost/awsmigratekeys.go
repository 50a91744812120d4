package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/plan"
)

// wish is that all keys of an old issuer be published under a new one, with the key IDs that tokens carry.
type wish struct {
	publication // of the first key
	old         string
	keys        []keystore.VerificationKey

	set keystore.KeySet // what is published under the new URL already
	is  bool            // something is
}

func (m *migration) wish(ctx context.Context) (*wish, error) {
	source := m.f.jwks
	if source == "" {
		source = m.f.from
	}
	found, err := m.readKeys(ctx, keyFlags{JWKS: source})
	if err != nil {
		return nil, withHint(fmt.Errorf("read the keys of %s: %w", m.f.from, err),
			"where it cannot be reached from here, give a copy of its JWKS: --jwks FILE")
	}
	p, err := m.f.publication(source, found.Keys[0])
	if err != nil {
		return nil, err
	}
	w := &wish{publication: p, old: m.f.from, keys: found.Keys}
	if m.f.tokenLifetime > 0 {
		w.policy.TokenLifetime = keystore.DurationPtr(m.f.tokenLifetime)
	}
	if m.f.cluster.Kubeconfig != "" {
		if err := m.askCluster(ctx, w); err != nil {
			return nil, err
		}
	}
	return w, m.findInStore(ctx, w)
}

func (w *wish) spec() keystore.Spec {
	spec := w.publication.spec()
	spec.Keys = w.keys
	return spec
}

// askCluster holds the keys against the cluster's, and takes from its pods how long tokens live. What a cluster does
// not sign with must not stand in for it, and what it does must not be missing.
func (m *migration) askCluster(ctx context.Context, w *wish) error {
	signers, err := cluster.Signers(ctx, m.f.cluster, m.f.clientIDs[0])
	if err != nil {
		return err
	}
	if err := w.checkSigners(signers); err != nil {
		return err
	}
	_, known, err := cluster.PublicKeys(ctx, m.f.cluster.Kubeconfig, m.f.cluster.Context)
	if err != nil {
		return err
	}
	for _, k := range w.keys {
		if !slices.ContainsFunc(known, k.Equal) {
			m.warn("%s publishes the key %s, which the cluster does not know: whoever holds it can speak for the cluster, "+
				"also under %s; %s ends that", w.old, k.ID(), w.url,
				command{"key", "revoke", string(w.name), string(k.ID()), "--why", "REASON"})
		}
	}
	measured, err := cluster.TokenLifetime(ctx, m.f.cluster, m.f.clientIDs)
	if err != nil {
		return err
	}
	if p := &w.policy; measured.Longest > 0 && (p.TokenLifetime == nil || keystore.Duration(measured.Longest) > *p.TokenLifetime) {
		p.TokenLifetime = keystore.DurationPtr(measured.Longest)
	}
	return nil
}

func (w *wish) checkSigners(signers []cluster.Signer) error {
	for _, s := range signers {
		switch {
		case s.Issuer != w.old && s.Issuer != w.url:
			return withHint(fmt.Errorf("the kube-apiserver at %s signs as %s, which is neither %s nor %s", s.Address, s.Issuer, w.old, w.url),
				"is this the right cluster? See --kubeconfig and --context")
		case !slices.ContainsFunc(w.keys, func(k keystore.VerificationKey) bool { return k.ID() == s.KeyID }):
			return fmt.Errorf("the kube-apiserver at %s signs with the key %s, which %s does not publish: its tokens are trusted nowhere",
				s.Address, s.KeyID, w.old)
		}
	}
	return nil
}

// findInStore finds out what of it is there, without making the store's directory.
func (m *migration) findInStore(ctx context.Context, w *wish) error {
	if err := w.checkNew(); err != nil {
		return err
	}
	st, err := m.openStore(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if w.set, w.is, err = w.find(ctx, st); err != nil || !w.is {
		return err
	}
	return w.checkKeys(w.set)
}

// checkNew tells whether a key set can be made of it.
func (w *wish) checkNew() error {
	if err := w.publication.checkNew(); err != nil {
		return err
	}
	_, err := keystore.New(keystore.Change{At: time.Now()}, w.spec())
	return err
}

func (w *wish) checkKeys(s keystore.KeySet) error {
	for _, k := range w.keys {
		had, is := s.Key(k.ID())
		switch {
		case is && had.Equal(k):
		case is:
			return fmt.Errorf("key set %q (%s) has another key under the key ID %s than %s has", s.Name(), w.url, k.ID(), w.old)
		default:
			return withHint(
				fmt.Errorf("key set %q (%s) does not have the key %s of %s, so that no token signed with it would be trusted",
					s.Name(), w.url, k.ID(), w.old),
				"%s, if the cluster signs with it", command{"key", "add", string(s.Name()), "--jwks", w.old})
		}
	}
	return nil
}

// changes are those that publishing makes, for --diff.
func (w *wish) changes() []plan.Change {
	if w.is {
		return nil
	}
	var lines []string
	for _, k := range w.keys {
		lines = append(lines, "+ key "+string(k.ID()))
	}
	return []plan.Change{{Verb: plan.Create, Thing: "key set", Name: string(w.name) + " (" + w.url + ")", Diff: lines}}
}

// publishMoved stores the key set unless it is there, and returns when no relying party can find it without a key.
func (m *migration) publishMoved(ctx context.Context, w *wish) error {
	if !w.is {
		st, err := m.createStore(ctx)
		if err != nil {
			return err
		}
		if w.set, err = m.add(ctx, st, w.spec(), catalog.AddOptions{Change: m.change("", false)}); err != nil {
			return err
		}
		m.journal.printf("Key set %s with %s of %s stored in %s", w.name, plural(len(w.keys), "key", "keys"), w.old, m.Store)
	}
	t, err := m.f.site()
	if err != nil {
		return err
	}
	for _, k := range w.keys {
		if err := t.awaitServed(ctx, m.journal, w.set, k); err != nil {
			return err
		}
	}
	return nil
}
