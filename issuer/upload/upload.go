// Package upload hands the published keys of a key set to a relying party that holds an upload of them, reads back what it holds,
// and records that as an observation. It promises that what is recorded was read, and never only written; that it ends with the keys
// that are stored then; and that nothing is uploaded from a store that is older than what was uploaded before, so that a revoked
// key does not come back.
package upload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/key"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/pubkey"
)

// Holder is a relying party that holds an upload. Its methods are called one at a time. Anyone who may upload can make the relying party
// trust any key; a reader is believed, as an observer is.
type Holder interface {
	// Upload has the relying party hold exactly the keys of a JWKS, and returns when its control plane says so. It may be called
	// again with the same one. After an error it may have happened all the same. It is an error if the relying party is for another
	// issuer by then than Read said last.
	Upload(ctx context.Context, jwks []byte) error
	// Read returns what the control plane says that the relying party holds. One that holds none, as it fetches by itself, is an
	// error: nothing that is uploaded would count there. So is one that is gone, a [*RefusedError].
	Read(ctx context.Context) (Held, error)
}

// Held is what was read back.
type Held struct {
	JWKS   []byte    // or PEM keys, for a relying party that knows no key IDs
	Issuer string    // whose tokens the relying party checks with these keys, as it says
	Date   time.Time // by the clock of who answered, at about the time of the answer; zero if it does not say
	// Refused is why the relying party takes no token whatever keys it has, as it is disabled; nil if it takes some. Its keys count all
	// the same: they are what it goes by once it is enabled.
	Refused error
}

// RefusedError reports a relying party that takes no token of the key set, whatever keys it has: it is gone, disabled, or another
// issuer's. No upload changes that.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

func (e *RefusedError) Unwrap() error { return e.Err }

// OlderError reports that the store has an older key set than the one that was uploaded: a replica that is behind, or a backup that
// was put back. What it still publishes may have been revoked, so nothing is uploaded.
type OlderError struct {
	Set keystore.Name
	observation.Older
}

func (e *OlderError) Error() string {
	return fmt.Sprintf("nothing is uploaded, since this store is older than what was uploaded of key set %q: %v; use the store that has the newest", e.Set, e.Older)
}

// Uploader uploads key sets.
type Uploader struct {
	Store   keystore.Reader
	Records *observation.Store
	By      string                      // who it is, for the record
	Now     func() time.Time            // nil for the clock of this machine
	Permit  func(keystore.KeySet) error // asked of each version that is read: an error if it may not be uploaded; nil for all
	Force   bool                        // upload also what is older than what was uploaded before, and take it for the newest
}

// Result is what came of one upload.
type Result struct {
	Set      keystore.KeySet // whose keys the relying party holds now
	Uploaded bool            // false if it held them already
	Read     time.Time
	ClockGap string // why the record does not count, as a sentence; empty if the clocks agree
	Refused  error  // as [Held.Refused]
}

// attempts bounds how often an upload starts again since the key set was changed meanwhile.
const attempts = 5

// Sync has the relying party that a policy names hold the published keys of a key set, and records what it was seen to hold before
// and after. If the key set is changed meanwhile it goes on until that is what is held: of two that run side by side the later
// one may have read the older version.
func (u Uploader) Sync(ctx context.Context, n keystore.Name, party string, to Holder) (Result, error) {
	r := run{Uploader: u, to: to, about: observation.Subject{Issuer: party}}
	err := r.sync(ctx, n)
	return r.Result, err
}

// run is one upload.
type run struct {
	Uploader
	to    Holder
	about observation.Subject
	Result
}

func (u *run) sync(ctx context.Context, n keystore.Name) error {
	party := text.OneLine(u.about.Issuer, 300)
	for range attempts {
		s, revision, err := u.Store.Load(ctx, n)
		if err == nil {
			err = uploadable(s, u.about.Issuer)
		}
		if err != nil {
			return err
		}
		u.Set = s
		failed := u.permit(s)
		if failed == nil {
			failed = u.once(ctx, s)
		}
		if why := errors.Join(failed, u.Refused); why != nil && ctx.Err() == nil {
			failed = errors.Join(failed, u.Records.AddFailure(ctx, n, u.about, observation.Failed{At: u.now(), By: u.By, Why: text.OneLine(why.Error(), 300)}))
		}
		if failed != nil {
			failed = fmt.Errorf("%s: %w", party, failed)
		}
		// After an error too: an upload that happened all the same has put the older keys over what another run had read back since.
		_, now, err := u.Store.Load(ctx, n)
		if err != nil || now == revision {
			return errors.Join(failed, err)
		}
	}
	return fmt.Errorf("%s: key set %q was changed again and again while its keys were uploaded; try again", party, n)
}

