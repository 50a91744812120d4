package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
)

// LookEvery is how long a command that waits for a gate sleeps at most: less than a complete look stays fresh.
const LookEvery = 10 * time.Minute

// PauseFor returns how long to sleep before a closed gate is tried again: until it opens, but no longer than [LookEvery]; soon
// if it opens by an act, which somebody may be about to do.
func PauseFor(e *keystore.NotYetError, soon time.Duration) time.Duration {
	if e.Opens.IsZero() {
		return soon
	}
	return min(max(time.Until(e.Opens), 0), LookEvery)
}

// Pause waits for d, or for the end of ctx, whose cause is the error.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Countdown shows how far something is that is waited for, on a terminal by a bar that is drawn anew each second, elsewhere by
// a line now and then.
type Countdown struct {
	status
	told time.Time // the latest line, or the beginning
}

// NewCountdown returns a Countdown on f.Err.
func (f *Factory) NewCountdown() *Countdown {
	return &Countdown{status: f.status(), told: time.Now()}
}

// Awaited is what a [Countdown] counts for.
type Awaited struct {
	What        string    // is waited for
	Since, Till time.Time // Till is zero if nobody can say
}

// Wait is [Pause], and shows how far a is meanwhile.
func (c *Countdown) Wait(ctx context.Context, d time.Duration, a Awaited) error {
	end := time.Now().Add(d)
	if c.width == nil {
		if now := time.Now(); now.Sub(c.told) >= a.tellEvery(now)-time.Second {
			c.told = now
			_, _ = fmt.Fprintln(c.err, OneLine(a.line(now)))
		}
		return Pause(ctx, d)
	}
	defer c.clear()
	for {
		now := time.Now()
		if !now.Before(end) {
			return nil
		}
		c.draw(a.bar(now))
		if err := Pause(ctx, min(end.Sub(now), time.Second)); err != nil {
			return err
		}
	}
}

// tellEvery returns how far apart lines are: nobody reads a hundred of them a day.
func (a Awaited) tellEvery(now time.Time) time.Duration {
	if left := a.Till.Sub(now); left > 2*time.Hour {
		return time.Hour
	}
	return LookEvery
}

// line says for how long a is waited for still.
func (a Awaited) line(now time.Time) string {
	if a.Till.IsZero() {
		return fmt.Sprintf("%s: waiting for %v", a.What, short(now.Sub(a.Since)))
	}
	return fmt.Sprintf("%s: %v left, until %s", a.What, short(a.Till.Sub(now)), Stamp(NotBefore(a.Till)))
}

// bar is line after a bar of the share that is over, if anybody can say.
func (a Awaited) bar(now time.Time) string {
	if a.Till.IsZero() {
		return a.line(now)
	}
	const width = 20
	over := 1.0
	if whole := a.Till.Sub(a.Since); whole > 0 {
		over = min(max(float64(now.Sub(a.Since))/float64(whole), 0), 1)
	}
	full := int(over * width)
	return fmt.Sprintf("[%s%s] %3d%% %s", strings.Repeat("#", full), strings.Repeat("-", width-full), int(over*100), a.line(now))
}

// short returns a duration as people say it: no seconds where there are hours.
func short(d time.Duration) keystore.Duration {
	if d = max(d, 0); d >= time.Hour {
		return keystore.Duration(d.Round(time.Minute))
	}
	return keystore.Duration(d.Round(time.Second))
}

// NotBefore returns t in UTC to the second, as results have it: nothing that opens at t is open before. Zero stays zero.
func NotBefore(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Add(time.Second - 1).Truncate(time.Second)
}
