// Package upload hands the published keys of a key set to a relying party that holds a copy of them, reads back what it holds, and
// records that as an observation. It promises that what is recorded was read, and never only written; and that it ends with the
// keys that are stored then.
package upload

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/pubkey"
)

// Copy is the JWKS that one relying party holds. Its methods are called one at a time. Who may upload can make the relying party
// trust any key; who reads is believed, as an observer is.
type Copy interface {
	// Upload has the relying party hold exactly the keys of a JWKS, and returns when its control plane says so. It may be called
	// again with the same one. After an error it may have happened all the same. It is an error if the relying party is for another
	// issuer by then than Read said last.
	Upload(ctx context.Context, jwks []byte) error
	// Read returns what the control plane says that the relying party holds. One that holds none, as it fetches by itself, is an
	// error: nothing that is uploaded would count there. So is one that is gone, a [*RefusedError].
	Read(ctx context.Context) (Reading, error)
}

// Reading is what was read back.
type Reading struct {
	JWKS   []byte
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

// MaxKeys bounds the keys of an upload: Google takes no more (google.iam.v1.WorkloadIdentityPoolProvider.Oidc, jwks_json).
const MaxKeys = keystore.MaxRotating

// Uploader uploads key sets.
type Uploader struct {
	Store   keystore.Reader
	Records *observation.Store
	Place   string           // of Records, for people
	By      string           // who it is, for the record
	Now     func() time.Time // nil for the clock of this machine
	Force   bool             // upload also what is older than a version that was compared, and take it for the newest
	Rival   error            // another key set has the copy too, or its issuer URL: no key is added to it, and this is the error; nil = none has
	Adopt   bool             // a copy that never had a key of the key set was another's: what it has is no intrusion. Whether the store is the newest it does not say
}

// Result is what came of one upload.
type Result struct {
	Party      string          // what the policy calls who holds the copy
	Set        keystore.KeySet // whose keys the relying party holds now
	Uploaded   bool            // false if it held them already
	Read       time.Time
	Strangers  []keystore.KeyID // that it had and the store never had
	Back       []keystore.KeyID // that it had again, although they were taken away before, as a revoked one is
	Lost       []keystore.KeyID // published ones that it had when it was read last before, and had no more: it may be newer than the store and the records are
	Had        time.Time        // when it had those of Lost
	Unreadable string           // SHA-256, in hex, of what it had in a form that no gate reads, which may be strangers too; empty if it had not
	Adopted    bool             // it was another's until now, whose keys the strangers are
	ClockGap   string           // why the record does not count, as a sentence; empty if the clocks agree
	Refused    error            // as [Reading.Refused]
}

// attempts bounds how often an upload starts again since the key set was changed meanwhile.
const attempts = 5

// Sync has the relying party that a policy names hold the published keys of a key set, and records what it was seen to hold before
// and after. If the key set is changed meanwhile it goes on until that is what is held: of two that run side by side the later
// one may have read the older version.
func (u Uploader) Sync(ctx context.Context, n keystore.Name, party string, c Copy) (Result, error) {
	r := run{Uploader: u, to: c, Result: Result{Party: party}}
	err := r.sync(ctx, n)
	return r.Result, err
}

// run is one upload.
type run struct {
	Uploader
	to   Copy
	adds keystore.KeyID // a published key that the copy lacked when it was read last; empty if there was none
	Result
}

// Refuse records that a copy is not brought up to date, and why.
func (u Uploader) Refuse(ctx context.Context, n keystore.Name, party string, why error) error {
	r := run{Uploader: u, Result: Result{Party: party}}
	return r.failed(ctx, n, why)
}

func (u *run) sync(ctx context.Context, n keystore.Name) error {
	for range attempts {
		s, revision, err := u.Store.Load(ctx, n)
		if err == nil {
			err = uploadable(s, u.Party)
		}
		if err != nil {
			return err
		}
		if !u.Force {
			if err := CheckBehind(ctx, u.Records, s, u.Party); err != nil {
				return errors.Join(err, u.failed(ctx, n, err))
			}
		}
		u.Set = s
		failed := u.once(ctx, s)
		if failed != nil {
			failed = fmt.Errorf("%s: %w", text.OneLine(u.Party, 300), failed)
		}
		// After an error too: an upload that happened all the same has put the older keys over what another run had read back since.
		_, now, err := u.Store.Load(ctx, n)
		if err != nil || now == revision {
			return errors.Join(failed, err)
		}
	}
	return fmt.Errorf("%s: key set %q was changed again and again while its keys were uploaded; try again", text.OneLine(u.Party, 300), n)
}

// BehindError reports that the store has an older key set than one that the copy was compared with: a replica that is behind, or a
// backup that was put back, whatever was changed in it since. What it still publishes may have been revoked.
type BehindError struct {
	Set              keystore.Name
	Stored, Recorded int64            // generations
	Revived          keystore.KeyID   // a key that is published and was gone in the recorded version; empty if that is not known
	Unknown          []keystore.KeyID // keys that the copy has and the store never had, while nothing was recorded of the copy
	Uploaded         bool             // its keys were uploaded before this was known, over newer ones that somebody else had uploaded meanwhile
}

func (e *BehindError) Error() string {
	if len(e.Unknown) > 0 {
		return fmt.Sprintf("nothing was recorded here of the copy, which has %s, and key set %q never had that in this store, so nothing is uploaded: "+
			"use the store and the place for observations that have the newest", ids(e.Unknown), e.Set)
	}
	why := fmt.Sprintf("generation %d already", e.Recorded)
	switch {
	case e.Stored < e.Recorded:
	case e.Revived != "":
		why = fmt.Sprintf("generation %d, in which key %s is gone that is published here", e.Recorded, text.OneLine(string(e.Revived), 100))
	default:
		why = "another version of that generation already"
	}
	said := fmt.Sprintf("key set %q is generation %d in this store, and the copy was compared with %s, so ", e.Set, e.Stored, why)
	if e.Uploaded {
		return said + "what was uploaded just now may have brought back a key that was revoked: upload from the store that has the newest, at once"
	}
	return said + "nothing is uploaded: use the store that has the newest"
}

// UnknownError reports that what was recorded of the copy cannot be loaded, so that nobody knows whether the store is behind it, and that
// the upload would add a key. Somebody may have damaged the record to bring back one that was revoked.
type UnknownError struct {
	Set keystore.Name
	Key keystore.KeyID // that would be added
	Err error          // of loading
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("what was recorded of the copy cannot be loaded, so whether key set %q is behind in this store is not known, and key %s, which the copy lacks, "+
		"may have been revoked, so nothing is uploaded: mend the record, or remove it (%v)", e.Set, text.OneLine(string(e.Key), 100), e.Err)
}

func (e *UnknownError) Unwrap() error { return e.Err }

// UnrecordedError reports that nothing was recorded of a copy that has keys, and that the upload would add one. Where the place of the records
// is another than usual, or was lost, a store that is behind would bring back a key that was revoked.
type UnrecordedError struct {
	Set   keystore.Name
	Key   keystore.KeyID // that would be added
	Place string         // as [Uploader]
}

func (e *UnrecordedError) Error() string {
	return fmt.Sprintf("nothing was recorded of the copy in %s, so whether a key of key set %q was taken away from it is unknown, and key %s, which the copy lacks, may have been revoked, so nothing is uploaded",
		cmp.Or(e.Place, "this place for observations"), e.Set, text.OneLine(string(e.Key), 100))
}

// ids names keys in one line.
func ids(all []keystore.KeyID) string {
	var names []string
	for _, id := range all {
		names = append(names, text.OneLine(string(id), 100))
	}
	return text.List(names, 3)
}

// CheckBehind returns a [*BehindError] if what was recorded of the copy that a policy names is of a later version than s: whoever
// uploads the keys of s asks this first. What cannot be loaded is no obstacle here: see [Compared], and
// [UnknownError].
func CheckBehind(ctx context.Context, records *observation.Store, s keystore.KeySet, party string) error {
	r, err := records.Load(ctx, s.Name(), observation.Place{Issuer: party})
	if err != nil {
		return nil
	}
	if e := behind(r, s); e != nil {
		return e
	}
	return nil
}

// behind compares s with the newest version of a record.
func behind(r observation.Record, s keystore.KeySet) *BehindError {
	older := r.Older(s)
	if older == nil {
		return nil
	}
	e := &BehindError{Set: s.Name(), Stored: older.Stored, Recorded: older.Recorded}
	if len(older.Revived) > 0 {
		e.Revived = older.Revived[0]
	}
	return e
}

// Compared reports whether it was recorded what a copy held, so that [CheckBehind] has something to go by. The error is of a record that
// cannot be loaded.
func Compared(ctx context.Context, records *observation.Store, n keystore.Name, party string) (bool, error) {
	r, err := records.Load(ctx, n, observation.Place{Issuer: party})
	if errors.Is(err, keystore.ErrNotFound) {
		return false, nil
	}
	return err == nil && r.NewestCompared() != nil, err
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
	case n > MaxKeys:
		return fmt.Errorf("key set %q publishes %d keys, and an upload takes %d at most; remove keys that are retired", s.Name(), n, MaxKeys)
	}
	return nil
}

