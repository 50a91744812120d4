package install

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/plan"
)

// Move says from which issuer a live cluster moves to that of the run.
type Move struct {
	Old           string                                                    // issuer URL that the cluster's tokens have before the move
	OldKeys       func(context.Context) ([]keystore.VerificationKey, error) // reads the keys that Old publishes
	Cluster       cluster.Access                                            // Kubeconfig is empty if the cluster cannot be asked
	Copied        bool                                                      // as in [Publication]
	TokenLifetime time.Duration                                             // the longest of a token for the cloud that is declared; 0 for none
}

// MovedKeys returns the key set to publish under the run's issuer URL: the old issuer's keys with their key IDs. They are
// compared with those of the cluster, if it can be asked; audiences are those of its tokens for the cloud.
func (r *Run) MovedKeys(ctx context.Context, m Move, audiences []string) (*Publication, error) {
	found, err := m.OldKeys(ctx)
	if err != nil {
		return nil, Refuse(OldKeysUnread, "read the keys of %s: %w", m.Old, err)
	}
	p := &Publication{
		Name: keystore.Name(r.Name), URL: r.IssuerURL, Source: m.Old, Keys: found, Policy: r.Policy, Dev: r.Dev, Moved: true, Copied: m.Copied,
		What: fmt.Sprintf(" with %s of %s", text.Count(len(found), "key", "keys"), m.Old),
	}
	if m.TokenLifetime > 0 {
		p.Policy.TokenLifetime = keystore.DurationPtr(m.TokenLifetime)
	}
	if m.Cluster.Kubeconfig != "" {
		if err := r.askCluster(ctx, p, m.Cluster, audiences); err != nil {
			return nil, err
		}
	}
	if err := p.checkNew(); err != nil {
		return nil, err
	}
	if err := p.lookUp(ctx, r.Store); err != nil {
		return nil, err
	}
	r.sayNoStore(p)
	if !p.Found() {
		return p, nil
	}
	if !p.Copied {
		if err := CheckReadable(p.Stored, p.URL); err != nil {
			return nil, err
		}
	}
	return p, p.checkKeys(p.Stored)
}

// askCluster compares the keys with the cluster's, and takes the lifetime of tokens from its pods. Every key with which the
// cluster signs must be published. Every other one should be known to it.
func (r *Run) askCluster(ctx context.Context, p *Publication, at cluster.Access, audiences []string) error {
	signers, err := cluster.Signers(ctx, at, audiences[0])
	if err != nil {
		return err
	}
	if err := p.checkSigners(signers); err != nil {
		return err
	}
	_, known, _, err := cluster.PublicKeys(ctx, at.Kubeconfig, at.Context)
	if err != nil {
		return err
	}
	for _, k := range p.Keys {
		if !slices.ContainsFunc(known, k.Equal) {
			r.Report(Event{Kind: UnknownKey, KeySet: p.Name, Key: k.ID(), Text: fmt.Sprintf("%s publishes the key %s, "+
				"which the cluster does not know: anyone who holds it can speak for the cluster, also under %s", p.Source, k.ID(), p.URL)})
		}
	}
	measured, err := cluster.TokenLifetime(ctx, at, audiences)
	if err != nil {
		return err
	}
	if measured.Longest > 0 && (p.Policy.TokenLifetime == nil || keystore.Duration(measured.Longest) > *p.Policy.TokenLifetime) {
		p.Policy.TokenLifetime = keystore.DurationPtr(measured.Longest)
	}
	return nil
}

func (p *Publication) checkSigners(signers []cluster.Signer) error {
	for _, s := range signers {
		switch {
		case s.Issuer != p.Source && s.Issuer != p.URL:
			return Refuse(WrongCluster, "the kube-apiserver at %s signs as %s, which is neither %s nor %s", s.Address, s.Issuer, p.Source, p.URL)
		case !slices.ContainsFunc(p.Keys, func(k keystore.VerificationKey) bool { return k.ID() == s.KeyID }):
			return fmt.Errorf("the kube-apiserver at %s signs with the key %s, which %s does not publish: its tokens are trusted nowhere",
				s.Address, s.KeyID, p.Source)
		}
	}
	return nil
}

// checkKeys returns an error unless the published key set has every key of the old issuer.
func (p *Publication) checkKeys(s keystore.KeySet) error {
	for _, k := range p.Keys {
		had, published := s.Key(k.ID())
		switch {
		case !published:
			return p.notPublished(s, k)
		case !had.Equal(k):
			return fmt.Errorf("key set %q (%s) has another key under the key ID %s than %s has", s.Name(), p.URL, k.ID(), p.Source)
		}
	}
	return nil
}

// Changes are those that publishing makes.
func (p *Publication) Changes() []plan.Change {
	if p.Found() {
		return nil
	}
	var lines []string
	for _, k := range p.Keys {
		lines = append(lines, "+ key "+string(k.ID()))
	}
	return []plan.Change{{Verb: plan.Create, Thing: "key set", Name: string(p.Name) + " (" + p.URL + ")", Diff: lines}}
}

// PublishMoved stores the key set and waits until no relying party can find it without a key, unless they are given a copy.
func (r *Run) PublishMoved(ctx context.Context, p *Publication) error {
	t, err := newSite(r.Site, r.IssuerURL)
	if err != nil {
		return err
	}
	if err := r.publish(ctx, p, p.checkKeys); err != nil || p.Copied {
		return err
	}
	return r.awaitServed(ctx, t, p)
}
