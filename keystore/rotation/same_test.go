package rotation

import (
	"testing"

	"github.com/keypost/keypost/keystore"
)

func TestSame(t *testing.T) {
	was := &keystore.Rotation{ID: "2026-03-01T12:00:00Z", Kid: "new", Step: keystore.StepRetire}
	with := func(edit func(r *keystore.Rotation)) *keystore.Rotation {
		r := *was
		edit(&r)
		return &r
	}
	for name, tt := range map[string]struct {
		now  *keystore.Rotation
		want bool
	}{
		"the same":            {with(func(r *keystore.Rotation) { r.By = "somebody else" }), true},
		"none":                {nil, false},
		"another to that key": {with(func(r *keystore.Rotation) { r.ID = "2026-03-01T12:00:01Z" }), false},
		"turned around":       {with(func(r *keystore.Rotation) { r.Kid = "old" }), false},
		"a step further":      {with(func(r *keystore.Rotation) { r.Step = keystore.StepRemove }), false},
	} {
		if got := same(was, tt.now); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
