package lastgood

import (
	"testing"
	"time"
)

func TestAbsenceIsNeverDeletion(t *testing.T) {
	if Missing(nil) != nil || Missing(withdrawn(claim("a", 1, 1)).summary(t)) != nil || !Missing(claim("a", 1, 1).summary(t)).Is(ReasonMissing) {
		t.Error("what was never good and a tombstone may leave, all else is missing")
	}
}

func TestStart(t *testing.T) {
	for _, tc := range []struct {
		start Start
		want  bool
	}{
		{Start{KeySets: 2}, true},
		{Start{KeySets: 2, Without: 1}, true},
		{Start{KeySets: 3, Without: 2, Waiting: 1}, false},
		{Start{KeySets: 2, Without: 1, Waiting: 1, Waited: StartPatience - 1}, false},
		{Start{KeySets: 2, Without: 1, Waiting: 1, Waited: StartPatience}, true},
		{Start{KeySets: 2, Without: 2, Waited: time.Hour}, false},
		{Start{KeySets: 2, Without: 2, Waiting: 2, AllowEmpty: true}, false},
		{Start{KeySets: 2, Without: 2, AllowEmpty: true}, true},
		{Start{Waited: time.Hour}, false},
		{Start{AllowEmpty: true}, true},
	} {
		if got := tc.start.Ready(); got != tc.want {
			t.Errorf("%+v: ready %v", tc.start, got)
		}
	}
}
