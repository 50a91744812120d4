package watch

import (
	"fmt"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Each issuer has its own point of each interval, which begins at whole hours.
func TestNext(t *testing.T) {
	const url, every = "https://oidc.example.com/prod-a", 5 * time.Minute
	p := point(url, every)
	for name, tt := range map[string]struct{ began, want time.Time }{
		"at its point":           {start.Add(p), start.Add(every + p)},
		"a nanosecond before it": {start.Add(p - 1), start.Add(p)},
		"a second after it":      {start.Add(p + time.Second), start.Add(every + p)},
	} {
		if got := next(url, tt.began, every); !got.Equal(tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	if p == point(url+"x", every) {
		t.Error("the point does not follow from the URL")
	}
}

// Those that have waited longest come first, none twice at a time, and a clock that is set back keeps nobody waiting.
func TestBegin(t *testing.T) {
	w := New(Config{Every: time.Hour})
	k := &keySet{}
	for n := range atOnce + 3 {
		k.issuers = append(k.issuers, &issuer{Status: Status{Issuer: Issuer{"x", fmt.Sprint(n)}}, due: start.Add(-time.Duration(n) * time.Second)})
	}
	w.sets["x"] = k
	due, _ := w.begin(start)
	if last := k.issuers[atOnce+2]; len(due) != atOnce || due[0] != last || !last.running {
		t.Fatalf("%d begin, first %+v", len(due), due[0].Status)
	}
	if more, _ := w.begin(start); len(more) > 0 {
		t.Errorf("%d more begin", len(more))
	}
	w.running = 0
	if rest, wait := w.begin(start); len(rest) != 3 || wait > time.Minute {
		t.Errorf("%d begin then; the next after %v", len(rest), wait)
	}
	for _, i := range k.issuers {
		i.running = false
	}
	w.running = 0
	if again, _ := w.begin(start.Add(-48 * time.Hour)); len(again) != atOnce {
		t.Errorf("after the clock was set back %d begin", len(again))
	}
}
