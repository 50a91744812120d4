package lastgood

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
)

func TestAbsenceIsNeverDeletion(t *testing.T) {
	if Missing(nil) != nil || Missing(withdrawn(claim("a", 1, 1)).summary(t)) != nil || !Missing(claim("a", 1, 1).summary(t)).Is(ReasonMissing) {
		t.Error("what was never good and a tombstone may leave, all else is missing")
	}
}

func TestIsNew(t *testing.T) {
	x, y := Reject(ReasonBroken, "it is x"), Reject(ReasonBroken, "it is y")
	for _, tc := range []struct {
		was, now *Rejection
		want     bool
	}{
		{nil, nil, false}, {x, nil, false}, {nil, x, true}, {x, Reject(ReasonBroken, "it is x"), false}, {x, y, true}, {x, Reject(ReasonDev, "it is x"), true},
	} {
		if got := tc.now.IsNew(tc.was); got != tc.want {
			t.Errorf("%v, %v: %v, want %v", tc.was, tc.now, got, tc.want)
		}
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

// Every reason that the package declares is in the list, and with each text once.
func TestReasonsAreComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Reason") && v.Names[0].Name != "ReasonUnread" {
			declared++
		}
		return true
	})
	texts := map[keystore.Reason]bool{}
	for _, r := range Reasons() {
		texts[r] = true
	}
	if declared == 0 || len(texts) != declared || len(Reasons()) != declared {
		t.Errorf("%d reasons are declared and listed: %q", declared, slices.Sorted(maps.Keys(texts)))
	}
}

func TestRejectError(t *testing.T) {
	broken := &keystore.BrokenError{Name: "a", Reason: keystore.ReasonNewerVersion, Err: errors.New("upgrade")}
	for _, tc := range []struct {
		err  error
		want *Rejection
	}{
		{nil, nil},
		{fmt.Errorf("x: %w", keystore.ErrNotFound), nil},
		{fmt.Errorf("x: %w", broken), &Rejection{Reason: ReasonNewerVersion, Message: "upgrade", Final: true}},
		{errors.New("connection refused"), &Rejection{Reason: ReasonUnreadable, Message: "connection refused"}},
		{&keystore.UnreadableError{Err: errors.New("permission denied")}, &Rejection{Reason: ReasonUnreadable, Message: "permission denied", Final: true}},
	} {
		got := RejectError(tc.err)
		if (got == nil) != (tc.want == nil) || got != nil && (got.IsNew(tc.want) || got.Final != tc.want.Final) {
			t.Errorf("%v: %+v, want %+v", tc.err, got, tc.want)
		}
	}
}

func TestTransient(t *testing.T) {
	var none *Rejection
	if none.Transient() || none.Is(ReasonBroken) {
		t.Error("no rejection is transient")
	}
	for _, r := range Reasons() {
		want := r == ReasonURLConflict || r == ReasonUnreadable
		if got := Reject(r, "x").Transient(); got != want {
			t.Errorf("%s: %v", r, got)
		}
	}
}
