package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/plan"
)

// finish takes the old issuer's trust away, once nothing can need it.
func (m *migration) finish(ctx context.Context) error {
	plan, err := m.client.PlanFinish(ctx, m.move())
	if err != nil {
		return err
	}
	if plan.Empty() {
		return m.settleFinish(ctx, plan)
	}
	err = m.gate(ctx)
	gate, closed := errors.AsType[*keystore.NotYetError](err)
	switch {
	case err == nil:
	case closed && m.f.diff:
		m.notice("%v", gate)
	default:
		return err
	}
	return m.settleFinish(ctx, plan)
}

func (m *migration) settleFinish(ctx context.Context, plan plan.Plan) error {
	if err := m.settle(ctx, plan); err != nil || m.f.diff {
		return err
	}
	m.sayBucket()
	return nil
}

// gate is nil when no token of the old issuer can be in use: every kube-apiserver has been seen to sign as the new one,
// and since the first time that this was seen the longest token has run out. That time is kept at the old issuer's
// provider, where the next run finds it from any machine.
func (m *migration) gate(ctx context.Context) error {
	old := m.account.ProviderARN(m.f.from)
	since, err := m.client.MovedAt(ctx, old)
	if err != nil {
		return err
	}
	signers, err := cluster.Signers(ctx, m.f.cluster, m.f.clientIDs[0])
	if err != nil {
		return err
	}
	if behind := signsOtherwise(signers, m.f.issuerURL); behind != nil {
		if err := m.noteMoved(ctx, old, since, time.Time{}); err != nil { // it was switched back: the time starts anew
			return err
		}
		return withHint(m.notYet(keystore.GateSigning, strings.Join(behind, "; ")),
			"switch the cluster; how is printed by %s", m.f.again(command{"aws", "migrate"}))
	}
	lifetime, source, err := m.tokenLife(ctx)
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
	return m.tokensGone(since, lifetime, source, now)
}

func (m *migration) noteMoved(ctx context.Context, provider string, was, is time.Time) error {
	if m.f.diff || was.Equal(is) {
		return nil
	}
	said, err := m.client.SetMovedAt(ctx, provider, is)
	for _, line := range said {
		m.journal.printf("%s", line)
	}
	return err
}

// signsOtherwise says of each kube-apiserver that does not sign as the issuer what it does instead.
func signsOtherwise(signers []cluster.Signer, issuer string) []string {
	var behind []string
	for _, s := range signers {
		if s.Issuer != issuer {
			behind = append(behind, fmt.Sprintf("the kube-apiserver at %s still signs as %s", s.Address, s.Issuer))
		}
	}
	return behind
}

// tokenLife is the longest life of a token for AWS, of all that is known: declared by flag or policy, asked for by pods.
// It is zero when nothing is.
func (m *migration) tokenLife(ctx context.Context) (longest time.Duration, source string, err error) {
	measured, err := cluster.TokenLifetime(ctx, m.f.cluster, m.f.clientIDs)
	if err != nil {
		return 0, "", err
	}
	declared, err := m.declaredLife(ctx)
	if err != nil {
		return 0, "", err
	}
	for _, l := range []struct {
		d      time.Duration
		source string
	}{
		{measured.Longest, "which pod " + measured.Pod + " asks for"},
		{m.f.tokenLifetime, "from --token-lifetime"},
		{declared, "from the key set's policy"},
	} {
		if l.d > longest {
			longest, source = l.d, l.source
		}
	}
	return longest, source, nil
}

// declaredLife is what the key set says, if there is a store to ask.
func (m *migration) declaredLife(ctx context.Context) (time.Duration, error) {
	if m.Store == "" {
		return 0, nil
	}
	st, err := m.openStore(ctx)
	if err != nil {
		return 0, err
	}
	s, err := catalog.Find(ctx, st, m.f.issuerURL)
	if err != nil || s.Policy().TokenLifetime == nil {
		return 0, err
	}
	return time.Duration(*s.Policy().TokenLifetime), nil
}

// tokensGone is nil when, at now, no token of before since is good any more.
func (m *migration) tokensGone(since time.Time, lifetime time.Duration, source string, now time.Time) error {
	opens := since.Add(lifetime + keystore.ClockSkew)
	switch {
	case lifetime == 0:
		return withHint(m.notYet(keystore.GateUndeclared, "nobody says how long tokens live: no pod asks for one with these "+
			"audiences, and neither --token-lifetime nor the key set's policy is given"),
			"give the longest expirationSeconds of any such token: --token-lifetime DURATION")
	case since.After(now.Add(time.Minute)):
		return m.notYet(keystore.GateClock, "the switch is recorded for "+stamp(since)+", which lies in the future: one of the clocks is wrong")
	case !now.Before(opens):
		return nil
	}
	e := m.notYet(keystore.GateTokens, "every kube-apiserver signs as the new issuer since "+stamp(since)+"; tokens of before may be in use")
	e.Opens = opens
	e.Terms = []keystore.Term{{What: "the longest token lifetime (" + source + ")", Duration: lifetime}, {What: "clock skew", Duration: keystore.ClockSkew}}
	return e
}

func (m *migration) notYet(gate keystore.Gate, need string) *keystore.NotYetError {
	return &keystore.NotYetError{Step: "finish the move from " + m.f.from, Gate: gate, Need: need}
}
