package observation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
)

var (
	t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a  = Key{"kid-a", "fingerprint-a"}
	b  = Key{"kid-b", "fingerprint-b"}
)

func minute(n int) time.Time { return t0.Add(time.Duration(n) * time.Minute) }

// lookAt is a complete look of ten seconds with keys; gaps make it incomplete.
func lookAt(n int, keys []Key, gaps ...string) Look {
	return Look{Start: minute(n), End: minute(n).Add(10 * time.Second), Addresses: []string{"192.0.2.1:443"}, Answers: 16, Keys: keys, Gaps: gaps, Lifetimes: Lifetimes{MaxAge: keystore.Duration(5 * time.Minute)}}
}

func TestRuns(t *testing.T) {
	const gap = "192.0.2.2:443 did not answer"
	after := func(n int) time.Time { return minute(n).Add(10 * time.Second) }
	silent := lookAt(2, nil, gap)
	silent.Answers = 0
	swapped := Key{a.ID, b.Fingerprint} // another key under the kid
	for name, tt := range map[string]struct {
		looks []Look
		since time.Time // of key a; zero: no run
		fresh time.Time
	}{
		"nothing":                         {nil, time.Time{}, time.Time{}},
		"one complete look":               {[]Look{lookAt(1, []Key{a})}, after(1), after(1)},
		"only an incomplete one":          {[]Look{lookAt(1, []Key{a}, gap)}, time.Time{}, time.Time{}},
		"two":                             {[]Look{lookAt(1, []Key{a}), lookAt(2, []Key{a, b})}, after(1), after(2)},
		"one without":                     {[]Look{lookAt(1, []Key{a}), lookAt(2, []Key{b})}, time.Time{}, after(2)},
		"one without, incomplete":         {[]Look{lookAt(1, []Key{a}), lookAt(2, []Key{b}, gap)}, time.Time{}, after(1)},
		"seen again":                      {[]Look{lookAt(1, []Key{a}), lookAt(2, nil), lookAt(3, []Key{a})}, after(3), after(3)},
		"missing first":                   {[]Look{lookAt(1, []Key{b}), lookAt(2, []Key{a}), lookAt(3, []Key{a})}, after(2), after(3)},
		"missing in an incomplete look":   {[]Look{lookAt(1, []Key{a}), lookAt(2, []Key{b}, gap), lookAt(3, []Key{a})}, after(3), after(3)},
		"a lost packet":                   {[]Look{lookAt(1, []Key{a}), lookAt(2, []Key{a}, gap), lookAt(3, []Key{a})}, after(1), after(3)},
		"no answer at all":                {[]Look{lookAt(1, []Key{a}), silent, lookAt(3, []Key{a})}, after(1), after(3)},
		"another key under its kid":       {[]Look{lookAt(1, []Key{a}), lookAt(2, []Key{swapped})}, time.Time{}, after(2)},
		"a late report with it":           {[]Look{lookAt(2, []Key{b}), lookAt(1, []Key{a, b})}, time.Time{}, after(2)},
		"a late report without it":        {[]Look{lookAt(2, []Key{a}), lookAt(1, nil)}, time.Time{}, after(2)},
		"the same look twice":             {[]Look{lookAt(1, []Key{a}), lookAt(1, []Key{a})}, after(1), after(1)},
		"a clock that was ahead":          {[]Look{lookAt(100, []Key{a}), lookAt(1, []Key{a})}, time.Time{}, after(1)},
		"the look after it":               {[]Look{lookAt(100, []Key{a}), lookAt(1, []Key{a}), lookAt(2, []Key{a})}, after(2), after(2)},
		"recorded late":                   {[]Look{lookAt(100, nil), lookAt(1, []Key{a})}, time.Time{}, after(1)},
		"incomplete first, then complete": {[]Look{lookAt(1, []Key{a}, gap), lookAt(2, []Key{a})}, after(2), after(2)},
	} {
		t.Run(name, func(t *testing.T) {
			r := Record{Issuer: "https://oidc.example.com/prod-a"}
			for _, l := range tt.looks {
				r = r.With(l)
			}
			e := Of(a, []Record{r}, []Subject{r.Subject()})
			if !e.Since.Equal(tt.since) || !r.Complete.Equal(tt.fresh) || (len(e.Without) > 0) != tt.since.IsZero() {
				t.Errorf("since %v, complete %v, without %q; want since %v, complete %v", e.Since, r.Complete, e.Without, tt.since, tt.fresh)
			}
		})
	}
}

