package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/provision/cluster"
)

// FinishMigration takes the old issuer's statements and provider away, once no token of it can be in use. Before that,
// the error is a [*keystore.NotYetError]: with GateSigning while a kube-apiserver signs as the old issuer, with
// GateUndeclared while it is unknown how long tokens live.
func FinishMigration(ctx context.Context, o MigrateOptions) (Migrated, error) {
	m, err := newMigration(ctx, o, true)
	if err != nil {
		return Migrated{}, err
	}
	p, err := m.client.PlanFinish(ctx, m.move())
	if err != nil {
		return Migrated{}, err
	}
	var done Migrated
	if !p.Empty() {
		err := m.gate(ctx)
		closed, isClosed := errors.AsType[*keystore.NotYetError](err)
		switch {
		case isClosed && o.Mode == Preview:
			done.Gate = closed
		case err != nil:
			return Migrated{}, err
		}
	}
	done.Preview, err = m.carryOut(ctx, o.Mode, p)
	return done, err
}

// gate returns nil when no token of the old issuer can be in use: every kube-apiserver has been seen to sign as the new
// one, and the longest token has expired since this was first seen. That time is kept at the old issuer's provider, where
// the next run finds it from any machine.
func (m *migration) gate(ctx context.Context) error {
	old := m.account.ProviderARN(m.o.Old)
	since, err := m.client.MovedAt(ctx, old)
	if err != nil {
		return err
	}
	signers, err := cluster.Signers(ctx, m.o.Cluster, m.o.ClientIDs[0])
	if err != nil {
		return err
	}
	if behind := stillSigning(signers, m.o.IssuerURL); behind != nil {
		if err := m.noteMoved(ctx, old, since, time.Time{}); err != nil { // it was switched back: the time starts again
			return err
		}
		return m.notYet(keystore.GateSigning, strings.Join(behind, "; "))
	}
	lifetime, err := m.tokenLifetime(ctx)
	if err != nil {
		return err
	}
	now := time.Now().Truncate(time.Second)
	if since.IsZero() {
		since = now
		if err := m.noteMoved(ctx, old, time.Time{}, now); err != nil {
			return err
		}
	}
	return m.tokensExpired(since, lifetime, now)
}

func (m *migration) noteMoved(ctx context.Context, provider string, was, is time.Time) error {
	if m.o.Mode == Preview || was.Equal(is) {
		return nil
	}
	lines, err := m.client.SetMovedAt(ctx, provider, is)
	m.lines(lines)
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

// lifetime is the longest life of a token for AWS; 0 if it is not known.
type lifetime struct {
	longest time.Duration
	source  string
}

// tokenLifetime returns the longest of the lifetimes that are known: declared, in the policy, and asked for by pods.
func (m *migration) tokenLifetime(ctx context.Context) (lifetime, error) {
	measured, err := cluster.TokenLifetime(ctx, m.o.Cluster, m.o.ClientIDs)
	if err != nil {
		return lifetime{}, err
	}
	declared, err := m.policyLifetime(ctx)
	if err != nil {
		return lifetime{}, err
	}
	var l lifetime
	for _, known := range []lifetime{
		{measured.Longest, "which pod " + measured.Pod + " asks for"},
		{m.o.TokenLifetime, "declared"},
		{declared, "from the key set's policy"},
	} {
		if known.longest > l.longest {
			l = known
		}
	}
	return l, nil
}

// policyLifetime returns the lifetime in the key set's policy, if there is a store to ask.
func (m *migration) policyLifetime(ctx context.Context) (time.Duration, error) {
	if m.store.Open == nil {
		return 0, nil
	}
	st, err := m.store.Open(ctx)
	if err != nil {
		return 0, err
	}
	s, err := catalog.Find(ctx, st, m.o.IssuerURL)
	if err != nil || s.Policy().TokenLifetime == nil {
		return 0, err
	}
	return time.Duration(*s.Policy().TokenLifetime), nil
}

// tokensExpired returns nil when, at now, every token from before since has expired.
func (m *migration) tokensExpired(since time.Time, l lifetime, now time.Time) error {
	opens := since.Add(l.longest + keystore.ClockSkew)
	switch {
	case l.longest == 0:
		return m.notYet(keystore.GateUndeclared, "it is unknown how long tokens live: no pod asks for one with these "+
			"audiences, and no lifetime is declared, not in the key set's policy either")
	case since.After(now.Add(time.Minute)):
		return m.notYet(keystore.GateClock, "the switch is recorded for "+stamp(since)+", which lies in the future: one of the clocks is wrong")
	case !now.Before(opens):
		return nil
	}
	e := m.notYet(keystore.GateTokens, "every kube-apiserver signs as the new issuer since "+stamp(since)+"; tokens of before may be in use")
	e.Opens = opens
	e.Terms = []keystore.Term{{What: "the longest token lifetime (" + l.source + ")", Duration: l.longest}, {What: "clock skew", Duration: keystore.ClockSkew}}
	return e
}

func (m *migration) notYet(gate keystore.Gate, need string) *keystore.NotYetError {
	return &keystore.NotYetError{Step: "finish the move from " + m.o.Old, Gate: gate, Need: need}
}
