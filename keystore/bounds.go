package keystore

import (
	"fmt"

	"github.com/keypost/keypost/internal/privatekey"
)

// MaxKeysOfType bounds the RSA keys and the EC keys of a key set: AWS reads no more of either in a JWKS.
const MaxKeysOfType = 100

// Bounds of a key set. The custom resource definition has the same, so that every store takes every key set. They are
// checked before any work that grows faster than the document, which one writer could use to slow every reader down.
const (
	maxIssuers        = 100
	maxKeys           = 200
	maxGone           = 4000 // published keys are counted too, so that each of them can still leave a full key set
	maxRelyingParties = 1000
	maxOrigins        = 1000
	maxHeld           = 1000
	maxVantages       = 20 // each looks at every issuer URL
	maxHistory        = 200
	maxLabels         = 1000 // also annotations
	KeptHistory       = 50   // by transitions
	maxReason         = 4096 // of a Change, in bytes
	maxBy             = 1024
)

// Bounds of the generation. JSON readers take integers up to 2^53-1 without loss, so that is the largest. A single write
// must not be able to use the generations up: a reader takes no version far beyond its last good one, and none with a
// very high generation as its first. [KeySet.Accept] lowers such a generation.
const (
	MaxGeneration      = 1<<53 - 1
	MaxFirstGeneration = 1 << 40
	MaxGenerationJump  = 1 << 20
)

type bound struct {
	what    string
	n, most int
}

// checkBounds checks the lengths of all lists. The issuers, keys and lines in gone are given by number, as a document
// is checked before they are parsed.
func (s KeySet) checkBounds(issuers, keys, gone int) error {
	rsa, ec := s.keysOfType()
	for _, b := range []bound{
		{"issuer URLs", issuers, maxIssuers},
		{"keys", keys, maxKeys},
		{"RSA keys", rsa, MaxKeysOfType},
		{"EC keys", ec, MaxKeysOfType},
		{"keys and lines in gone", keys + gone, maxGone},
		{"labels", len(s.labels), maxLabels},
		{"annotations", len(s.annotations), maxLabels},
		{"relying parties", len(s.body.Policy.RelyingParties), maxRelyingParties},
		{"origins", len(s.body.Policy.Origins), maxOrigins},
		{"vantages", len(s.body.Policy.ObserveFrom), maxVantages},
		{"lines in heldUntil", len(s.body.Policy.HeldUntil), maxHeld},
		{"lines of history", len(s.body.History), maxHistory},
	} {
		if b.n > b.most {
			return fmt.Errorf("it has %d %s; at most %d are read", b.n, b.what, b.most)
		}
	}
	return nil
}

func (s KeySet) keysOfType() (rsa, ec int) {
	for _, k := range s.keys {
		if k.IsRSA() {
			rsa++
		}
	}
	return rsa, len(s.keys) - rsa
}

// check returns an error if the texts of a change are too long to be recorded, or hold a private key.
func (c Change) check() error {
	if len(c.Why) > maxReason || len(c.By) > maxBy {
		return fmt.Errorf("the reason has %d bytes and the name of who changes it %d; they are recorded, and at most %d and %d are kept", len(c.Why), len(c.By), maxReason, maxBy)
	}
	if _, found := privatekey.Find([]any{c.By, c.Why}); found {
		return fmt.Errorf("the reason or the name of who changes it is recorded: %w", ErrPrivateKey)
	}
	return nil
}
