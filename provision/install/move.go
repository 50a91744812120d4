package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/policy"
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
	signers, err := cluster.Signers(ctx, at, 0, audiences[0])
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
	if err := r.publish(ctx, p); err != nil || p.Copied {
		return err
	}
	return r.awaitServed(ctx, t, p)
}

// SwitchRecord keeps when the switch away from an old issuer was first seen complete. It is kept in the cloud, where the next
// run finds it from any machine.
type SwitchRecord interface {
	MovedAt(ctx context.Context) (time.Time, error) // zero if nothing is recorded

	// SetMovedAt records a time; the zero time removes the record. It returns a line for each call that it made.
	SetMovedAt(ctx context.Context, at time.Time) (lines []string, err error)
}

// MayFinish returns no error when no token of the old issuer can be in use: every kube-apiserver has been seen to sign as the new
// one, and the longest token has expired since this was first seen. Until then the error is a [*keystore.NotYetError]: with
// GateSigning while a kube-apiserver signs as the old issuer, with GateUndeclared while it is unknown how long tokens live.
// With mode [Preview] that is returned as the gate, to be shown, and the record is left as it is.
func (r *Run) MayFinish(ctx context.Context, m Move, audiences []string, record SwitchRecord) (gate *keystore.NotYetError, err error) {
	err = r.mayFinish(ctx, m, audiences, record)
	if closed, is := errors.AsType[*keystore.NotYetError](err); is && r.Mode == Preview {
		return closed, nil
	}
	return nil, err
}

func (r *Run) mayFinish(ctx context.Context, m Move, audiences []string, record SwitchRecord) error {
	since, err := record.MovedAt(ctx)
	if err != nil {
		return err
	}
	signers, err := cluster.Signers(ctx, m.Cluster, 0, audiences[0])
	if err != nil {
		return err
	}
	if behind := stillSigning(signers, r.IssuerURL); behind != nil {
		if err := r.noteMoved(ctx, record, since, time.Time{}); err != nil { // it was switched back: the time starts again
			return err
		}
		return m.notYet(gate.GateSigning, strings.Join(behind, "; "))
	}
	lifetime, err := r.tokenLifetime(ctx, m, audiences)
	if err != nil {
		return err
	}
	now := time.Now().Truncate(time.Second)
	if since.IsZero() {
		since = now
		if err := r.noteMoved(ctx, record, time.Time{}, now); err != nil {
			return err
		}
	}
	return m.tokensExpired(since, lifetime, now)
}

func (r *Run) noteMoved(ctx context.Context, record SwitchRecord, was, is time.Time) error {
	if r.Mode == Preview || was.Equal(is) {
		return nil
	}
	lines, err := record.SetMovedAt(ctx, is)
	r.Lines(lines)
	return err
}

// stillSigning describes the kube-apiservers that do not sign as the issuer.
func stillSigning(signers []cluster.Signer, issuer string) []string {
	var behind []string
	for _, s := range signers {
		if s.Issuer != issuer {
			behind = append(behind, fmt.Sprintf("the kube-apiserver at %s still signs as %s", s.Address, s.Issuer))
		}
	}
	return behind
}

// lifetime is the longest life of a token for the cloud; 0 if it is not known.
type lifetime struct {
	longest time.Duration
	source  string
}

// tokenLifetime returns the longest of the lifetimes that are known: declared, in the policy, and asked for by pods.
func (r *Run) tokenLifetime(ctx context.Context, m Move, audiences []string) (lifetime, error) {
	measured, err := cluster.TokenLifetime(ctx, m.Cluster, audiences)
	if err != nil {
		return lifetime{}, err
	}
	declared, err := r.policyLifetime(ctx)
	if err != nil {
		return lifetime{}, err
	}
	var l lifetime
	for _, known := range []lifetime{
		{measured.Longest, "which pod " + measured.Pod + " asks for"},
		{m.TokenLifetime, "declared"},
		{declared, "from the key set's policy"},
	} {
		if known.longest > l.longest {
			l = known
		}
	}
	return l, nil
}

// policyLifetime returns the lifetime in the key set's policy, if there is a store to ask.
func (r *Run) policyLifetime(ctx context.Context) (time.Duration, error) {
	if r.Store.Open == nil {
		return 0, nil
	}
	st, err := r.Store.Open(ctx)
	if err != nil {
		return 0, err
	}
	s, err := catalog.Find(ctx, st, r.IssuerURL)
	if err != nil || s.Policy().TokenLifetime == nil {
		return 0, err
	}
	return time.Duration(*s.Policy().TokenLifetime), nil
}

// tokensExpired returns nil when, at now, every token from before since has expired.
func (m Move) tokensExpired(since time.Time, l lifetime, now time.Time) error {
	opens := since.Add(l.longest + policy.ClockSkew)
	switch {
	case l.longest == 0:
		return m.notYet(gate.GateUndeclared, "it is unknown how long tokens live: no pod asks for one with these "+
			"audiences, and no lifetime is declared, not in the key set's policy either")
	case since.After(now.Add(time.Minute)):
		return m.notYet(gate.GateClock, "the switch is recorded for "+stamp(since)+", which lies in the future: one of the clocks is wrong")
	case !now.Before(opens):
		return nil
	}
	e := m.notYet(gate.GateTokens, "every kube-apiserver signs as the new issuer since "+stamp(since)+"; tokens of before may be in use")
	e.Opens = opens
	e.Terms = []policy.Term{{What: "the longest token lifetime (" + l.source + ")", Duration: l.longest}, {What: "clock skew", Duration: policy.ClockSkew}}
	return e
}

func (m Move) notYet(gate gate.Gate, need string) *keystore.NotYetError {
	return &keystore.NotYetError{Step: "finish the move from " + m.Old, Gate: gate, Need: need}
}
