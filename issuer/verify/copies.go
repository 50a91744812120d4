package verify

import (
	"context"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// checkCopies compares what was read back of each upload that the policy names with the stored keys. Nobody is asked: who uploads
// has the credentials.
func (v *visitor) checkCopies(ctx context.Context) {
	set := v.known
	if set.Withdrawn() || len(set.Policy().Uploads()) == 0 {
		return
	}
	unknown := v.Warn
	if set.Policy().Reach == keystore.ReachCopies {
		unknown = v.Fail // nothing at all was compared
	}
	if v.o.Uploads == nil {
		unknown("copies-unknown", "key set %q names copies that relying parties hold, and nothing says what was read back of them", set.Name())
		return
	}
	records, err := v.o.Uploads(ctx, set)
	if err != nil {
		unknown("copies-unknown", "what was read back of the copies that key set %q names cannot be read: %v", set.Name(), err)
		return
	}
	for _, c := range observation.Copies(set, records) {
		code := map[observation.CopyState]string{observation.CopyUnread: "copy-unread", observation.CopyBehind: "copy-behind", observation.CopyAhead: "copy-ahead"}[c.State]
		switch {
		case c.Older != nil: // first, since the repair of all others is to upload
			v.Fail("copy-newer", "%s", outdated(c))
		case c.Refused():
			v.Fail("copy-refused", "%s", withFailure(c))
		case code == "" && c.Failed != nil:
			unknown("copy-unread", "%s", c.Failure())
		case code == "" && c.Stale(time.Now()):
			unknown("copy-unread", "the copy %s had the published keys when it was read back last, at %s, and nobody has looked since", printable(c.Upload), stamp(c.ReadAt))
		case code == "":
			v.OK("copies", "the copy %s was read back at %s with the published keys", printable(c.Upload), stamp(c.ReadAt))
		case c.Broken:
			v.Fail(code, "%s", withFailure(c))
		default:
			v.Warn(code, "%s", withFailure(c))
		}
		if intruded := c.Intrusion(); intruded != "" {
			v.Warn("copy-intruded", "%s", intruded) // what is wrong now failed above; this tells of what was possible until it was undone
		}
	}
}

// outdated says that the stored key set is older than what a copy was compared with, and how they differ.
func outdated(c observation.Copy) string {
	if c.State == observation.CopyCurrent {
		return c.Outdated()
	}
	return c.Outdated() + "; " + c.Difference()
}

// withFailure says how a copy differs, and why that may have changed since.
func withFailure(c observation.Copy) string {
	if c.Failed == nil {
		return c.Difference()
	}
	if c.State == observation.CopyCurrent {
		return c.Failure()
	}
	return c.Difference() + "; " + c.Failure()
}