// In whatever order looks come, a run begins at the end of a complete look with the key, and no look that ended later and
// had an answer does not have it.
func TestRunsAreNeverTooLong(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		var r Record
		var looks []Look
		for range 1 + random.IntN(12) {
			var keys []Key
			if random.IntN(4) > 0 {
				keys = append(keys, a)
			}
			l := lookAt(random.IntN(12), keys)
			if random.IntN(3) == 0 {
				l.Gaps = []string{"gap"}
			}
			if random.IntN(5) == 0 {
				l.Answers, l.Keys, l.Gaps = 0, nil, []string{"nobody answered"}
			}
			looks = append(looks, l)
			r = r.With(l)
		}
		if len(r.Seen) == 0 {
			continue
		}
		since := r.Seen[0].Since
		begins := slices.ContainsFunc(looks, func(l Look) bool { return l.Complete() && l.End.Equal(since) && slices.Contains(l.Keys, a) })
		broken := slices.ContainsFunc(looks, func(l Look) bool { return l.End.After(since) && l.Answers > 0 && !slices.Contains(l.Keys, a) })
		if !begins || broken {
			t.Fatalf("seed %d: a run since %v, which begins with a complete look: %t, is broken: %t; looks %+v", seed, since, begins, broken, looks)
		}
	}
}

func TestEveryRequiredPlaceCounts(t *testing.T) {
	place := func(vantage string) Subject { return Subject{"https://oidc.example.com/prod-a", vantage} }
	record := func(vantage string, looks ...Look) Record {
		r := Record{Issuer: place(vantage).Issuer, Vantage: vantage}
		for _, l := range looks {
			r = r.With(l)
		}
		return r
	}
	eu := record("eu", lookAt(1, []Key{a}), lookAt(9, []Key{a}))
	us := record("us", lookAt(3, []Key{a}), lookAt(5, []Key{a}))
	behind := record("ap", lookAt(4, []Key{b}))
	all := []Record{eu, us, behind}
	if e := Of(a, all, []Subject{place("eu"), place("us")}); !e.Newest.Equal(eu.Complete) {
		t.Errorf("newest %v", e.Newest)
	}
	if e := Of(a, all, []Subject{place("eu"), place("us")}); !e.Since.Equal(us.Seen[0].Since) || !e.Fresh.Equal(us.Complete) || e.Without != nil {
		t.Errorf("two places: %+v; want the later run and the older look", e)
	}
	for name, required := range map[string][]Subject{"one without": {place("eu"), place("ap")}, "one unknown": {place("eu"), place("sa")}, "none required": {}} {
		if e := Of(a, all, required); !e.Since.IsZero() || !e.Fresh.IsZero() {
			t.Errorf("%s: %+v", name, e)
		}
	}
	shown := lookAt(2, []Key{b})
	shown.SharedCache, shown.MaxAge = "Age: 3", keystore.Duration(time.Hour)
	if e := Of(a, append(all, record("sa", shown)), []Subject{place("eu")}); e.SharedCache != "Age: 3" || e.Cache.MaxAge != time.Hour {
		t.Errorf("what another place has seen of caches does not count: %+v", e)
	}
}

// The clock of each required place counts, by its latest look.
func TestTheWorstClockCounts(t *testing.T) {
	record := func(vantage string, ahead ...time.Duration) Record {
		r := Record{Issuer: "https://oidc.example.com/prod-a", Vantage: vantage}
		for n, d := range ahead {
			l := lookAt(n, []Key{a})
			ahead := Offset(d)
			l.ClockAhead = &ahead
			r = r.With(l)
		}
		silent := lookAt(100, nil, "nobody answered") // which shows no clock
		silent.Answers = 0
		return r.With(silent)
	}
	for _, tt := range []struct {
		eu, us []time.Duration
		want   time.Duration
	}{
		{nil, nil, 0},
		{[]time.Duration{time.Hour, time.Second}, nil, time.Second},
		{[]time.Duration{2 * time.Minute}, []time.Duration{-3 * time.Minute}, -3 * time.Minute},
		{[]time.Duration{-time.Second}, []time.Duration{-3 * time.Minute}, -3 * time.Minute},
	} {
		eu, us := record("eu", tt.eu...), record("us", tt.us...)
		elsewhere := record("ap", time.Hour)
		if o := Of(a, []Record{eu, us, elsewhere}, []Subject{eu.Subject(), us.Subject()}); time.Duration(o.ClockAhead) != tt.want {
			t.Errorf("%v and %v: %v, want %v", tt.eu, tt.us, o.ClockAhead, tt.want)
		}
	}
}

