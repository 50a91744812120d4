package keystore

import (
	"slices"
	"time"

	"github.com/keypost/keypost/keystore/gate"
)

type (
	// Gate names a condition that a transition waits for; see package gate.
	Gate = gate.Gate
	// NotYetError reports that the gate of a transition is closed.
	NotYetError = gate.NotYetError
	// Observed is what was seen of one key at an issuer's public URLs.
	Observed = gate.Observed
	// Uploads is what was read back of the uploads that relying parties hold.
	Uploads = gate.Uploads
	// ReadBack is what was read back of one upload.
	ReadBack = gate.ReadBack
	// ReadKey is a key of an upload.
	ReadKey = gate.ReadKey
)

// Constants of package gate.
const (
	GateObserved   = gate.GateObserved
	GateFresh      = gate.GateFresh
	GateEdge       = gate.GateEdge
	GateCaches     = gate.GateCaches
	GateSigning    = gate.GateSigning
	GateTokens     = gate.GateTokens
	GateUndeclared = gate.GateUndeclared
	GateClock      = gate.GateClock
	GateCopies     = gate.GateCopies
	GateActiveKeys = gate.GateActiveKeys

	ObservationFresh = gate.ObservationFresh
	ClockTolerance   = gate.ClockTolerance
)

// Gates returns what the gates of the key set count with.
func (s KeySet) Gates() gate.Rules { return gate.Rules{Policy: s.policy.Clone(), Dev: s.dev} }

// EarliestPromotion is [gate.Rules.EarliestPromotion] of the published key with that ID; ok is false if there is none.
func (s KeySet) EarliestPromotion(id KeyID, o Observed) (opens time.Time, ok bool) {
	k, ok := s.Key(id)
	if !ok {
		return time.Time{}, false
	}
	return s.Gates().EarliestPromotion(k, o), true
}

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
