package cloud

import "fmt"

// OwnerTag is the tag that shows whose a thing is. Every thing that a run makes bears one, and nothing without it is changed
// unless it is to be adopted. The zero OwnerTag is on nothing.
type OwnerTag struct{ Key, Value string }

// On reports whether these tags have it. A tag with the key and another value does not count: ccoctl compares only the
// key, and cloud providers write "shared" for what belongs to others too.
func (o OwnerTag) On(tags map[string]string) bool { return o.Key != "" && tags[o.Key] == o.Value }

// String returns the tag, KEY=VALUE.
func (o OwnerTag) String() string { return o.Key + "=" + o.Value }

// Absent says why a thing without the tag is somebody else's. others are the names of the owners that its tags show, if any.
func (o OwnerTag) Absent(thing string, tags map[string]string, others string) string {
	value, tagged := tags[o.Key]
	switch {
	case tagged && value != o.Value:
		return fmt.Sprintf("%s bears the tag %s=%s and not %s, so it belongs to something else too", thing, o.Key, value, o)
	case others != "":
		return fmt.Sprintf("%s belongs to %s, and does not bear the tag %s", thing, others, o)
	}
	return fmt.Sprintf("%s does not bear the tag %s, so something else made it", thing, o)
}
