//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// TestRevoke takes stolen keys out with the real keypost, and presents tokens that are signed with them, made anew each time, to
// relying parties that others wrote, until none of them takes one any more. A store, keypost mirror, keypostd and an nginx that
// caches stand between; the cache's way to keypostd is cut as soon as the key is revoked, where the name says so.
//
// What fetches is to refuse the key before the time that is printed has come. What fetches only for a kid that it does not know
// is not bound by it, and the command says so: it goes on, until it is shown such a kid.
func TestRevoke(t *testing.T) {
	s := newRevokeScene(t)
	all := []*stolen{
		{name: "one of two, cut off", cut: true, how: (*stolen).plainly},
		{name: "sole key, replaced", sole: true, how: (*stolen).replaced},
		{name: "broken document", breaks: (*stolen).breakDocument, restores: true, how: (*stolen).plainly},
		{name: "backup restored", how: (*stolen).plainly, after: (*stolen).restoreBackup},
	}
	s.publish(t, all)
	var running sync.WaitGroup
	for _, v := range all {
		running.Go(func() { v.err = v.run(t.Context()) })
	}
	running.Wait()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STOLEN KEY\tBOUND\tSTARTED ANEW\tJOSE\tGO-OIDC, RUNNING\tKUBE-APISERVER, RUNNING\tAFTER A NEW KID")
	for _, v := range all {
		if v.err != nil {
			t.Errorf("%s: %v", v.name, v.err)
		}
		v.judge(t)
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%s\t%v\n", v.name, v.bound.Sub(v.at).Round(time.Second), v.trusted(byNewGo), v.trusted(byJose), v.trusted(byGo), v.trusted(byKube), v.evicted.Round(100*time.Millisecond))
	}
	_ = w.Flush()
	t.Logf("until when tokens of the revoked key were accepted, after the revocation:\n%s", &table)
	t.Run("no restart brings one back", func(t *testing.T) { s.restarted(t, all) })
}

// The relying parties.
const (
	byNewGo = "go-oidc, started anew"
	byJose  = "npm jose"
	byGo    = "go-oidc, running"
	byKube  = "kube-apiserver, running"
)

// revokeSIE is for how long the cache that is cut off hands the key out.
const revokeSIE = 8 * time.Second

// revokedLife is how long the tokens of this scene live.
const revokedLife = 10 * time.Minute

// What the key sets declare.
var revokePolicy = []string{
	"--max-age", proofMaxAge.String(), "--stale-while-revalidate", proofSWR.String(), "--stale-if-error", revokeSIE.String(),
	"--relying-party", "vault", "--relying-party", "kube-apiserver",
}

// stolen is an issuer one of whose keys is stolen.
type stolen struct {
	*revokeScene
	name      string
	sole, cut bool
	restores  bool                                 // the last good version is put back before the revocation, from the mirror's directory
	breaks    func(*stolen) error                  // before the revocation; may be nil
	how       func(*stolen) []string               // the flags of the revocation
	after     func(*stolen, context.Context) error // may be nil

	id, url    string
	side       *revokeSide
	link       *link // of the cache
	key, other signingKey
	stranger   signingKey // published nowhere
	parties    map[string]func(context.Context, string) error
	backup     []byte // the document from before

	at, bound time.Time            // of the revocation; what it printed
	last      map[string]time.Time // by party, when it took a token of the stolen key last
	evicted   time.Duration        // how long that took after a token with an unknown kid
	err       error
}

func (v *stolen) plainly() []string  { return nil }
func (v *stolen) replaced() []string { return []string{"--replacement", v.other.public} }
func (v *stolen) document() string   { return filepath.Join(v.side.store, v.id+".yaml") }

// breakDocument leaves what a merge of two versions leaves.
func (v *stolen) breakDocument() error {
	return os.WriteFile(v.document(), fmt.Appendf(nil, "<<<<<<< HEAD\n%s=======\n%s>>>>>>> theirs\n", v.backup, v.backup), 0o600)
}

// restoreBackup puts the store back to before the revocation. A revocation that is run again finds that out.
func (v *stolen) restoreBackup(ctx context.Context) error {
	if err := os.WriteFile(v.document(), v.backup, 0o600); err != nil {
		return err
	}
	for until := time.Now().Add(4 * time.Second); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
		if v.try(ctx, byNewGo, v.key) {
			return fmt.Errorf("the restored backup brought the key back")
		}
	}
	return nil
}

var boundForm = regexp.MustCompile(`may go on trusting it until (\S+)\n`)

