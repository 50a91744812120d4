package install

import (
	"context"
	"fmt"
	"slices"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/plan"
)

// movedKeys is the key set to publish under the new issuer URL: the old issuer's keys with their key IDs.
type movedKeys struct {
	publication
	old    string
	stored stored // under the new URL
}

func (m *migration) movedKeys(ctx context.Context) (*movedKeys, error) {
	found, err := m.o.OldKeys(ctx)
	if err != nil {
		return nil, problem(OldKeysUnread, "read the keys of %s: %w", m.o.Old, err)
	}
	w := &movedKeys{old: m.o.Old, publication: publication{
		name: keystore.Name(m.o.Name), url: m.o.IssuerURL, source: m.o.Old, keys: found, policy: m.o.Policy, dev: m.o.Dev,
	}}
	if m.o.TokenLifetime > 0 {
		w.policy.TokenLifetime = keystore.DurationPtr(m.o.TokenLifetime)
	}
	if m.o.Cluster.Kubeconfig != "" {
		if err := m.askCluster(ctx, w); err != nil {
			return nil, err
		}
	}
	if err := w.checkNew(); err != nil {
		return nil, err
	}
	if w.stored, err = w.lookUp(ctx, m.store); err != nil || !w.stored.found {
		return w, err
	}
	return w, w.checkKeys(w.stored.set)
}

// askCluster compares the keys with the cluster's, and takes the lifetime of tokens from its pods. Every key with which the
// cluster signs must be published. Every other one should be known to it.
func (m *migration) askCluster(ctx context.Context, w *movedKeys) error {
	signers, err := cluster.Signers(ctx, m.o.Cluster, m.o.ClientIDs[0])
	if err != nil {
		return err
	}
	if err := w.checkSigners(signers); err != nil {
		return err
	}
	_, known, err := cluster.PublicKeys(ctx, m.o.Cluster.Kubeconfig, m.o.Cluster.Context)
	if err != nil {
		return err
	}
	for _, k := range w.keys {
		if !slices.ContainsFunc(known, k.Equal) {
			m.report(Event{Kind: UnknownKey, KeySet: w.name, Key: k.ID(), Text: fmt.Sprintf("%s publishes the key %s, "+
				"which the cluster does not know: whoever holds it can speak for the cluster, also under %s", w.old, k.ID(), w.url)})
		}
	}
	measured, err := cluster.TokenLifetime(ctx, m.o.Cluster, m.o.ClientIDs)
	if err != nil {
		return err
	}
	if p := &w.policy; measured.Longest > 0 && (p.TokenLifetime == nil || keystore.Duration(measured.Longest) > *p.TokenLifetime) {
		p.TokenLifetime = keystore.DurationPtr(measured.Longest)
	}
	return nil
}

func (w *movedKeys) checkSigners(signers []cluster.Signer) error {
	for _, s := range signers {
		switch {
		case s.Issuer != w.old && s.Issuer != w.url:
			return problem(WrongCluster, "the kube-apiserver at %s signs as %s, which is neither %s nor %s", s.Address, s.Issuer, w.old, w.url)
		case !slices.ContainsFunc(w.keys, func(k keystore.VerificationKey) bool { return k.ID() == s.KeyID }):
			return fmt.Errorf("the kube-apiserver at %s signs with the key %s, which %s does not publish: its tokens are trusted nowhere",
				s.Address, s.KeyID, w.old)
		}
	}
	return nil
}

// checkKeys returns an error unless the published key set has every key of the old issuer.
func (w *movedKeys) checkKeys(s keystore.KeySet) error {
	for _, k := range w.keys {
		had, published := s.Key(k.ID())
		switch {
		case !published:
			return w.notPublished(s, k.ID())
		case !had.Equal(k):
			return fmt.Errorf("key set %q (%s) has another key under the key ID %s than %s has", s.Name(), w.url, k.ID(), w.old)
		}
	}
	return nil
}

// changes are those that publishing makes.
func (w *movedKeys) changes() []plan.Change {
	if w.stored.found {
		return nil
	}
	var lines []string
	for _, k := range w.keys {
		lines = append(lines, "+ key "+string(k.ID()))
	}
	return []plan.Change{{Verb: plan.Create, Thing: "key set", Name: string(w.name) + " (" + w.url + ")", Diff: lines}}
}

// publishMoved stores the key set, unless it is there, and waits until no relying party can find it without a key.
func (m *migration) publishMoved(ctx context.Context, w *movedKeys) error {
	if !w.stored.found {
		st, err := m.store.Create(ctx)
		if err != nil {
			return err
		}
		if w.stored.set, err = m.add(ctx, st, w.spec()); err != nil {
			return err
		}
		m.line("Key set %s with %s of %s stored in %s", w.name, text.Count(len(w.keys), "key", "keys"), w.old, m.store.Name)
	}
	t, err := newSite(m.o.Site, m.o.IssuerURL, m.o.Dev)
	if err != nil {
		return err
	}
	for _, k := range w.keys {
		if err := m.awaitServed(ctx, t, w.stored.set, k); err != nil {
			return err
		}
	}
	return nil
}
