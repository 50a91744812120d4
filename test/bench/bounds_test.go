package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"strings"
	"testing"
	"time"
)

// Every bar and every target must be able to say no.

func TestVerdict(t *testing.T) {
	for _, tc := range []struct {
		value  float64
		most   bar
		want   string
		missed int
	}{
		{1.10, 1.10, "≤ 1.10  PASS", 0},
		{1.101, 1.10, "≤ 1.10  FAIL", 1},
		{math.NaN(), 1.10, "≤ 1.10  FAIL", 1}, // what was not measured has not passed
		{0, 0, "≤ 0.00  PASS", 0},
		{1, 0, "≤ 0.00  FAIL", 1},
	} {
		r := newReport(t.Output())
		if got := r.verdict(tc.value, tc.most, "%.2f"); got != tc.want || r.missed != tc.missed {
			t.Errorf("%v of %v: %q, missed %d; want %q, %d", tc.value, tc.most, got, r.missed, tc.want, tc.missed)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		value         float64
		bound         bound
		want          string
		missed, short int
	}{
		{1.04, bound{1.10, 1.05}, "≤ 1.10  PASS, target ≤ 1.05  reached", 0, 0},
		{1.06, bound{1.10, 1.05}, "≤ 1.10  PASS, target ≤ 1.05  missed", 0, 1},
		{1.11, bound{1.10, 1.05}, "≤ 1.10  FAIL, target ≤ 1.05  missed", 1, 1},
		{9, bound{target: 5}, "target ≤ 5.00  missed", 0, 1},
		{5, bound{target: 5}, "target ≤ 5.00  reached", 0, 0},
		{9, bound{bar: 5}, "≤ 5.00  FAIL", 1, 0},
		{9, bound{}, "", 0, 0},
	} {
		var out strings.Builder
		r := newReport(&out)
		got := r.judge(finding{"it", tc.value, tc.bound, "%.2f", func() string { return "because" }})
		if got != tc.want || r.missed != tc.missed || len(r.short) != tc.short {
			t.Errorf("%v of %v: %q, missed %d and %d; want %q, %d and %d", tc.value, tc.bound, got, r.missed, len(r.short), tc.want, tc.missed, tc.short)
		}
		r.targets()
		line := fmt.Sprintf("  it: %.2f, target ≤ %.2f: because\n", tc.value, float64(tc.bound.target))
		if told := strings.Contains(out.String(), line); told != (tc.short == 1) {
			t.Errorf("%v of %v: the cause is told: %v\n%s", tc.value, tc.bound, told, &out)
		}
	}
}

// misses runs what prints and returns how many bars and targets were missed.
func misses(print func(*report)) (bars, targets int) {
	r := newReport(io.Discard)
	r.table("")
	print(r)
	return r.missed, len(r.short)
}

// expect holds what a value misses against what it must miss.
func expect(t *testing.T, what string, bars, targets int, print func(*report)) {
	t.Helper()
	if b, s := misses(print); b != bars || s != targets {
		t.Errorf("%s: %d bars and %d targets are missed; want %d and %d", what, b, s, bars, targets)
	}
}

// costing is a series of three rounds with one request that takes a multiple of 100 µs.
func costing(ratio float64) series {
	s := series{requests: 1}
	for i := range 3 {
		s.add(i, time.Duration(ratio*float64(100*time.Microsecond)))
	}
	return s
}

func compared(n int, m mode, ratio float64) comparison {
	return comparison{
		population: ofSize(n), mode: m,
		sides: []side{{role: theFloor, label: "floor"}, {role: theFloor, label: "floor again"}, {role: theKeypostd, label: "keypostd"}, {role: theOther, label: "compared"}, {role: theNginx, label: "nginx"}},
		all:   []series{costing(1), costing(1), costing(ratio), costing(2 * ratio), costing(7)}, // nobody judges the last two
	}
}

func TestRatioBars(t *testing.T) {
	because := func(float64) string { return "" }
	for _, tc := range []struct {
		issuers       int
		ratio         float64
		bars, targets int
	}{
		{few, 1.05, 0, 0}, {few, 1.06, 0, 1}, {few, 1.10, 0, 1}, {few, 1.11, 1, 1},
		{some, 1.05, 0, 0}, {some, 1.06, 0, 1}, {some, 1.10, 0, 1}, {some, 1.11, 1, 1},
		{many, 1.05, 0, 0}, {many, 1.06, 0, 1}, {many, 1.10, 0, 1}, {many, 1.11, 1, 1},
		{masses, 1.05, 0, 0}, {masses, 1.11, 0, 1},
		{7, 9, 0, 0}, // an unusual number
	} {
		for _, m := range modes() {
			expect(t, fmt.Sprintf("%d issuers, %v, %s", tc.issuers, tc.ratio, m.label), tc.bars, tc.targets,
				func(r *report) { r.comparison(compared(tc.issuers, m, tc.ratio), because) })
		}
	}
}

func TestComparisonIsPrinted(t *testing.T) {
	var out strings.Builder
	c := compared(many, modes()[0], 1.2)
	var excess float64
	newReport(&out).comparison(c, func(e float64) string { excess = e; return "" })
	for _, want := range []string{"keypostd             120.0  1.200", "compared / keypostd         2.000", "nginx                700.0  7.000"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
	if !near(excess, 20) {
		t.Errorf("the cause of %v µs is asked for; want 20", excess)
	}
	if strings.Contains(out.String(), "quiet machine") {
		t.Errorf("it warns of noise that is not there:\n%s", &out)
	}
	c.all[1] = costing(1.04)
	if newReport(&out).comparison(c, func(float64) string { return "" }); !strings.Contains(out.String(), "The two floors differ by 4.0 %") {
		t.Errorf("it does not warn of noise:\n%s", &out)
	}
}

// printed is a footprint of keypostd, and one of a server that no bound holds for.
func printed(n, kib, loaded int, ready time.Duration, idle float64) []footprint {
	s := side{role: theKeypostd, label: "keypostd", issuers: n, resident: kib, server: &server{ready: ready}}
	other := side{role: theOther, label: "compared", issuers: n, resident: 1 << 30, server: &server{ready: time.Hour}}
	return []footprint{{side: s, loaded: loaded, idle: idle}, {side: other, loaded: 1 << 30, idle: 100}}
}

func TestFootprintBars(t *testing.T) {
	const mib = 1024
	for _, tc := range []struct {
		issuers, started, loaded int
		ready                    time.Duration
		idle                     float64
		bars, targets            int
	}{
		{few, 25 * mib, 25 * mib, time.Minute, 50, 0, 0},
		{few, 25*mib + 1, 25 * mib, 0, 0, 1, 0},
		{few, 25 * mib, 25*mib + 1, 0, 0, 1, 0},
		{some, 1 << 30, 1 << 30, time.Minute, 50, 0, 0},
		{many, 80 * mib, 80 * mib, 1500 * time.Millisecond, 50, 0, 0},
		{many, 80*mib + 1, 80 * mib, 0, 0, 1, 0},
		{many, 80 * mib, 80*mib + 1, 0, 0, 1, 0},
		{many, 0, 0, 1501 * time.Millisecond, 0, 1, 0},
		{masses, 700 * mib, 700 * mib, 15 * time.Second, 1, 0, 0},
		{masses, 700*mib + 1, 700 * mib, 0, 0, 0, 1},
		{masses, 700 * mib, 700*mib + 1, 0, 0, 0, 1},
		{masses, 0, 0, 15001 * time.Millisecond, 0, 0, 1},
		{masses, 0, 0, 0, 1.01, 0, 1},
	} {
		expect(t, fmt.Sprintf("%+v", tc), tc.bars, tc.targets, func(r *report) {
			r.footprints(ofSize(tc.issuers), printed(tc.issuers, tc.started, tc.loaded, tc.ready, tc.idle))
		})
	}
}

func TestOtherBars(t *testing.T) {
	heap := func(v float64) func(*report) { return func(r *report) { r.heap(v, many) } }
	expect(t, "heap", 0, 0, heap(4096))
	expect(t, "too much heap", 1, 0, heap(4097))
	expect(t, "no allocation", 0, 0, func(r *report) { r.allocations("", 0) })
	expect(t, "an allocation", 1, 0, func(r *report) { r.allocations("", 1) })
	change := func(took time.Duration, own, others int) func(*report) {
		return func(r *report) { r.changes(outcome{[]time.Duration{took}, []int{own}, others}, many) }
	}
	expect(t, "a change", 0, 0, change(time.Second, 1, 0))
	expect(t, "a slow change", 1, 0, change(time.Second+1, 1, 0))
	expect(t, "a change that is read twice", 1, 0, change(0, 2, 0))
	expect(t, "a change with which others are read", 1, 0, change(0, 1, 1))
}

// Every bound of create-all says no where a run costs a little more than it may.
func TestCreateAllBars(t *testing.T) {
	bound := map[string]int{}
	for _, c := range contests() {
		good := course{contest: c, first: spent{took: 2 * time.Second, calls: 70}, again: spent{took: time.Second, calls: 30}, single: spent{took: 6 * time.Second}}
		for what, change := range map[string]func(*course){
			"":        func(*course) {},
			"seconds": func(c *course) { c.first.took, c.single.took = 3001*time.Millisecond, time.Minute },
			"calls":   func(c *course) { c.first.calls = 76 },
			"again":   func(c *course) { c.again.took = 1001 * time.Millisecond },
			"writes":  func(c *course) { c.again.writes = 1 },
			"ratio":   func(c *course) { c.single.took = 5999 * time.Millisecond },
			"nothing": func(c *course) { c.first, c.single = spent{}, spent{} },
		} {
			changed := good
			change(&changed)
			if bars, _ := misses(func(r *report) { r.course(changed) }); bars > 0 {
				bound[what]++
			}
		}
	}
	if want := map[string]int{"seconds": 1, "calls": 1, "again": 1, "writes": 4, "ratio": 2, "nothing": 2}; !maps.Equal(bound, want) {
		t.Errorf("so many clouds are bound: %v, want %v", bound, want)
	}
}

func TestCreateAllIsPrinted(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	r.table("")
	r.course(course{contest: contests()[0], first: spent{2 * time.Second, 70, 40, 1}, again: spent{time.Second, 30, 0, 0}, single: spent{took: 8 * time.Second},
		other: &spent{took: 9 * time.Second, calls: 70}})
	r.end()
	for _, want := range []string{"70 ≤ 75  PASS", "2.0 s ≤ 3.0 s  PASS", "8.0 s", "4.0", "1.0 s ≤ 1.0 s  PASS", "0 ≤ 0  PASS", "ccoctl", "4.5"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}

func TestCauses(t *testing.T) {
	f := footprint{
		side: side{issuers: many, server: &server{ready: 3 * time.Second}}, idle: 0.5,
		gc: collector{percent: 100, goal: 64 << 20},
	}
	for got, want := range map[string]string{
		f.causeOfStart():  "300µs to list",
		f.causeOfMemory(): "grow to 64 MiB before the collector runs (GOGC 100)",
		f.causeOfIdle():   "50ms for a poll of the directory, 5µs for each document",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q; want %q", got, want)
		}
	}
	c := causes{known: true, handler: 0.5}
	if got, want := c.ofRatio(t.Context(), 2), "2.0 µs more; 0.5 µs of it is the handler"; !strings.HasPrefix(got, want) || !strings.Contains(got, "1.5 µs the listener") {
		t.Errorf("%q; want %q", got, want)
	}
}