// What an answer showed once counts for as long as a copy of that time may last.
func TestWhatShowedACacheIsRemembered(t *testing.T) {
	high := lookAt(0, []Key{a})
	high.Lifetimes = LifetimesOf(keystore.Cache{MaxAge: 12 * time.Hour, StaleWhileRevalidate: time.Hour, StaleIfError: 7 * 24 * time.Hour}) // an edge's
	high.SharedCache = "Via: x"
	r := Record{}.With(high)
	for day := range 40 {
		l := lookAt(1, []Key{a})
		l.Start, l.End = l.Start.AddDate(0, 0, day), l.End.AddDate(0, 0, day)
		r = r.With(l)
		e := Of(a, []Record{r}, []Subject{r.Subject()})
		remembered := e.Cache == high.Cache() && e.SharedCache == high.SharedCache
		if want := l.End.Sub(high.End) <= Memory; remembered != want {
			t.Fatalf("after %d days: %+v", day, e)
		}
	}
	short := lookAt(60, []Key{a}) // of each what is longest counts, whichever look had it
	short.Lifetimes = LifetimesOf(keystore.Cache{MaxAge: 13 * time.Hour, StaleWhileRevalidate: time.Minute})
	both := Record{}.With(high)
	short.End = high.End.Add(time.Hour)
	for _, l := range []Look{short, high} { // the second is a late report
		both = both.With(l)
		want := keystore.Cache{MaxAge: 13 * time.Hour, StaleWhileRevalidate: time.Hour, StaleIfError: 7 * 24 * time.Hour}
		if got := Of(a, []Record{both}, nil).Cache; got != want || len(both.MaxAges) != 2 || !both.MaxAges[0].At.Equal(short.End) {
			t.Errorf("%+v of %+v; want %+v", got, both.MaxAges, want)
		}
	}
}

// A server that is new may have got the key a moment ago; an edge of a CDN may not, by what the gate counts anyway.
func TestANewServerBeginsTheRunAnew(t *testing.T) {
	look := func(n int, addresses, origins []string) Look {
		l := lookAt(n, []Key{a})
		l.Addresses, l.Origins = addresses, origins
		return l
	}
	cached := func(l Look) Look { l.SharedCache = "Age: 7"; return l }
	lacks := func(l Look) Look { l.Keys = nil; return l }
	gap := func(l Look) Look { l.Gaps = []string{"x"}; return l }
	one, two, both := []string{"192.0.2.1:443"}, []string{"192.0.2.2:443"}, []string{"192.0.2.1:443", "192.0.2.2:443"}
	for name, tt := range map[string]struct {
		looks []Look
		since int // minute; -1: no run
	}{
		"the same address": {[]Look{look(1, one, nil), look(2, one, nil)}, 1},
		"one more":         {[]Look{look(1, one, nil), look(2, both, nil)}, 2},
		"another":          {[]Look{look(1, one, nil), look(2, two, nil)}, 2},
		"another, in a look that is not complete": {[]Look{look(1, one, nil), gap(look(2, two, nil))}, -1},
		"one less":                                  {[]Look{look(1, both, nil), look(2, one, nil)}, 1},
		"back to one that had the key":              {[]Look{look(1, one, nil), look(2, both, nil), look(3, two, nil), look(4, one, nil)}, 2},
		"back to one that did not have it":          {[]Look{lacks(look(1, one, nil)), look(2, two, nil), look(3, one, nil)}, 3},
		"edges of a CDN":                            {[]Look{cached(look(1, one, nil)), cached(look(2, two, nil))}, 1},
		"edges, one of which does not show itself":  {[]Look{cached(look(1, one, nil)), look(2, two, nil)}, 1},
		"edges before a new origin":                 {[]Look{cached(look(1, both, one)), cached(look(2, both, both))}, 2},
		"other edges before the origins of before":  {[]Look{cached(look(1, both, two)), cached(look(2, one, two))}, 1},
		"a CDN is put before the servers":           {[]Look{look(1, one, nil), cached(look(2, two, nil))}, 1},
		"a CDN is taken away again":                 {[]Look{cached(look(1, one, nil)), look(2, two, nil), look(3, both, nil)}, 1},
		"one origin, then another":                  {[]Look{cached(look(1, both, one)), cached(look(2, both, two))}, 2},
		"a balancer's address before known origins": {[]Look{look(1, []string{"198.51.100.1:443"}, both), look(2, []string{"198.51.100.2:443"}, both)}, 1},
	} {
		var r Record
		for _, l := range tt.looks {
			r = r.With(l)
		}
		since := -1
		if len(r.Seen) > 0 {
			since = int(r.Seen[0].Since.Sub(t0).Minutes())
		}
		if since != tt.since {
			t.Errorf("%s: seen since minute %d; want %d", name, since, tt.since)
		}
	}
}

