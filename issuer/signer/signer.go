// Package signer signs service account tokens for a kube-apiserver that asks an external signer (KEP-740). It promises that
// only a key that is active in the cluster's key set signs, and that every published key is listed, so that a promotion makes
// every API server switch within seconds, without a restart.
//
// It follows one key set in one directory, and dials nobody but a key service. It goes on with the last good version while the directory
// is away, empty, broken or older. A key that is gone signs nothing two seconds after the directory shows it. A restart takes what the
// directory has, which is why keypost mirror never replaces a version by an older one.
//
// Source: https://github.com/kubernetes/enhancements/tree/master/keps/sig-auth/740-service-account-external-signing
package signer

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// Key is a private key. The key set may have it under any key ID: keys are compared by their material.
type Key interface {
	// Public returns the verification key.
	Public() keystore.VerificationKey
	// Sign signs a digest: PKCS #1 v1.5 for RSA, ASN.1 for ECDSA, as [crypto.Signer] does. It returns once ctx is done.
	Sign(ctx context.Context, digest []byte, hash crypto.Hash) ([]byte, error)
}

// Config is what a Signer needs. All of it is required.
type Config struct {
	Backend keystore.Backend // the directory, which keypost mirror fills
	Name    keystore.Name    // the cluster's key set
	// Keys returns the private keys that are held now. With an error they are some of them, and those from before are used as well.
	Keys func(ctx context.Context) ([]Key, error)
	Log  *zap.Logger
}

// perCall is a log for lines that callers can cause at will: one line of a kind each second.
func perCall(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Second, 1, 0)
	}))
}

// poll is how often the directory and the keys are read. A revoked key signs nothing two seconds after the directory shows it.
const poll = time.Second

// Signer answers from an immutable state in memory. Run replaces it.
type Signer struct {
	c       Config
	state   atomic.Pointer[state]
	tokens  tokens
	metrics metrics
	perCall *zap.Logger

	mu       sync.Mutex // guards what follows, and makes one state at a time
	set      keystore.KeySet
	accepted *lastgood.Summary // of set; nil before the first version
	revision keystore.Revision // what was read last, good or not
	rejected error             // why that one is not followed; nil if it is
	held     []Key
	keysRead bool // held is known

	// What was logged last, so that each change of state is one line.
	setTrouble, keyTrouble, signer logged
}

// New returns a Signer that has read nothing yet.
func New(c Config) (*Signer, error) {
	empty, err := nobodys()
	if err != nil {
		return nil, err
	}
	s := &Signer{c: c, metrics: newMetrics(), perCall: perCall(c.Log)}
	s.state.Store(&state{nobodys: empty, noKey: "no key set has been read yet"})
	return s, nil
}

// Run reads the key set and the private keys every second until ctx is done. A key service that does not answer holds up no revocation.
func (s *Signer) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { every(ctx, func() { s.hold(ctx, time.Now()) }) })
	both.Go(func() { every(ctx, func() { _ = s.follow(ctx, time.Now()) }) }) // the log and the metrics show the error
	both.Wait()
}

func every(ctx context.Context, do func()) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		do()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Refresh reads the private keys and the key set, and answers from them from then on. It returns an error if the key set cannot be
// read or may not follow the last good one. The last good one then stays.
func (s *Signer) Refresh(ctx context.Context, now time.Time) error {
	s.hold(ctx, now)
	return s.follow(ctx, now)
}

// hold takes over the private keys that are held now.
func (s *Signer) hold(ctx context.Context, now time.Time) {
	held, err := s.c.Keys(ctx)
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		held = append(held, s.held...)
	}
	s.held, s.keysRead = unique(held), true
	s.noteKeys(err)
	s.answer(now)
}

// follow takes over the stored key set.
func (s *Signer) follow(ctx context.Context, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.read(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // a stop is not the store's fault
	}
	s.noteKeySet(err)
	if err == nil {
		s.metrics.read.Set(float64(now.Unix()))
	}
	s.answer(now)
	return err
}

// read takes the stored version over if it may follow the last good one.
func (s *Signer) read(ctx context.Context) error {
	doc, revision, err := s.c.Backend.Get(ctx, s.c.Name)
	if err != nil {
		return fmt.Errorf("load key set %q: %w", s.c.Name, err)
	}
	if revision != s.revision { // to parse one takes memory and time, and a broken one stays for long
		s.revision, s.rejected = revision, s.accept(doc)
	}
	return s.rejected
}

func (s *Signer) accept(doc []byte) error {
	set, err := keystore.Parse(s.c.Name, doc)
	if err != nil {
		return err
	}
	summary := lastgood.SummaryOf(set)
	if rejected := summary.Follows(s.accepted); rejected != nil {
		return fmt.Errorf("key set %q: %s", s.c.Name, rejected.Message)
	}
	s.set, s.accepted = set, &summary
	return nil
}

// answer makes the state from what has been read.
func (s *Signer) answer(now time.Time) {
	if s.accepted == nil {
		return
	}
	is := s.state.Load().next(s.set, s.held, now)
	s.state.Store(is)
	s.metrics.generation.Set(float64(s.set.Generation()))
	if s.metrics.maySign.Set(0); is.signs != nil {
		s.metrics.maySign.Set(1)
	}
	switch {
	case !s.keysRead: // nobody knows yet which key signs
	case is.signs == nil && s.signer.changes(is.noKey):
		s.c.Log.Error("no key may sign", zap.String("why", is.noKey))
	case is.signs != nil && is.passed != "" && s.signer.changes(string(is.signs.id)+is.passed):
		s.c.Log.Warn("signing with an older key", zap.String("kid", string(is.signs.id)), zap.String("why", is.passed))
	case is.signs != nil && is.passed == "" && s.signer.changes(string(is.signs.id)):
		s.c.Log.Info("signing", zap.String("kid", string(is.signs.id)), zap.String("alg", is.signs.alg), zap.Int64("generation", s.set.Generation()))
	}
}

func (s *Signer) noteKeySet(err error) {
	switch {
	case !s.setTrouble.changes(message(err)):
	case err == nil:
		s.c.Log.Info("the key set can be read again")
	default:
		s.c.Log.Warn("the key set cannot be read; the last good one stays", zap.Error(err))
	}
}

func (s *Signer) noteKeys(err error) {
	switch {
	case !s.keyTrouble.changes(message(err)):
	case err == nil:
		s.c.Log.Info("the private keys can be read again")
	default:
		s.c.Log.Warn("the private keys cannot be read; those from before stay", zap.Error(err))
	}
}

// logged is what the log said last about one thing.
type logged string

// changes reports whether text is something else, and notes it.
func (l *logged) changes(text string) bool {
	was := *l
	*l = logged(text)
	return was != *l
}

// unique returns one of the keys of each material, so that the keys from before do not add up.
func unique(keys []Key) []Key {
	seen := map[keystore.Fingerprint]bool{}
	return slices.DeleteFunc(keys, func(k Key) bool {
		f := k.Public().Fingerprint()
		twice := seen[f]
		seen[f] = true
		return twice
	})
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Ready returns nil if a key may sign.
func (s *Signer) Ready() error {
	if is := s.state.Load(); is.signs == nil {
		return errors.New(is.noKey)
	}
	return nil
}

// Signs returns the ID of the key that signs, empty if none may. The reason says why one that was promoted later does not; it is empty
// if there is none.
func (s *Signer) Signs() (id keystore.KeyID, reason string) {
	if is := s.state.Load(); is.signs != nil {
		return is.signs.id, is.passed
	}
	return "", ""
}
