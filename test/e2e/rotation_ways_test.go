//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"time"
)

// cutOff runs what puts the next key into the JWKS, after the second cache was primed and cut off. The cut ends with the time
// for which the cache may hand out its copy.
func (r *rotating) cutOff(ctx context.Context, run func() error) error {
	time.Sleep(rand.N(2 * time.Second))
	jwks := func(cache int) string { return "https://" + r.caches[cache] + "/" + r.id + "/keys.json" }
	if err := prime(ctx, r.client, jwks(0)); err != nil {
		return err
	}
	time.Sleep(rand.N(2 * time.Second))
	if err := prime(ctx, r.client, jwks(1)); err != nil {
		return err
	}
	primed := time.Now()
	r.cutUntil = primed.Add(r.maxAge + r.sie - 500*time.Millisecond)
	r.link.set(true)
	r.checks.Add(1)
	time.AfterFunc(time.Until(r.cutUntil), func() {
		defer r.checks.Done()
		r.link.set(false)
	})
	err := run()
	r.checks.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
			asked := time.Now()
			has, err := lists(ctx, r.client, jwks(1), r.next.kid)
			if has {
				return
			}
			if err == nil {
				r.hidden = asked.Sub(primed)
			}
		}
	})
	return err
}

// switchOver restarts the kube-apiservers with the next key, one after the other, when all have learnt it; where it is too early, at
// once, so that the mistake shows on a slow machine too.
func (r *rotating) switchOver() {
	r.handOver.Do(func() {
		for _, s := range r.signers {
			s.learn(r.next)
		}
		for _, s := range r.signers {
			if !r.wrong {
				time.Sleep(rand.N(1500 * time.Millisecond))
			}
			s.sign(r.next)
		}
	})
}

// moment returns when to kill a command, zero for never: some die before they have read anything, others in a look.
func (r *rotating) moment() time.Duration {
	if !r.kill || rand.N(3) == 0 {
		return 0
	}
	return 1 + rand.N([]time.Duration{20 * time.Millisecond, 1500 * time.Millisecond}[rand.N(2)])
}

// try runs keypost, which may be killed.
func (r *rotating) try(args ...string) result {
	out := r.keypost(r.moment(), args...)
	if out.code == -1 {
		r.killed.Add(1)
	}
	return out
}

// stepOf returns the step that the rotation is to take next; empty when none is under way.
func (r *rotating) stepOf() (string, error) {
	out := r.keypost(0, "rotate", "status", r.id, "-o", "json")
	if out.err() != nil {
		return "", out.err()
	}
	var status struct {
		Rotations []struct{ Rotation *struct{ Step string } }
	}
	if err := json.Unmarshal([]byte(out.stdout), &status); err != nil || len(status.Rotations) != 1 {
		return "", fmt.Errorf("rotate status: %w: %s", err, out.stdout)
	}
	if status.Rotations[0].Rotation == nil {
		return "", nil
	}
	return status.Rotations[0].Rotation.Step, nil
}

// byTheGates is how it is meant to be done.
func (r *rotating) byTheGates(ctx context.Context) error {
	if err := r.cutOff(ctx, func() error { return r.together(r.start) }); err != nil {
		return err
	}
	return r.together(func() error { return r.operate(ctx) })
}

// together has each operator do the same at the same time.
func (r *rotating) together(do func() error) error {
	var wait sync.WaitGroup
	failed := make([]error, r.operators)
	for i := range failed {
		wait.Go(func() { failed[i] = do() })
	}
	wait.Wait()
	return errors.Join(failed...)
}

// start starts the rotation, unless somebody has.
func (r *rotating) start() error {
	for {
		out := r.try("rotate", "start", r.id, "--public-key-file", r.next.public)
		switch {
		case out.code == 0 || out.code > 0 && strings.Contains(out.stderr, "is under way"):
			return nil
		case out.code > 0:
			return fmt.Errorf("rotate start: %w", out.err())
		}
	}
}

// operate takes step after step until the rotation is complete.
func (r *rotating) operate(ctx context.Context) error {
	step, err := r.stepTo(ctx, "retire")
	if err != nil || step == "" {
		return err
	}
	r.switchOver()
	if r.wrong && r.asking != nil { // what the others show takes long enough
		time.Sleep(time.Until(r.cutUntil) + r.maxAge)
		return nil
	}
	if r.asking == nil {
		if err := r.retire(r.old); err != nil {
			return err
		}
	}
	_, err = r.stepTo(ctx, "")
	return err
}

