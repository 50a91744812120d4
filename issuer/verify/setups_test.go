package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// setup is an issuer that is really broken on loopback, and the cause that is named first.
type setup struct {
	name     string
	cause    string           // empty when nothing is wrong
	severity finding.Severity // empty for Fail
	build    func(t *testing.T, w *world)
	repair   func(t *testing.T, w *world) // does what the finding says; nil: serve what the store has, as keypostd does
}

// setups is the table of broken set-ups, in the order of the catalogue.
func setups() []setup {
	return slices.Concat(
		reachSetups(), tlsSetups(), fetchSetups(), discoverySetups(), headerSetups(),
		keySetups(), partySetups(), storedSetups(), activeSetups(), uploadSetups(), storeSetups(), replicaSetups(), cacheSetups(), tokenSetups(), tokenClaimSetups(),
	)
}

// TestSetups: verify names the true cause first, says what to do, and what it says makes the finding go.
func TestSetups(t *testing.T) {
	var mu sync.Mutex
	seen, begun := map[string]bool{}, 0
	t.Run("each", func(t *testing.T) {
		for _, s := range setups() {
			t.Run(s.name, func(t *testing.T) {
				begun++
				t.Parallel()
				w := newWorld(t)
				s.build(t, w)
				found := w.visit(t)
				s.check(t, found)
				if s.repair == nil {
					w.heal(t)
				} else {
					s.repair(t, w)
				}
				checkRepaired(t, s.cause, w.visit(t))
				mu.Lock()
				defer mu.Unlock()
				for _, f := range found {
					seen[f.Code] = true
				}
			})
		}
	})
	if begun < len(setups()) {
		return // only some were asked for, with -run
	}
	for _, c := range finding.Causes() {
		if about := c.Area(); about == "The cluster" || about == "AWS" {
			continue // the tests of provision and of Compare lead to these
		}
		if !seen[c.Code] && !t.Failed() {
			t.Errorf("no set-up leads to %s, so nobody knows whether it is ever found", c.Code)
		}
	}
}

// trouble returns the findings that are not as they should be.
func trouble(findings []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f finding.Finding) bool { return f.Severity == finding.OK })
}

func (s setup) check(t *testing.T, findings []finding.Finding) {
	t.Helper()
	bad := trouble(findings)
	if len(bad) == 0 || bad[0].Code != s.cause || bad[0].Severity != cmp.Or(s.severity, finding.Fail) {
		t.Errorf("want %s %s first in%s", cmp.Or(s.severity, finding.Fail), s.cause, lines(bad))
	}
	for _, f := range bad {
		c := finding.CauseOf(f.Code)
		if f.Repair == "" || f.Evidence == "" || f.Check != c.Check || !slices.Equal(f.Answers, c.Answers) {
			t.Errorf("not whole: %+v", f)
		}
		if strings.ContainsAny(fmt.Sprint(f), "\n\r\x1b") {
			t.Errorf("control characters: %+v", f)
		}
	}
}

func checkRepaired(t *testing.T, cause string, findings []finding.Finding) {
	t.Helper()
	for _, f := range trouble(findings) {
		if f.Code == cause || f.Severity == finding.Fail {
			t.Errorf("after the repair of %s:%s", cause, lines([]finding.Finding{f}))
		}
	}
}

func lines(findings []finding.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "\n\t%s %s: %s", f.Severity, f.Code, f.Message())
	}
	return b.String()
}

// TestHealthy: where nothing is wrong, nothing fails.
func TestHealthy(t *testing.T) {
	for _, s := range healthySetups() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s.build(t, w)
			for _, f := range trouble(w.visit(t)) {
				if f.Severity == finding.Fail || s.severity == finding.OK {
					t.Errorf("found%s", lines([]finding.Finding{f}))
				}
			}
		})
	}
}