// What is kept has bounds, and is kept up to them.
func TestBounds(t *testing.T) {
	high := lookAt(0, []Key{a})
	high.MaxAge, high.SharedCache = keystore.Duration(12*time.Hour), "Via: x"
	for after, remembered := range map[time.Duration]bool{31 * 24 * time.Hour: true, 31*24*time.Hour + 1: false} {
		l := lookAt(0, []Key{a})
		l.End = high.End.Add(after)
		if r := (Record{}).With(high).With(l); (len(r.MaxAges) == 2) != remembered || (len(r.SharedCaches) == 1) != remembered {
			t.Errorf("after %v: %+v, %+v", after, r.MaxAges, r.SharedCaches)
		}
	}
	var r Record
	for n := range 40 {
		l := lookAt(n, []Key{a})
		l.MaxAge, l.SharedCache = keystore.Duration(100-n)*keystore.Duration(time.Minute), fmt.Sprint("Age: ", n)
		r = r.With(l)
	}
	if len(r.MaxAges) != 16 || len(r.SharedCaches) != 16 || r.SharedCaches[15].Header != "Age: 39" || r.MaxAges[0].MaxAge != keystore.Duration(61*time.Minute) {
		t.Errorf("%d max-ages, the latest %+v; %d signs, the latest %+v", len(r.MaxAges), r.MaxAges[0], len(r.SharedCaches), r.SharedCaches[15])
	}
	again := lookAt(41, []Key{a})
	again.SharedCache = "Age: 30"
	if r = r.With(again); len(r.SharedCaches) != 16 || r.SharedCaches[15] != (Sign{"Age: 30", again.End}) || slices.ContainsFunc(r.SharedCaches[:15], func(s Sign) bool { return s.Header == "Age: 30" }) {
		t.Errorf("a sign that was seen before: %+v", r.SharedCaches)
	}
	one := lookAt(0, nil)
	one.Answers, one.MaxAge = 1, keystore.Duration(time.Hour)
	none := lookAt(1, nil)
	none.Answers, none.MaxAge = 0, keystore.Duration(2*time.Hour)
	if r := (Record{}).With(one).With(none); len(r.MaxAges) != 1 || r.MaxAges[0].MaxAge != one.MaxAge {
		t.Errorf("an answer, and none: %+v", r.MaxAges)
	}
	many := lookAt(0, []Key{a})
	many.Addresses = nil
	for n := range 300 {
		many.Addresses = append(many.Addresses, fmt.Sprintf("192.0.2.%d:%d", n%250, n))
	}
	if at := (Record{}).With(many).Seen[0].At; len(at) != 256 || at[255] != many.Addresses[299] {
		t.Errorf("%d addresses, the last %s", len(at), at[len(at)-1])
	}
}

