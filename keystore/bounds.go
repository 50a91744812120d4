package keystore

import (
	"errors"
	"fmt"
)

// MaxKeysOfType bounds the RSA keys and the EC keys of a key set: AWS reads no more of either in a JWKS.
const MaxKeysOfType = 100

// Bounds of a key set. The custom resource definition has the same, so that every store takes every key set. They are
// checked before any work that grows faster than the document, which one writer could use to slow every reader down.
const (
	maxIssuers        = 100
	maxKeys           = 200
	maxGone           = 4000 // published keys are counted too, so that each of them can still leave
	maxRelyingParties = 1000
	maxOrigins        = 1000
	maxHeld           = 1000
	maxVantages       = 20 // each looks at every issuer URL
	maxHistory        = 200
	maxLabels         = 1000 // also annotations
)

// Bounds for the transitions. They are below the bounds of a key set, so that a full one can still be repaired: ordinary
// changes leave room for revoke, remove and accept.
const (
	keptHistory  = 50
	roomOfAType  = MaxKeysOfType - 10
	roomGone     = maxGone - 2*maxKeys
	roomDocument = MaxDocument - 128<<10
	maxReason    = 4096 // of a Change, in bytes
	maxBy        = 1024
)

// Bounds of the generation. JSON readers take integers up to 2^53-1 without loss, so that is the largest. A single write
// must not be able to use the generations up: a reader takes no version far beyond its last good one, and none with a
// very high generation as its first. [KeySet.Accept] lowers such a generation.
const (
	MaxGeneration      = 1<<53 - 1
	MaxFirstGeneration = 1 << 40
	MaxGenerationJump  = 1 << 20
)

var errFull = errors.New("it is full")

type bound struct {
	what    string
	n, most int
}

// checkSizes checks the lengths of all lists. The issuers, keys and lines in gone are given by number, as a document
// is checked before they are parsed.
func (s KeySet) checkSizes(issuers, keys, gone int) error {
	all := []bound{
		{"issuer URLs", issuers, maxIssuers},
		{"keys", keys, maxKeys},
		{"keys and lines in gone", keys + gone, maxGone},
		{"labels", len(s.labels), maxLabels},
		{"annotations", len(s.annotations), maxLabels},
		{"relying parties", len(s.policy.RelyingParties), maxRelyingParties},
		{"origins", len(s.policy.Origins), maxOrigins},
		{"vantages", len(s.policy.ObserveFrom), maxVantages},
		{"lines in heldUntil", len(s.policy.HeldUntil), maxHeld},
		{"lines of history", len(s.history), maxHistory},
	}
	for _, b := range all {
		if b.n > b.most {
			return fmt.Errorf("it has %d %s; at most %d are read", b.n, b.what, b.most)
		}
	}
	return nil
}

// room returns an error if s leaves too little room for the changes that repair it.
func (s KeySet) room() error {
	if n := len(s.keys) + len(s.gone); n > roomGone {
		return fmt.Errorf("%w: %d keys are published or gone; beyond %d only revoke, remove and accept go on; make a new key set with an issuer URL of its own", errFull, n, roomGone)
	}
	rsa := 0
	for _, k := range s.keys {
		if k.isRSA() {
			rsa++
		}
	}
	if n := max(rsa, len(s.keys)-rsa); n > roomOfAType {
		return fmt.Errorf("%w: it would have %d keys of one type, and %d are the most (AWS reads %d, and a revoked key may need a replacement); remove keys that are retired", errFull, n, roomOfAType, MaxKeysOfType)
	}
	size, err := s.size()
	if err != nil {
		return err
	}
	if size > roomDocument {
		return fmt.Errorf("%w: its document would have %d bytes; beyond %d only revoke, remove and accept go on; shorten its annotations and policy, or make a new key set with an issuer URL of its own", errFull, size, roomDocument)
	}
	return nil
}

// ordinary checks the result of an ordinary change, which must leave room for repairs.
func (s KeySet) ordinary(what string) error {
	err := s.check()
	if err == nil {
		err = s.room()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// fit drops the oldest lines of history until the document can be stored: history must not prevent a revocation.
func (s *KeySet) fit() error {
	for {
		size, err := s.size()
		if err != nil || size <= MaxDocument || len(s.history) == 0 {
			return err
		}
		s.history = s.history[(len(s.history)+1)/2:]
	}
}

// check returns an error if the texts of a change are too long to be recorded.
func (c Change) check() error {
	if by := max(len(c.By), len(c.As)); len(c.Why) > maxReason || by > maxBy {
		return fmt.Errorf("the reason has %d bytes and the name of who changes it %d; they are recorded, and at most %d and %d are kept", len(c.Why), by, maxReason, maxBy)
	}
	return nil
}
