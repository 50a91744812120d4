package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/keypost/keypost/keystore"
)

// probe is the object beside the key sets on which the server has to prove that it honours conditions. It stays: removing it would need a
// permission that no writer of key sets should have. No listing shows it, since its name begins with a dot.
const probe = ".keypost-probe"

const probeText = "keypost tries to overwrite this object to see that the store honours conditional writes. They\n" +
	"keep two writers of a key set from undoing each other's change. It may be removed.\n"

// wrongETag is an ETag that the probe does not have.
const wrongETag = keystore.Revision("00000000000000000000000000000000")

// errNoConditions means that the store accepts conditional writes and ignores the condition. Of two concurrent changes
// of a key set it would silently lose one.
var errNoConditions = errors.New("the store ignores conditions on writes (If-None-Match, If-Match), " +
	"so a change of a key set could be lost unseen; use a store that honours them")

// prove makes the server show that it refuses what must be refused, once per Backend: to create what exists, and to
// replace another version than the named one. Servers exist that answer 200 to both and overwrite.
func (s *Backend) prove(ctx context.Context) error {
	select {
	case s.proving <- struct{}{}:
		defer func() { <-s.proving }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.proven {
		return nil
	}
	// After the first of these at the latest the probe exists.
	err := s.refuses(ctx, "")
	if errors.Is(err, errNoConditions) {
		err = s.refuses(ctx, "")
	}
	if err == nil {
		err = s.refuses(ctx, wrongETag)
	}
	s.proven = err == nil
	return err
}

// refuses is nil when the server refuses to write the probe on the condition old.
func (s *Backend) refuses(ctx context.Context, old keystore.Revision) error {
	key := s.o.dir() + probe
	_, err := s.put(ctx, key, old, []byte(probeText))
	switch {
	case err == nil:
		return fmt.Errorf("%s: %w", s.o.place(), errNoConditions)
	case conflict(err) && code(err) != "NoSuchBucket":
		return nil
	case status(err) == http.StatusNotImplemented:
		return fmt.Errorf("%s: the store does not know conditional writes (%w)", s.o.place(), s.explain(err, key))
	}
	return s.refused(err, key)
}
