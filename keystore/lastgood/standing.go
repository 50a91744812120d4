package lastgood

import "time"

// Absence classifies a key set that a complete listing lacks. It is never a deletion.
type Absence int

const (
	// Forgotten is a key set that never had a good version: nothing is lost.
	Forgotten Absence = iota
	// Tidied is a tombstone, which may be removed. It is remembered, so that its keys do not return.
	Tidied
	// Missing is every other key set. Its last good version stays, with [ReasonMissing].
	Missing
)

// AbsenceOf returns the Absence of a key set by its last good version, nil for none.
func AbsenceOf(good *Summary) Absence {
	switch {
	case good == nil:
		return Forgotten
	case good.Withdrawn():
		return Tidied
	}
	return Missing
}

// RejectMissing returns the Rejection of a key set that is [Missing].
func RejectMissing() *Rejection {
	return Reject(ReasonMissing, "the store does not hold it; its last good version stays")
}

// News is a change of state of a key set. Each is logged once.
type News int

const (
	// NoNews means that nothing has changed.
	NoNews News = iota
	// Refused means that a version is rejected, and was not or for another reason.
	Refused
	// Replaced means that there is a new last good version.
	Replaced
	// Restored means that the stored version was rejected and is the last good one again.
	Restored
)

// NewsOf returns the change from the rejection was to the rejection now, nil for none. replaced is true if there is a new
// last good version.
func NewsOf(was, now *Rejection, replaced bool) News {
	switch {
	case now != nil && (was == nil || *was != *now):
		return Refused
	case now != nil:
		return NoNews
	case replaced:
		return Replaced
	case was != nil:
		return Restored
	}
	return NoNews
}

// StartPatience is how long key sets that cannot be read keep a new process from being ready. Without a limit, one of them
// would keep every replacement of a failed replica out of service.
const StartPatience = 5 * time.Minute

// Start is the state of a process since it first read a store completely.
type Start struct {
	KeySets    int           // key sets that are known
	Without    int           // those of them without a last good version
	Waiting    int           // those of these whose [Rejection.Waits]
	Waited     time.Duration // time since the first complete reading
	AllowEmpty bool          // the store may be empty
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