func (u *run) permit(s keystore.KeySet) error {
	if u.Permit == nil {
		return nil
	}
	return u.Permit(s)
}

// uploadable returns an error unless the keys of s may be uploaded to a relying party.
func uploadable(s keystore.KeySet, party string) error {
	switch n := len(s.Keys()); {
	case s.Withdrawn():
		return fmt.Errorf("key set %q was withdrawn; disable the provider that holds its keys", s.Name())
	case !slices.Contains(s.Policy().Uploads(), party):
		return fmt.Errorf("the policy of key set %q does not name %s among its relying parties", s.Name(), text.OneLine(party, 300))
	case n == 0:
		return fmt.Errorf("key set %q publishes no key, and nobody takes an upload without one; disable the provider that holds its keys", s.Name())
	case n > keystore.MaxRotating:
		return fmt.Errorf("key set %q publishes %d keys, and an upload takes %d at most; remove keys that are retired", s.Name(), n, keystore.MaxRotating)
	}
	return nil
}

// once uploads the keys of s unless they are held, and records what is read before and after.
func (u *run) once(ctx context.Context, s keystore.KeySet) error {
	jwks, err := issuer.RenderJWKS(s)
	if err != nil {
		return err
	}
	// Before anything is uploaded: a run that is killed leaves what it was about to upload.
	record, err := u.Records.Mark(ctx, u.about, s, u.Force)
	if err != nil {
		return err
	}
	if older := record.Older(s); older != nil {
		return &OlderError{s.Name(), *older}
	}
	same, err := u.read(ctx, s, time.Time{})
	if err != nil || same {
		return err
	}
	if err := u.to.Upload(ctx, jwks); err != nil {
		return err
	}
	u.Uploaded = true
	if same, err = u.read(ctx, s, u.now()); err == nil && !same {
		err = errors.New("what is read back after the upload are not the published keys; somebody else may have uploaded at the same time: try again")
	}
	return err
}

// read records what the relying party holds, and reports whether those are the published keys of s and no other.
func (u *run) read(ctx context.Context, s keystore.KeySet, uploaded time.Time) (same bool, err error) {
	held, err := u.to.Read(ctx)
	if err != nil {
		return false, err
	}
	// Before anything is written: at another issuer's relying party our keys would make its tokens refused, and ours accepted as its own.
	if !slices.ContainsFunc(s.Issuers(), func(i keystore.IssuerURL) bool { return i.String() == held.Issuer }) {
		return false, &RefusedError{fmt.Errorf("it takes tokens of the issuer %s, which is none of key set %q; correct the name in its policy, or the provider", text.OneLine(held.Issuer, 300), s.Name())}
	}
	at := u.now()
	keys, err := pubkey.Parse("the upload", held.JWKS)
	if err != nil {
		keys = nil // for gates it has no key
	}
	if bytes.HasPrefix(held.JWKS, []byte("-----BEGIN")) {
		withIDs(s, keys)
	}
	look := observation.ReadBack(at, observation.Upload{By: u.By, Uploaded: uploaded}, keys)
	if !held.Date.IsZero() {
		ahead := observation.Offset(at.Sub(held.Date).Truncate(time.Second))
		look.ClockAhead = &ahead
	}
	if _, err := u.Records.Add(ctx, s.Name(), u.about, look); err != nil {
		return false, err
	}
	u.Read, u.ClockGap, u.Refused = at, look.ClockGap(), held.Refused
	var published []keystore.VerificationKey
	for _, k := range s.Keys() {
		published = append(published, k.VerificationKey)
	}
	return key.Same(published, keys), nil
}

// withIDs gives those of the keys that s publishes the key IDs that they have there.
func withIDs(s keystore.KeySet, keys []keystore.VerificationKey) {
	for i, held := range keys {
		for _, k := range s.Keys() {
			if k.SameMaterial(held) {
				keys[i] = k.VerificationKey
			}
		}
	}
}

func (u Uploader) now() time.Time {
	if u.Now != nil {
		return u.Now().UTC()
	}
	return time.Now().UTC()
}
