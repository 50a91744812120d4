package cloud

import "fmt"

// Mark is the tag that shows whose a thing is. Every thing that a run makes bears one, and nothing without it is changed
// unless it is to be adopted. The zero Mark is on nothing.
type Mark struct{ Key, Value string }

// On reports whether these tags have the mark. A tag with the key and another value does not count: ccoctl compares the key
// alone, and cloud providers write "shared" for what belongs to others too.
func (m Mark) On(tags map[string]string) bool { return m.Key != "" && tags[m.Key] == m.Value }

// String returns the tag, KEY=VALUE.
func (m Mark) String() string { return m.Key + "=" + m.Value }

// Absent says why a thing without the mark is somebody else's. others are the names of the owners that its tags show, if any.
func (m Mark) Absent(thing string, tags map[string]string, others string) string {
	value, tagged := tags[m.Key]
	switch {
	case tagged && value != m.Value:
		return fmt.Sprintf("%s bears the tag %s=%s and not %s, so it belongs to something else too", thing, m.Key, value, m)
	case others != "":
		return fmt.Sprintf("%s belongs to %s, and does not bear the tag %s", thing, others, m)
	}
	return fmt.Sprintf("%s does not bear the tag %s, so something else made it", thing, m)
}
