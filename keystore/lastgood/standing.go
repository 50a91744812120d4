package lastgood

import "time"

// Absence is what follows when a complete listing lacks a key set. It is never a deletion.
type Absence int

const (
	// Forgotten is what was never good: nothing is lost with it.
	Forgotten Absence = iota
	// Tidied is a tombstone, which may leave. It is remembered all the same: its keys stay away.
	Tidied
	// Missing is every other key set. Its last good version stays, and an alert reports [ReasonMissing].
	Missing
)

// AbsenceOf returns what follows when a complete listing lacks the key set with that last good version, nil for none.
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

// News is what is new about a key set. A log has one line for each change of state, and none for what is as it was.
type News int

const (
	// NoNews means that all is as it was.
	NoNews News = iota
	// Refused means that it is rejected, or for another reason than before.
	Refused
	// Replaced means that its last good version is a new one.
	Replaced
	// Restored means that what is stored is the last good version again.
	Restored
)

// NewsOf returns what is new about a key set that had the rejection was and has now; nil for none. replaced is true when
// its last good version is another one than before.
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

// StartPatience is how long a key set without a last good version keeps a fresh process from being ready. Without an
// end, one broken document would keep every replacement of a dying replica out of service.
const StartPatience = 5 * time.Minute

// Start is how far a process has come since its first complete reading of a store.
type Start struct {
	KeySets    int           // that are known
	Without    int           // those of them without a last good version
	Waited     time.Duration // since the first complete reading
	AllowEmpty bool          // it may be that there is none
}

// Ready reports whether the process may serve: every key set has a last good version, or has been waited for. One that
// has nothing at all may read the wrong place, such as a volume that is not mounted, and whoever is sent to it instead of
// to another replica would find no issuer. So it is not ready unless AllowEmpty is set.
func (s Start) Ready() bool {
	if s.Nothing() && !s.AllowEmpty {
		return false
	}
	return s.Without == 0 || s.Waited >= StartPatience
}

// Nothing reports whether there is no last good version of anything.
func (s Start) Nothing() bool { return s.Without == s.KeySets }
