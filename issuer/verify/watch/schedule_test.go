package watch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func issuers(n int) []Issuer {
	var all []Issuer
	for i := range n {
		all = append(all, Issuer{KeySet: "x", URL: fmt.Sprintf("https://oidc.example.com/c%d", i)})
	}
	return all
}

func TestDue(t *testing.T) {
	const url = "https://oidc.example.com/prod-a"
	p := point(url, 5*time.Minute) // within [12:00, 12:05), since intervals begin at whole hours
	for name, tt := range map[string]struct {
		last time.Time
		want time.Time
	}{
		"at its place":           {start.Add(p), start.Add(5*time.Minute + p)},
		"a nanosecond before it": {start.Add(p - 1), start.Add(p)},
		"a second after it":      {start.Add(p + time.Second), start.Add(5*time.Minute + p)},
		"days ago":               {start.Add(p - 48*time.Hour), start.Add(p - 48*time.Hour + 5*time.Minute)},
	} {
		if got := (turns{point: p, last: tt.last}).due(5 * time.Minute); !got.Equal(tt.want) {
			t.Errorf("%s: due %v, want %v", name, got, tt.want)
		}
	}
	if got := newTurns(url, 5*time.Minute, start).due(5 * time.Minute); got.Before(start) || got.Sub(start) >= soonest {
		t.Errorf("a new one is due after %v", got.Sub(start))
	}
	if got := newTurns(url, 2*time.Second, start).due(2 * time.Second); got.Sub(start) >= 2*time.Second {
		t.Errorf("a new one is due after %v of a short interval", got.Sub(start))
	}
	if again := point(url, 5*time.Minute); again != p || p == point(url+"x", 5*time.Minute) {
		t.Error("the place does not follow from the URL")
	}
}

// play runs a schedule for some time and returns when each issuer was looked at. takes says how long a look takes.
func play(s *schedule, from time.Time, long time.Duration, takes func(Issuer) time.Duration, atOnce int) map[Issuer][]time.Time {
	looks, ends, running := map[Issuer][]time.Time{}, map[Issuer]time.Time{}, 0
	for now := from; now.Before(from.Add(long)); now = now.Add(500 * time.Millisecond) {
		for i, end := range ends {
			if !end.After(now) {
				s.end(i)
				delete(ends, i)
				running--
			}
		}
		for _, i := range s.begin(now, atOnce-running) {
			looks[i] = append(looks[i], now)
			ends[i] = now.Add(takes(i))
			running++
		}
	}
	return looks
}

// Whatever the number of issuers and the interval, each is looked at once in every interval, never later than an interval
// after the look before, and not all at one time.
func TestEachIssuerOncePerInterval(t *testing.T) {
	for range 20 {
		n, every := 1+rand.IntN(300), time.Duration(20+rand.IntN(600))*time.Second
		from := start.Add(rand.N(24 * time.Hour))
		s := newSchedule(every)
		s.set(issuers(n), from)
		took := 11 * time.Second
		looks := play(s, from, 4*every, func(Issuer) time.Duration { return took }, n)
		var all []time.Time
		for _, i := range issuers(n) {
			at := looks[i]
			if len(at) < 4 || len(at) > 5 || at[0].Sub(from) > soonest+time.Second {
				t.Fatalf("%d issuers every %v: %s is looked at %d times in 4 intervals, first after %v", n, every, i.URL, len(at), at[0].Sub(from))
			}
			for k := 1; k < len(at); k++ {
				gap := at[k].Sub(at[k-1])
				if gap > every+took || k > 2 && (gap-every).Abs() > time.Second {
					t.Fatalf("%d issuers every %v: %s is looked at %v after the look before", n, every, i.URL, gap)
				}
			}
			all = append(all, at[2:]...)
		}
		if n < 100 {
			continue
		}
		tenths := map[time.Duration]int{}
		for _, at := range all {
			tenths[time.Duration(at.UnixNano())%every*10/every]++
		}
		for tenth, got := range tenths {
			if got > len(all)/4 {
				t.Errorf("%d issuers every %v: %d of %d looks are in tenth %d of the interval", n, every, got, len(all), tenth)
			}
		}
	}
}

// A look that takes longer than an interval delays no other issuer's, and is made up for once.
func TestOneSlowOriginDelaysNoOther(t *testing.T) {
	every, all := time.Minute, issuers(50)
	slow := all[7]
	s := newSchedule(every)
	s.set(all, start)
	looks := play(s, start, 10*time.Minute, func(i Issuer) time.Duration {
		if i == slow {
			return 150 * time.Second
		}
		return 11 * time.Second
	}, 20)
	for _, i := range all {
		if n := len(looks[i]); i == slow && n > 4 || i != slow && n < 10 {
			t.Errorf("%s is looked at %d times in ten minutes", i.URL, n)
		}
		for k := 1; k < len(looks[i]); k++ {
			if gap := looks[i][k].Sub(looks[i][k-1]); i != slow && gap > every+time.Second {
				t.Errorf("%s waits %v", i.URL, gap)
			}
		}
	}
}

// With fewer places than looks, those that have waited longest come first: nobody starves.
func TestAScheduleThatLags(t *testing.T) {
	all := issuers(40)
	s := newSchedule(30 * time.Second)
	s.set(all, start)
	looks := play(s, start, 10*time.Minute, func(Issuer) time.Duration { return 10 * time.Second }, 4)
	for _, i := range all {
		if n := len(looks[i]); n < 5 || n > 7 { // 40 looks of 10 s, 4 at once, take 100 s
			t.Errorf("%s is looked at %d times, want 6", i.URL, n)
		}
	}
}

func TestScheduleChanges(t *testing.T) {
	s := newSchedule(time.Hour)
	s.set(issuers(3), start)
	if got := s.begin(start.Add(soonest), 2); len(got) != 2 {
		t.Fatalf("%d begin, of which two may", len(got))
	}
	if got := s.begin(start.Add(soonest), 10); len(got) != 1 {
		t.Fatalf("%d begin, want the third", len(got))
	}
	if !s.next().IsZero() {
		t.Errorf("while all run the next is due at %v", s.next())
	}
	s.set(issuers(4)[1:], start.Add(time.Minute)) // the first is dropped while its look is running, a fourth is new
	s.end(issuers(1)[0])
	if n := s.next(); n.Before(start.Add(time.Minute)) || n.After(start.Add(time.Minute+soonest)) {
		t.Errorf("a new issuer is due at %v", n)
	}
	if got := s.begin(start.Add(time.Minute+soonest), 10); !slices.Equal(got, issuers(4)[3:]) {
		t.Errorf("%v begin, want the new one", got)
	}
	for _, i := range issuers(4) {
		s.end(i)
	}
	if got := s.begin(start.Add(2*time.Hour), 10); len(got) != 3 || slices.Contains(got, issuers(1)[0]) {
		t.Errorf("%v begin two hours later", got)
	}
	for _, i := range issuers(4) {
		s.end(i)
	}
	s.begin(start.Add(-48*time.Hour), 10) // the clock is set back: nobody waits for two days
	if n := s.next(); n.After(start.Add(-47 * time.Hour)) {
		t.Errorf("after the clock was set back, the next is due at %v", n)
	}
}
