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

// movedKeys returns the key set to publish under the new issuer URL: the old issuer's keys with their key IDs.
func (m *migration) movedKeys(ctx context.Context) (*publication, error) {
	found, err := m.o.OldKeys(ctx)
	if err != nil {
		return nil, problem(OldKeysUnread, "read the keys of %s: %w", m.o.Old, err)
	}
	p := &publication{
		name: keystore.Name(m.o.Name), url: m.o.IssuerURL, source: m.o.Old, keys: found, policy: m.o.Policy, dev: m.o.Dev,
		what: fmt.Sprintf(" with %s of %s", text.Count(len(found), "key", "keys"), m.o.Old),
	}
	if m.o.TokenLifetime > 0 {
		p.policy.TokenLifetime = keystore.DurationPtr(m.o.TokenLifetime)
	}
	if m.o.Cluster.Kubeconfig != "" {
		if err := m.askCluster(ctx, p); err != nil {
			return nil, err
		}
	}
	if err := p.checkNew(); err != nil {
		return nil, err
	}
	if err := p.lookUp(ctx, m.store); err != nil || !p.found() {
		return p, err
	}
	return p, p.checkKeys(p.stored)
}

// askCluster compares the keys with the cluster's, and takes the lifetime of tokens from its pods. Every key with which the
// cluster signs must be published. Every other one should be known to it.
func (m *migration) askCluster(ctx context.Context, p *publication) error {
	signers, err := cluster.Signers(ctx, m.o.Cluster, m.o.ClientIDs[0])
	if err != nil {
		return err
	}
	if err := p.checkSigners(signers); err != nil {
		return err
	}
	_, known, err := cluster.PublicKeys(ctx, m.o.Cluster.Kubeconfig, m.o.Cluster.Context)
	if err != nil {
		return err
	}
	for _, k := range p.keys {
		if !slices.ContainsFunc(known, k.Equal) {
			m.report(Event{Kind: UnknownKey, KeySet: p.name, Key: k.ID(), Text: fmt.Sprintf("%s publishes the key %s, "+
				"which the cluster does not know: whoever holds it can speak for the cluster, also under %s", p.source, k.ID(), p.url)})
		}
	}
	measured, err := cluster.TokenLifetime(ctx, m.o.Cluster, m.o.ClientIDs)
	if err != nil {
		return err
	}
	if measured.Longest > 0 && (p.policy.TokenLifetime == nil || keystore.Duration(measured.Longest) > *p.policy.TokenLifetime) {
		p.policy.TokenLifetime = keystore.DurationPtr(measured.Longest)
	}
	return nil
}

func (p *publication) checkSigners(signers []cluster.Signer) error {
	for _, s := range signers {
		switch {
		case s.Issuer != p.source && s.Issuer != p.url:
			return problem(WrongCluster, "the kube-apiserver at %s signs as %s, which is neither %s nor %s", s.Address, s.Issuer, p.source, p.url)
		case !slices.ContainsFunc(p.keys, func(k keystore.VerificationKey) bool { return k.ID() == s.KeyID }):
			return fmt.Errorf("the kube-apiserver at %s signs with the key %s, which %s does not publish: its tokens are trusted nowhere",
				s.Address, s.KeyID, p.source)
		}
	}
	return nil
}

// checkKeys returns an error unless the published key set has every key of the old issuer.
func (p *publication) checkKeys(s keystore.KeySet) error {
	for _, k := range p.keys {
		had, published := s.Key(k.ID())
		switch {
		case !published:
			return p.notPublished(s, k.ID())
		case !had.Equal(k):
			return fmt.Errorf("key set %q (%s) has another key under the key ID %s than %s has", s.Name(), p.url, k.ID(), p.source)
		}
	}
	return nil
}

// changes are those that publishing makes.
func (p *publication) changes() []plan.Change {
	if p.found() {
		return nil
	}
	var lines []string
	for _, k := range p.keys {
		lines = append(lines, "+ key "+string(k.ID()))
	}
	return []plan.Change{{Verb: plan.Create, Thing: "key set", Name: string(p.name) + " (" + p.url + ")", Diff: lines}}
}

// publishMoved stores the key set and waits until no relying party can find it without a key.
func (m *migration) publishMoved(ctx context.Context, p *publication) error {
	t, err := newSite(m.o.Site, m.o.IssuerURL)
	if err != nil {
		return err
	}
	if err := m.publish(ctx, p, p.checkKeys); err != nil {
		return err
	}
	return m.awaitServed(ctx, t, p.stored, p.keys...)
}