// once uploads the keys of s unless they are held, and records what is read before and after.
func (u *run) once(ctx context.Context, s keystore.KeySet) error {
	jwks, err := issuer.RenderJWKS(s)
	if err != nil {
		return err
	}
	same, err := u.read(ctx, s, time.Time{})
	if lost, is := errors.AsType[*recordError](err); is && !lost.same {
		return u.unrecorded(ctx, s, jwks, lost)
	}
	if err != nil || same {
		return err
	}
	if u.Rival != nil && u.adds != "" {
		return errors.Join(u.Rival, u.failed(ctx, s.Name(), u.Rival))
	}
	// A run that is killed now leaves a reading that may not be true any more, and says so.
	began := u.failed(ctx, s.Name(), fmt.Errorf("%s began to upload generation %d, and nobody has read the copy back since", cmp.Or(u.By, "somebody unnamed"), s.Generation()))
	if err := u.to.Upload(ctx, jwks); err != nil {
		return errors.Join(err, began, u.failed(ctx, s.Name(), err))
	}
	u.Uploaded = true
	if same, err = u.read(ctx, s, u.now()); err != nil { // else it was recorded, and nothing is left to say
		return errors.Join(err, began)
	}
	if !same {
		err = errors.New("what is read back after the upload are not the published keys; somebody else may have uploaded at the same time: try again")
	}
	return err
}