// A look whose clock is off begins no run and dates nothing; a good one after it does. Runs of before go on, and end when a key
// is missing. What it saw of caches is remembered as long as what another look saw.
func TestALookWhoseClockIsOff(t *testing.T) {
	const day = 24 * time.Hour
	begin := minute(2 * 24 * 60)
	look := func(n int, ahead *time.Duration, keys ...Key) Look {
		l := lookAt(2*24*60+n, keys)
		if ahead != nil {
			o := Offset(*ahead)
			l.Start, l.End, l.ClockAhead = l.Start.Add(*ahead), l.End.Add(*ahead), &o
		}
		return l
	}
	unknown := func(l Look) Look { l.ClockAhead = nil; return l }
	another := func(l Look) Look { l.Addresses = []string{"192.0.2.2:443"}; return l }
	silent := look(1, nil)
	silent.Answers = 0
	zero, fine := time.Duration(0), time.Minute
	for _, off := range []time.Duration{-40 * day, -23 * time.Hour, -61 * time.Second, 61 * time.Second, 29 * time.Minute, 23 * time.Hour, 40 * day} {
		for name, tt := range map[string]struct {
			looks []Look
			since int // minute; -1: no run
			wrong bool
		}{
			"only it":                             {[]Look{look(0, &off, a)}, -1, true},
			"it, then a good one":                 {[]Look{look(0, &off, a), look(10, &zero, a)}, 10, false},
			"it twice, then a good one":           {[]Look{look(0, &off, a), look(5, &off, a), look(10, &fine, a)}, 11, false},
			"between good ones":                   {[]Look{look(0, &zero, a), look(10, &off, a), look(20, &zero, a)}, 0, false},
			"after a good one":                    {[]Look{look(0, &zero, a), look(10, &off, a)}, 0, true},
			"after a good one, without the key":   {[]Look{look(0, &zero, a), look(10, &off, b)}, -1, true},
			"the key came with it":                {[]Look{look(0, &zero, b), look(10, &off, a), look(20, &zero, a)}, 20, false},
			"another server answers it":           {[]Look{look(0, &zero, a), another(look(10, &off, a)), look(20, &zero, a)}, 20, false},
			"a late report after it":              {[]Look{look(10, &zero, b), look(11, &off, a), look(9, &zero, a)}, -1, true},
			"then one that shows no clock":        {[]Look{look(0, &off, a), unknown(look(1, &off, a))}, -1, true},
			"then one without any answer":         {[]Look{look(0, &off, a), silent}, -1, true},
			"then one without any, then good one": {[]Look{look(0, &off, a), silent, look(10, &zero, a)}, 10, false},
		} {
			r := Record{Issuer: "https://oidc.example.com/prod-a"}
			for _, l := range tt.looks {
				r = r.With(l)
			}
			e := Of(a, []Record{r}, []Subject{r.Subject()})
			since := -1
			if len(r.Seen) > 0 && r.Seen[0].Key == a {
				since = int(r.Seen[0].Since.Sub(begin).Minutes())
			}
			if wrong := time.Duration(e.ClockAhead).Abs() > time.Minute; since != tt.since || wrong != tt.wrong && name != "a late report after it" {
				t.Errorf("off by %v, %s: seen since minute %d, clock %v; want %d, wrong %t", off, name, since, e.ClockAhead, tt.since, tt.wrong)
			}
			if !r.Complete.IsZero() && r.Complete.Sub(begin).Abs() > time.Hour {
				t.Errorf("off by %v, %s: complete at %v", off, name, r.Complete)
			}
		}
		cached := look(0, &off, a)
		cached.MaxAge, cached.SharedCache = keystore.Duration(12*time.Hour), "Via: x"
		before := look(-10, &zero, a)
		before.MaxAge = keystore.Duration(13 * time.Hour)
		for name, r := range map[string]Record{"first": {}, "later": Record{}.With(before)} {
			r = r.With(cached).With(look(10, &zero, a)).With(look(30*24*60, &zero, a))
			want := 12 * time.Hour
			if name == "later" {
				want = 13 * time.Hour
			}
			if e := Of(a, []Record{r}, nil); e.Cache.MaxAge != want || e.SharedCache != "Via: x" {
				t.Errorf("off by %v, %s: remembered %+v", off, name, e)
			}
		}
	}
}

// What lets caches keep an answer for longer than any policy may counts until it is forgotten, also where the list is full.
func TestAnAbsurdLifetimeCounts(t *testing.T) {
	look := func(n int, d time.Duration) Look {
		l := lookAt(n, []Key{a})
		l.MaxAge = keystore.Duration(d)
		return l
	}
	var r Record
	for n, d := range []time.Duration{7 * 24 * time.Hour, 8760 * time.Hour, 9000 * time.Hour, 300 * time.Hour} {
		r = r.With(look(1+n, d))
	}
	for n := range 2 * most {
		r = r.With(look(10+n, 8000*time.Hour-time.Duration(n)))
	}
	if e := Of(a, []Record{r}, nil); e.Cache.MaxAge != 9000*time.Hour {
		t.Errorf("a full list: %v", e.Cache)
	}
	if e := Of(a, []Record{r.With(look(40*24*60, time.Minute))}, nil); e.Cache.MaxAge != time.Minute {
		t.Errorf("forgotten: %v", e.Cache)
	}
}
