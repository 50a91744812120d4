package lastgood

import "time"

// Missing returns the Rejection of a key set that a complete listing does not have, by its last good version, which stays: absence
// is never a deletion. It returns nil where nothing is lost: there was never a good version (nil), or it is a tombstone,
// which may be removed and is remembered, so that its keys do not return.
func Missing(good *Summary) *Rejection {
	if good == nil || good.withdrawn {
		return nil
	}
	return Reject(ReasonMissing, "the store does not hold it; its last good version stays")
}

// StartPatience is how long key sets that cannot be read keep a new process from being ready. Without a limit, one of them
// would keep every replacement of a failed replica out of service.
const StartPatience = 5 * time.Minute

// Start is the state of a process since it first read a store completely.
type Start struct {
	KeySets    int           // key sets that are known
	Without    int           // those of them without a last good version
	Waiting    int           // those of these whose [Rejection] is not final
	Waited     time.Duration // time since the first complete reading
	AllowEmpty bool          // the store may be empty
}

// Count adds a key set: whether it has a last good version, and why the stored version is not that one. One that must not be served
// here counts only if it is.
func (s *Start) Count(good bool, r *Rejection) {
	if !good && r.Expected() {
		return
	}
	s.KeySets++
	if !good {
		s.Without++
		if r.Waits() {
			s.Waiting++
		}
	}
}

// Ready reports whether the process may serve: no key set without a last good version can get one by waiting, or
// StartPatience is over. A document that is broken or refused holds nobody up. A process without any last good version may
// read the wrong place, such as a volume that is not mounted. It is not ready unless AllowEmpty is set, so that no client is
// sent to it instead of to a good replica.
func (s Start) Ready() bool {
	if s.Nothing() && !s.AllowEmpty {
		return false
	}
	return s.Waiting == 0 || s.Waited >= StartPatience
}

// Nothing reports whether no key set has a last good version.
func (s Start) Nothing() bool { return s.Without == s.KeySets }