// run revokes the key, and presents its tokens to everybody until some time after the bound. It waits for what --wait promises.
func (v *stolen) run(ctx context.Context) error {
	if err := v.everybodyTakes(ctx, v.key); err != nil {
		return err
	}
	if v.breaks != nil {
		if err := v.breaks(v); err != nil {
			return err
		}
		time.Sleep(2 * time.Second) // the mirror sees it
	}
	if v.cut {
		if err := prime(ctx, v.client, v.url+"/keys.json"); err != nil {
			return err
		}
		v.link.set(true)
	}
	v.at = time.Now()
	if v.restores {
		if r := v.keypost("store", "restore", v.id, "--from", filepath.Join(v.side.copies, v.id+".yaml"), "--force", "--why", "broken or lost", "--store", v.side.url); r.code != 0 {
			return fmt.Errorf("the restore ended with %d: %s", r.code, r.stderr)
		}
	}
	r := v.keypost(append([]string{"key", "revoke", v.id, v.key.kid, "--why", "stolen", "--store", v.side.url}, v.how(v)...)...)
	m := boundForm.FindStringSubmatch(r.stderr)
	if r.code != 0 || m == nil {
		return fmt.Errorf("exit code %d, bound %v: %s", r.code, m, r.stderr)
	}
	var err error
	if v.bound, err = time.Parse(time.RFC3339, m[1]); err != nil {
		return err
	}
	if !strings.Contains(r.stderr, "kube-apiserver (of a cluster that trusts this issuer) without end") || !strings.Contains(r.stderr, "vault without end") {
		return fmt.Errorf("it does not say who never forgets: %s", r.stderr)
	}
	waiting := make(chan result, 1)
	go func() {
		waiting <- v.keypost("key", "revoke", v.id, v.key.kid, "--why", "stolen", "--store", v.side.url, "--wait")
	}()
	v.present(ctx, v.bound.Add(2*time.Second))
	select {
	case r := <-waiting:
		if v.cut {
			return fmt.Errorf("--wait ended with %d although the cache is cut off: %s", r.code, r.stderr)
		}
		waiting <- r
	default:
	}
	if v.cut {
		v.link.set(false)
	}
	if err := v.evict(ctx); err != nil {
		return err
	}
	select {
	case r := <-waiting:
		if r.code != 0 {
			return fmt.Errorf("--wait: exit code %d: %s", r.code, r.stderr)
		}
	case <-time.After(patience):
		return fmt.Errorf("--wait does not end")
	}
	if v.after != nil {
		return v.after(v, ctx)
	}
	return nil
}

// try reports whether a relying party takes a token that is signed with a key now.
func (v *stolen) try(ctx context.Context, party string, key signingKey) bool {
	return v.parties[party](ctx, mintWith(key, v.url, revokedLife).text) == nil
}

// everybodyTakes waits until each relying party takes tokens of a key: a kube-apiserver fetches some moments after its start.
func (v *stolen) everybodyTakes(ctx context.Context, key signingKey) error {
	for party := range v.parties {
		var err error
		for until := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
			err = v.parties[party](ctx, mintWith(key, v.url, revokedLife).text)
			if err == nil || time.Now().After(until) {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("%s never takes the key: %w", party, err)
		}
	}
	return nil
}

// present shows everybody tokens of the stolen key until a time.
func (v *stolen) present(ctx context.Context, until time.Time) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for party := range v.parties {
		all.Go(func() {
			for time.Now().Before(until) {
				now := time.Now() // what was fetched later must not count as earlier
				if v.try(ctx, party, v.key) {
					mu.Lock()
					v.last[party] = now
					mu.Unlock()
				}
				time.Sleep(300 * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// evict shows those that keep their copy a token with a kid that they do not know, and waits until they refuse the stolen key.
func (v *stolen) evict(ctx context.Context) error {
	began := time.Now()
	for _, party := range []string{byGo, byKube} {
		for until := began.Add(patience); ; time.Sleep(300 * time.Millisecond) {
			if v.try(ctx, party, v.stranger) {
				return fmt.Errorf("%s takes a token of a stranger", party)
			}
			if !v.try(ctx, party, v.key) {
				break
			}
			if time.Now().After(until) {
				return fmt.Errorf("%s takes tokens of the stolen key although it was shown an unknown kid", party)
			}
		}
	}
	v.evicted = time.Since(began)
	return nil
}

// trusted returns for how long a relying party took tokens of the key after it was revoked.
func (v *stolen) trusted(party string) string {
	last, took := v.last[party]
	switch {
	case !took || last.Before(v.at):
		return "-"
	case last.After(v.bound):
		return "no end"
	}
	return last.Sub(v.at).Round(100 * time.Millisecond).String()
}

func (v *stolen) judge(t *testing.T) {
	for _, party := range []string{byNewGo, byJose} {
		if v.last[party].After(v.bound) {
			t.Errorf("%s: %s took a token of the revoked key %v after the printed time", v.name, party, v.last[party].Sub(v.bound))
		}
	}
	if held := v.last[byNewGo].Sub(v.at); v.cut && held < proofMaxAge+revokeSIE-4*time.Second {
		t.Errorf("%s: the cache that was cut off handed the key out for %v only: it shows little", v.name, held)
	}
	for _, party := range []string{byGo, byKube} {
		if !v.last[party].After(v.bound) {
			t.Errorf("%s: %s forgets a key by itself; the command says that it does not", v.name, party)
		}
	}
}