// unrecorded uploads after a reading that could not be recorded, and that counts for nothing. The copy does not wait for the place of the
// records, since it may hold a key that was revoked; but where the record cannot be loaded it gets no key that it lacks, since that one may
// have been.
func (u *run) unrecorded(ctx context.Context, s keystore.KeySet, jwks []byte, lost *recordError) error {
	r, err := u.Records.Load(ctx, s.Name(), observation.Place{Issuer: u.Party})
	switch {
	case u.Rival != nil && u.adds != "":
		return errors.Join(lost, u.Rival)
	case u.Force || errors.Is(err, keystore.ErrNotFound):
	case err != nil && lost.lacks != "":
		return &UnknownError{s.Name(), lost.lacks, err}
	case err == nil:
		if e := behind(r, s); e != nil {
			return errors.Join(lost, e)
		}
	}
	if err := u.to.Upload(ctx, jwks); err != nil {
		return errors.Join(lost, err)
	}
	u.Uploaded = true
	return fmt.Errorf("the keys of generation %d were uploaded, and that is not recorded, so that no gate counts it: %w", s.Generation(), lost)
}

// read records what the relying party holds, and reports whether those are the published keys of s and no other. If s turns out to be
// behind, the error is a [*BehindError].
func (u *run) read(ctx context.Context, s keystore.KeySet, uploaded time.Time) (same bool, err error) {
	reading, err := u.to.Read(ctx)
	// Before anything is written: at another issuer's place our keys would make its tokens refused, and ours accepted as its own.
	if err == nil && !slices.ContainsFunc(s.Issuers(), func(i keystore.IssuerURL) bool { return i.String() == reading.Issuer }) {
		err = &RefusedError{fmt.Errorf("it takes tokens of the issuer %s, which is none of key set %q; correct the name in its policy, or the provider", text.OneLine(reading.Issuer, 300), s.Name())}
	}
	if err != nil {
		return false, errors.Join(err, u.failed(ctx, s.Name(), err))
	}
	at := u.now()
	held, err := pubkey.Parse("the upload", reading.JWKS)
	if err != nil {
		held = nil // for gates it has no key, and the relying party may read it otherwise
	}
	u.adds = lacking(s, held)
	lacks := u.adds
	if hasNoKey(reading.JWKS) {
		lacks = ""
	}
	sum := sha256.Sum256(reading.JWKS)
	look := observation.ReadBack(at, observation.Upload{By: u.By, Uploaded: uploaded, Digest: hex.EncodeToString(sum[:]), Generation: s.Generation(),
		Unreadable: err != nil && !hasNoKey(reading.JWKS), Compared: observation.ComparedWith(s), Forced: u.Force}, held)
	was, errWas := u.Records.Load(ctx, s.Name(), observation.Place{Issuer: u.Party})
	u.findStrangers(s, &look, was)
	if errWas == nil || errors.Is(errWas, keystore.ErrNotFound) { // else see [UnknownError]
		if e := u.unvouched(s, look, was, lacks); e != nil { // before it is recorded, which would vouch for the next run
			return false, errors.Join(e, u.failed(ctx, s.Name(), e))
		}
	}
	if !reading.Date.IsZero() {
		ahead := observation.Offset(at.Sub(reading.Date).Truncate(time.Second))
		look.ClockAhead = &ahead
	}
	unrecorded := func(err error) error {
		return &recordError{error: err, same: sameKeys(s, held), lacks: lacks}
	}
	r, err := u.Records.Add(ctx, s.Name(), observation.Place{Issuer: u.Party}, look)
	if err != nil {
		return false, unrecorded(err)
	}
	u.Read, u.ClockGap = at, look.ClockGap()
	if e := behind(r, s); e != nil { // somebody has compared the copy with a newer version since this run asked
		e.Uploaded = !uploaded.IsZero()
		return false, errors.Join(e, u.failed(ctx, s.Name(), e))
	}
	if u.Refused = reading.Refused; u.Refused != nil {
		if err := u.failed(ctx, s.Name(), &RefusedError{u.Refused}); err != nil {
			return false, unrecorded(err)
		}
	}
	return sameKeys(s, held), nil
}

