package keystore

import (
	"slices"
	"time"

	"github.com/keypost/keypost/keystore/gate"
)

type (
	// NotYetError reports that the gate of a transition is closed; see package gate.
	NotYetError = gate.NotYetError
	// Observed is what was seen of one key at an issuer's public URLs.
	Observed = gate.Observed
)

// Gates returns what the gates of the key set count with.
func (s KeySet) Gates() gate.Rules { return gate.Rules{Policy: s.body.Policy.Clone(), Dev: s.body.Dev} }

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
