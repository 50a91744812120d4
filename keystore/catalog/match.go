package catalog

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
)

// minPrefix is how many characters of a key ID must be given: enough that nobody hits another key by accident.
const minPrefix = 8

// PrefixError reports that a prefix means no key ID of those in question, or more than one.
type PrefixError struct {
	Prefix  string
	Short   bool // it is too short to be a prefix; nothing was compared
	Matches int  // how many key IDs begin with it
}

func (e *PrefixError) Error() string {
	switch {
	case e.Short:
		return fmt.Sprintf("key %q: give the key ID or at least its first %d characters", e.Prefix, minPrefix)
	case e.Matches == 0:
		return fmt.Sprintf("no key ID begins with %q", e.Prefix)
	}
	return fmt.Sprintf("prefix %q matches %d key IDs; use a longer one", e.Prefix, e.Matches)
}

// match returns the one of ids that typed means: the whole of it, or a unique prefix. The error is a [*PrefixError].
func match(ids []keystore.KeyID, typed string) (keystore.KeyID, error) {
	if slices.Contains(ids, keystore.KeyID(typed)) {
		return keystore.KeyID(typed), nil
	}
	if len(typed) < minPrefix {
		return "", &PrefixError{Prefix: typed, Short: true}
	}
	var found []keystore.KeyID
	for _, id := range ids {
		if strings.HasPrefix(string(id), typed) {
			found = append(found, id)
		}
	}
	if len(found) != 1 {
		return "", &PrefixError{Prefix: typed, Matches: len(found)}
	}
	return found[0], nil
}

// NoKeyError reports that a key set publishes no key with that key ID or prefix.
type NoKeyError struct {
	KeySet keystore.Name
	Gone   bool  // such a key has left the key set
	Err    error // why; a [*PrefixError] unless Gone is set
}

func (e *NoKeyError) Error() string { return fmt.Sprintf("key set %q: %v", e.KeySet, e.Err) }
func (e *NoKeyError) Unwrap() error { return e.Err }

// Key returns the published key that a key ID or a unique prefix of it means. The error is a [*NoKeyError].
func Key(s keystore.KeySet, typed string) (keystore.Key, error) {
	var ids []keystore.KeyID
	for _, k := range s.Keys() {
		ids = append(ids, k.ID())
	}
	id, err := match(ids, typed)
	if err == nil {
		k, _ := s.Key(id)
		return k, nil
	}
	for _, g := range s.Gone() {
		if string(g.ID) == typed || strings.HasPrefix(string(g.ID), typed) && len(typed) >= minPrefix {
			err := fmt.Errorf("key %s is gone (%s at %s)", g.ID, g.Why, g.At.UTC().Format(time.RFC3339))
			return keystore.Key{}, &NoKeyError{KeySet: s.Name(), Gone: true, Err: err}
		}
	}
	return keystore.Key{}, &NoKeyError{KeySet: s.Name(), Err: err}
}
