package page

import (
	"cmp"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
)

// Timeline is when each key was, is and may be what, over the same time. It is drawn by the server: the page runs no script.
type Timeline struct {
	From, To time.Time
	Now      int // as every place in it: of Width
	Lines    []Line
}

// Width is how wide a time line is drawn, in its own units.
const Width = 1000

// Line is the time of one key.
type Line struct {
	Kid   keystore.KeyID
	State keystore.State
	Parts []Part
	Gate  int       // where its next step opens at the earliest; -1 if no time is known
	Opens time.Time // the same
}

// Part is a time in one state, from X on.
type Part struct {
	State   keystore.State
	X, Wide int
	Later   bool // it is not over or has not begun: so it will be if the steps are taken as soon as they may be
}

// period is a time in one state; one without an end lasts.
type period struct {
	state    keystore.State
	from, to time.Time
}

// periods returns the states of a key, and when the gate that it waits for opens.
func periods(k Key) (all []period, gate time.Time) {
	promoted := k.PromotedAt
	switch k.State {
	case keystore.Next:
		if k.Next != nil {
			gate = k.Next.Opens
			if gate.IsZero() {
				gate = k.Next.Earliest
			}
		}
		if all = append(all, period{keystore.Next, k.PublishedAt, gate}); !gate.IsZero() {
			all = append(all, period{keystore.Active, gate, time.Time{}})
		}
		return all, gate
	case keystore.Active:
		all = []period{{keystore.Active, promoted, time.Time{}}}
	case keystore.Retired:
		all = []period{{keystore.Active, promoted, k.RetiredAt}, {keystore.Retired, k.RetiredAt, k.TrustedUntil}}
		gate = k.TrustedUntil
	}
	if promoted.After(k.PublishedAt) {
		all = append([]period{{keystore.Next, k.PublishedAt, promoted}}, all...)
	}
	return all, gate
}

// longest bounds what a time line shows: a document may have any times.
const longest = 10 * 366 * 24 * time.Hour

// timelineOf returns the time line of keys: from a little before what is under way has begun until a little after its last gate. Where
// nothing is, from when the oldest key was published.
func timelineOf(keys []Key, now time.Time) *Timeline {
	if len(keys) == 0 {
		return nil
	}
	oldest, newest := []time.Time{now}, []time.Time{now}
	waits := slices.ContainsFunc(keys, func(k Key) bool { return k.State != keystore.Active })
	for _, k := range keys {
		_, gate := periods(k)
		newest = append(newest, gate)
		switch {
		case k.State == keystore.Next || !waits:
			oldest = append(oldest, k.PublishedAt)
		case k.State == keystore.Retired:
			oldest = append(oldest, k.RetiredAt)
		}
	}
	ahead := min(slices.MaxFunc(newest, time.Time.Compare).Sub(now), longest)
	behind := min(now.Sub(slices.MinFunc(oldest, time.Time.Compare)), longest)
	room := max((ahead+behind)/8, 10*time.Minute)
	t := &Timeline{From: now.Add(-behind - room).Truncate(time.Minute), To: now.Add(ahead + room).Truncate(time.Minute)}
	t.Now = t.place(now)
	for _, k := range keys {
		t.Lines = append(t.Lines, t.line(k, now))
	}
	return t
}

// place returns where a moment is.
func (t *Timeline) place(at time.Time) int {
	whole := t.To.Sub(t.From)
	return int(float64(min(max(at.Sub(t.From), 0), whole)) / float64(whole) * Width)
}

func (t *Timeline) line(k Key, now time.Time) Line {
	all, gate := periods(k)
	l := Line{Kid: k.ID(), State: k.State, Gate: -1, Opens: gate}
	if !gate.IsZero() {
		l.Gate = t.place(gate)
	}
	for _, p := range all {
		end := p.to
		if end.IsZero() {
			end = t.To
		}
		over := slices.MinFunc([]time.Time{end, now}, time.Time.Compare)
		begun := slices.MaxFunc([]time.Time{p.from, now}, time.Time.Compare)
		for _, part := range []Part{
			{State: p.state, X: t.place(p.from), Wide: t.place(over) - t.place(p.from)},
			{State: p.state, X: t.place(begun), Wide: t.place(end) - t.place(begun), Later: true},
		} {
			if part.Wide > 0 {
				l.Parts = append(l.Parts, part)
			}
		}
	}
	return l
}

// Step is one of the three of a rotation.
type Step struct {
	Step  keystore.RotationStep
	State string // done, now or later
	Next  *Next  // what the one that is next waits for; nil if that is not known
}

// stepsOf returns the steps of the rotation of a key set; none without one.
func stepsOf(s keystore.KeySet, keys []Key) (all []Step) {
	r := s.Rotation()
	if r == nil {
		return nil
	}
	order := []keystore.RotationStep{keystore.StepPromote, keystore.StepRetire, keystore.StepRemove}
	for i, step := range order {
		one := Step{Step: step, State: []string{"later", "now", "done"}[1+cmp.Compare(slices.Index(order, r.Step), i)]}
		of := func(k Key) bool {
			return k.Next != nil && k.Next.Step == step && (k.ID() == r.Kid || slices.Contains(r.Replaces, k.ID()))
		}
		if at := slices.IndexFunc(keys, of); step == r.Step && at >= 0 {
			one.Next = keys[at].Next
		}
		all = append(all, one)
	}
	return all
}