// restarting is what a command says that meets a kube-apiserver while that is restarted.
var restarting = regexp.MustCompile(`answers 503|connection refused|: EOF|connection reset by peer`)

// stepTo takes steps until the rotation waits for one that has a name, or is complete.
func (r *rotating) stepTo(ctx context.Context, want string) (string, error) {
	args := append([]string{"rotate", "step", r.id}, r.asking...)
	for deadline := time.Now().Add(patience + r.gates()); ; time.Sleep(rand.N(max(time.Second, r.maxAge/10))) {
		out := r.try(args...)
		if out.code > 0 && restarting.MatchString(out.stderr) { // the operator does it again
			continue
		}
		if out.code > 0 {
			return "", fmt.Errorf("rotate step: %w", out.err())
		}
		step, err := r.stepOf()
		switch {
		case err != nil || step == want || step == "":
			return step, err
		case time.Now().After(deadline) || ctx.Err() != nil:
			return step, fmt.Errorf("the rotation has not come further than %s", step)
		}
	}
}

// retire records that no server signs with a key any more, unless somebody has.
func (r *rotating) retire(key signingKey) error {
	for {
		out := r.try("key", "retire", r.id, key.kid, "--why", "both servers were asked")
		switch {
		case out.code == 0 || out.code > 0 && strings.Contains(out.stderr, "retired already"):
			return nil
		case out.code > 0:
			return fmt.Errorf("key retire: %w", out.err())
		}
	}
}

// rolledBack goes back when one of the two servers signs with the next key.
func (r *rotating) rolledBack(ctx context.Context) error {
	if err := r.cutOff(ctx, r.start); err != nil {
		return err
	}
	if _, err := r.stepTo(ctx, "retire"); err != nil {
		return err
	}
	r.signers[1].sign(r.next)
	time.Sleep(r.maxAge)
	if err := r.keypost(0, "rotate", "rollback", r.id, "--why", "tried").err(); err != nil {
		return err
	}
	time.Sleep(r.maxAge)
	r.signers[1].sign(r.old)
	if err := r.retire(r.next); err != nil {
		return err
	}
	_, err := r.stepTo(ctx, "")
	return err
}

// forced starts the rotation and promotes the key after a pause, whatever the gate says.
func (r *rotating) forced(ctx context.Context, pause time.Duration) error {
	err := r.cutOff(ctx, func() error {
		return r.keypost(0, "rotate", "start", r.id, "--public-key-file", r.next.public).err()
	})
	if err != nil {
		return err
	}
	time.Sleep(pause)
	if err := r.keypost(0, "key", "promote", r.id, r.next.kid, "--force", "--why", "in a hurry").err(); err != nil {
		return err
	}
	return r.operate(ctx)
}

// removedAtOnce does not wait for the last token of the old key.
func (r *rotating) removedAtOnce(ctx context.Context) error {
	if err := r.cutOff(ctx, r.start); err != nil {
		return err
	}
	if _, err := r.stepTo(ctx, "retire"); err != nil {
		return err
	}
	r.switchOver()
	if err := r.retire(r.old); err != nil {
		return err
	}
	return r.keypost(0, "key", "remove", r.id, r.old.kid, "--force", "--why", "in a hurry").err()
}

// gateSkipped promotes the key as soon as it is published.
func (r *rotating) gateSkipped(ctx context.Context) error { return r.forced(ctx, 0) }

// staleIfErrorForgotten waits for a cache and its client, but for none that is cut off from its origin.
func (r *rotating) staleIfErrorForgotten(ctx context.Context) error {
	return r.forced(ctx, r.maxAge+r.maxAge)
}

// signedFirst is the order that OpenShift documents: the cluster takes its new key, and what it signs with is published then.
func (r *rotating) signedFirst(ctx context.Context) error {
	r.switchOver()
	time.Sleep(3 * time.Second)
	return r.forced(ctx, 0)
}

// swappedAtOnce is how dex did it: one version of the JWKS has the old key, and the next one has the new key instead.
func (r *rotating) swappedAtOnce(ctx context.Context) error {
	err := r.cutOff(ctx, func() error {
		return r.keypost(0, "key", "revoke", r.id, r.old.kid, "--replacement", r.next.public, "--why", "swapped").err()
	})
	r.switchOver()
	time.Sleep(r.maxAge + r.sie + r.maxAge)
	return err
}