// failed records why the copy could not be brought up to date, or takes no token, unless somebody ended this run.
func (u *run) failed(ctx context.Context, n keystore.Name, why error) error {
	if ctx.Err() != nil {
		return nil
	}
	_, refused := errors.AsType[*RefusedError](why)
	return u.Records.AddFailure(ctx, n, observation.Place{Issuer: u.Party}, observation.Failed{At: u.now(), By: u.By, Why: text.OneLine(why.Error(), 300), Refused: refused})
}

// findStrangers notes which of the keys that l has are somebody else's. Nobody but the owner of the store uploads to a copy that was
// ours once; one that is adopted has what it had. was is the record before this reading, the zero one if there is none that can be loaded:
// without a record it was never ours.
func (u *run) findStrangers(s keystore.KeySet, l *observation.Look, was observation.Record) {
	known := func(k observation.Key) bool { return observation.Known(s, k) }
	strangers := slices.DeleteFunc(slices.Clone(l.Keys), known)
	l.Upload.Strangers, l.Upload.Ours = strangers, len(strangers) < len(l.Keys)
	l.Upload.Adopted = u.Adopt && !l.Upload.Ours && was.Ours.IsZero() && !slices.ContainsFunc(was.Latest.Keys, known)
	u.Strangers = added(u.Strangers, strangers)
	if u.Read.IsZero() { // later readings may be of what this run did
		l.Upload.Back = was.Back(s, l.Keys)
		u.Back = added(u.Back, l.Upload.Back)
		u.Lost, u.Had = added(nil, lost(s, *l, was)), was.Latest.End
	}
	if l.Upload.Unreadable && u.Unreadable == "" {
		u.Unreadable = l.Upload.Digest
	}
	u.Adopted = u.Adopted || l.Upload.Adopted
}

