package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// collector is how a keypostd's garbage collector is set, by its own metrics. The floor gets the same settings: a larger
// heap is cheaper to collect, and would make keypostd look better than its code is.
type collector struct {
	percent float64 // GOGC
	limit   float64 // GOMEMLIMIT, in bytes
	goal    float64 // how large the heap may grow before the next collection, in bytes
}

// unlimited is above every memory limit; the runtime's "none" is the largest int64.
const unlimited = 1 << 62

func (c collector) env() []string {
	env := []string{fmt.Sprintf("GOGC=%.0f", c.percent)}
	if c.percent < 0 {
		env[0] = "GOGC=off"
	}
	if c.limit < unlimited {
		env = append(env, fmt.Sprintf("GOMEMLIMIT=%.0f", c.limit))
	}
	return env
}

func (s *server) collector(ctx context.Context) (collector, error) {
	text, err := s.metrics(ctx)
	if err != nil {
		return collector{}, err
	}
	return parseCollector(text)
}

func parseCollector(text string) (c collector, err error) {
	for name, to := range map[string]*float64{
		"go_gc_gogc_percent": &c.percent, "go_gc_gomemlimit_bytes": &c.limit, "go_memstats_next_gc_bytes": &c.goal,
	} {
		if *to, err = metric(text, name); err != nil {
			return c, err
		}
	}
	return c, nil
}

// collectors warns when the compared binary has another collector than keypostd, and so than the floor.
func (r *report) collectors(ctx context.Context, own, other side) error {
	a, err := own.server.collector(ctx)
	if err != nil {
		return err
	}
	b, err := other.server.collector(ctx)
	if err != nil {
		return err
	}
	r.sameCollector(a, b)
	return nil
}

func (r *report) sameCollector(own, other collector) {
	if !slices.Equal(own.env(), other.env()) {
		r.note("\nMind that the compared binary runs with %s, keypostd and the floor with %s.", strings.Join(other.env(), " "), strings.Join(own.env(), " "))
	}
}

func (s *server) metrics(ctx context.Context) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", fmt.Errorf("read keypostd's metrics: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("read keypostd's metrics: it answers %s", resp.Status)
	}
	return string(text), err
}

// metric returns the value of a metric without labels.
func metric(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("keypostd's metrics have no %s", name)
}
