package watch

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/storetest"
)

func TestVerdict(t *testing.T) {
	whole := observation.Look{Answers: 16}
	for want, outcomes := range map[Verdict][]outcome{
		Everywhere: {{sight: verify.Sight{Look: whole}}, {sight: verify.Sight{Look: whole, Findings: []finding.Finding{{Severity: finding.OK}}}}},
		NotYet:     {{sight: verify.Sight{Look: whole, Findings: []finding.Finding{{Severity: finding.Warn, Evidence: "older"}}}}},
		Different: {{sight: verify.Sight{Look: observation.Look{Answers: 16, Gaps: []string{"x"}}, Findings: []finding.Finding{
			{Severity: finding.Warn, Evidence: "older"}, {Code: "jwks-behind", Severity: finding.Fail, Evidence: "other keys"}}}}},
		NotSeen: {{err: errors.New("no such host")}, {sight: verify.Sight{Look: whole, NotCompared: "store away"}}, {sight: verify.Sight{Look: observation.Look{Answers: 2, Gaps: []string{"x"}}}}},
	} {
		for _, o := range outcomes {
			if got := o.verdict(); got != want {
				t.Errorf("%+v: %d, want %d", o, got, want)
			}
		}
	}
}

func (sc *scene) seen() string {
	text := ""
	for _, s := range sc.Seen() {
		text += fmt.Sprintf("%s:%d:%d ", s.KeySet, s.Generation, s.Verdict)
	}
	return text
}

// Anyone who waits for a change to be published is not told of the version before, and does not wait for the next turn.
func TestSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newScene(t, "a", "b")
		sc.c.Every = time.Hour
		sc.run(t)
		sc.wait(time.Minute)
		if got, want := sc.seen(), fmt.Sprintf("a:1:%d b:1:%d ", Everywhere, Everywhere); got != want {
			t.Fatalf("after the first looks: %s, want %s", got, want)
		}
		change := func(n keystore.Name, f func(keystore.KeySet) (keystore.KeySet, error)) {
			_, err := keystore.Update(t.Context(), sc.store.Store, n, f)
			check(t, err)
		}
		change("a", func(s keystore.KeySet) (keystore.KeySet, error) {
			p := s.Policy()
			p.MaxAge = new(keystore.Duration(10 * time.Minute))
			return s.SetPolicy(storetest.Change(time.Hour), p)
		})
		sc.mu.Lock()
		sc.sees = func(ctx context.Context, u string) (verify.Sight, error) {
			return verify.Sight{}, errors.New("no such host")
		}
		sc.mu.Unlock()
		sc.wait(reread + time.Second) // it is known, and not yet looked at
		for range 60 {
			if got := sc.seen(); got != fmt.Sprintf("b:1:%d ", Everywhere) && got != fmt.Sprintf("a:2:%d b:1:%d ", NotSeen, Everywhere) {
				t.Fatalf("while a is looked at again: %s", got)
			}
			sc.wait(time.Second)
		}
		if got, want := sc.seen(), fmt.Sprintf("a:2:%d b:1:%d ", NotSeen, Everywhere); got != want {
			t.Fatalf("after a minute: %s, want %s", got, want)
		}
		looks := sc.count("a")
		sc.wait(10 * time.Minute)
		if more := sc.count("a") - looks; more > 0 {
			t.Errorf("an issuer that cannot be seen was looked at %d more times in ten minutes of an hour", more)
		}
		change("b", func(s keystore.KeySet) (keystore.KeySet, error) { return s.Withdraw(storetest.Change(time.Hour)) })
		sc.wait(reread + time.Second)
		if got, want := sc.seen(), fmt.Sprintf("a:2:%d b:2:%d ", NotSeen, Ended); got != want {
			t.Fatalf("after b was withdrawn: %s, want %s", got, want)
		}
	})
}