// lost returns the published keys that the copy had in the reading before l. A store and its records that were put back from one backup agree
// with each other, and this alone shows that a key was revoked since.
func lost(s keystore.KeySet, l observation.Look, was observation.Record) []observation.Key {
	return slices.DeleteFunc(slices.Clone(was.Latest.Keys), func(k observation.Key) bool {
		published := slices.ContainsFunc(s.Keys(), func(h keystore.Key) bool { return h.ID() == k.ID && h.Fingerprint() == k.Fingerprint })
		return !published || l.Upload.Unreadable || slices.Contains(l.Keys, k)
	})
}

// unvouched returns an error if nothing was recorded of a copy that has keys which the store never had, or that lacks a published one: the
// store may be older than the copy, as a backup is, and its keys revoked since. Who has the newest store has its records too. To adopt the copy
// says whose it is, and not that: once the keys of a backup have all been replaced, the copy looks to it like one that was another's.
func (u *run) unvouched(s keystore.KeySet, l observation.Look, was observation.Record, lacks keystore.KeyID) error {
	if u.Force || !u.Read.IsZero() || was.NewestCompared() != nil {
		return nil
	}
	if len(l.Upload.Strangers) > 0 {
		u.Strangers = nil // the error names them
		return &BehindError{Set: s.Name(), Stored: s.Generation(), Unknown: added(nil, l.Upload.Strangers)}
	}
	if lacks != "" {
		return &UnrecordedError{s.Name(), lacks, text.OneLine(u.Place, 300)}
	}
	return nil
}

// added returns the IDs with those of keys, once each.
func added(ids []keystore.KeyID, keys []observation.Key) []keystore.KeyID {
	for _, k := range keys {
		if !slices.Contains(ids, k.ID) {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// hasNoKey reports whether a JWKS has no key for anybody who reads it.
func hasNoKey(jwks []byte) bool {
	var b bytes.Buffer
	return len(jwks) == 0 || json.Compact(&b, jwks) == nil && b.String() == `{"keys":[]}`
}

// recordError is of a reading that could not be recorded.
type recordError struct {
	error
	same  bool           // what was read are the published keys
	lacks keystore.KeyID // a published key that a copy with keys did not have; empty if there is none
}

func (e *recordError) Unwrap() error { return e.error }

// lacking returns a published key of s that is not held, by kid and material; empty if there is none.
func lacking(s keystore.KeySet, held []keystore.VerificationKey) keystore.KeyID {
	for _, k := range s.Keys() {
		if !slices.ContainsFunc(held, func(h keystore.VerificationKey) bool { return h.ID() == k.ID() && h.Fingerprint() == k.Fingerprint() }) {
			return k.ID()
		}
	}
	return ""
}

// sameKeys compares by kid, material and algorithm.
func sameKeys(s keystore.KeySet, held []keystore.VerificationKey) bool {
	published := s.Keys()
	return len(published) == len(held) && !slices.ContainsFunc(published, func(k keystore.Key) bool {
		return !slices.ContainsFunc(held, func(h keystore.VerificationKey) bool {
			return h.ID() == k.ID() && h.Fingerprint() == k.Fingerprint() && h.Alg() == k.Alg()
		})
	})
}

func (u Uploader) now() time.Time {
	if u.Now != nil {
		return u.Now().UTC()
	}
	return time.Now().UTC()
}
