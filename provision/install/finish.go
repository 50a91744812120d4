package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/policy"
	"github.com/keypost/keypost/provision/cluster"
)

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
	signers, err := cluster.Signers(ctx, m.Cluster, audiences[0])
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
