package main

import (
	"fmt"
	"time"
)

// pollInterval is keypostd's default.
const pollInterval = 10 * time.Second

// idleFor is how long no request is sent. Where idle CPU has a bound, one poll more or less must not decide.
func (p population) idleFor() time.Duration {
	if p.idle == (bound{}) {
		return pollInterval
	}
	return 3 * pollInterval
}

// footprint is what a server takes beside its requests.
type footprint struct {
	side   side
	loaded int     // KiB that are resident after the load
	idle   float64 // per cent of a core, without requests
	before time.Duration
}

// footprints measures and prints memory, start and idle CPU.
func footprints(r *report, p population, sides []side) error {
	all := make([]footprint, len(sides))
	for i, s := range sides {
		all[i].side = s
		var err error
		if all[i].loaded, err = s.server.resident(); err != nil {
			return err
		}
		if all[i].before, err = s.server.settle(); err != nil {
			return err
		}
	}
	time.Sleep(p.idleFor())
	for i, s := range sides {
		now, err := s.server.cpuTime()
		if err != nil {
			return err
		}
		all[i].idle = 100 * float64(now-all[i].before) / float64(p.idleFor())
	}
	r.footprints(p, all)
	return nil
}

func mebibytes(kib int) float64 { return float64(kib) / 1024 }

func (r *report) footprints(p population, all []footprint) {
	r.table(fmt.Sprintf("Start, memory and idle CPU: %s", p),
		"", "start to ready", "", "RSS after start", "", "RSS after load", "", fmt.Sprintf("idle CPU over %v", p.idleFor()), "")
	for _, f := range all {
		var bounds population // none
		if f.side.role == theKeypostd {
			bounds = p
		}
		ready, started, loaded := f.side.server.ready.Seconds(), mebibytes(f.side.resident), mebibytes(f.loaded)
		r.row(f.side.label,
			fmt.Sprintf("%.2f s", ready), r.judge(ready, bounds.start, "%.2f s"),
			fmt.Sprintf("%.1f MiB", started), r.judge(started, bounds.resident, "%.0f MiB"),
			fmt.Sprintf("%.1f MiB", loaded), r.judge(loaded, bounds.resident, "%.0f MiB"),
			fmt.Sprintf("%.2f %%", f.idle), r.judge(f.idle, bounds.idle, "%.2f %%"))
	}
	r.end()
}
