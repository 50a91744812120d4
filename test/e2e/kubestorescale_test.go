//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// TestKubestoreScale prints what listing, starting and one change cost over the number of key sets, and fails when the
// cost of one change grows with it. KEYPOST_E2E_FULL=1 adds 10,000 key sets, which takes some minutes to write.
func TestKubestoreScale(t *testing.T) {
	sizes := []int{1, 100}
	if os.Getenv("KEYPOST_E2E_FULL") == "1" {
		sizes = append(sizes, 10_000)
	}
	p := newKubeScene(t)
	table := []string{"| key sets | written in | list | start to ready | change written (2 GET, 1 PUT) | from written to watch event | to served | requests per change and reader |", "|---|---|---|---|---|---|---|---|"}
	var costs []scaleCost
	for _, n := range sizes {
		c := p.scale(t, n)
		costs = append(costs, c)
		table = append(table, c.row())
	}
	t.Logf("kubestore:\n%s", strings.Join(table, "\n"))
	first, last := costs[0], costs[len(costs)-1]
	if first.requests != last.requests {
		t.Errorf("a change costs %v requests among %d key sets and %v among %d", first.requests, first.sets, last.requests, last.sets)
	}
	if last.served > 2*time.Second {
		t.Errorf("a change among %d key sets is served after %v, want 2 s at most", last.sets, last.served)
	}
}

// scaleCost holds medians.
type scaleCost struct {
	sets                                        int
	fill, list, ready, written, noticed, served time.Duration
	requests                                    float64
}

func (c scaleCost) row() string {
	ms := func(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
	return fmt.Sprintf("| %d | %s | %s | %s | %s | %s | %s | %.1f |",
		c.sets, ms(c.fill), ms(c.list), ms(c.ready), ms(c.written), ms(c.noticed), ms(c.served), c.requests)
}

func (p *kubeScene) scale(t *testing.T, n int) scaleCost {
	c := scaleCost{sets: n}
	ns := p.space(t)
	st := p.store(t, ns)
	c.fill = took(func() { fill(t, st, n, storetest.SyntheticRSA(t, 1), storetest.SyntheticRSA(t, 2)) })
	c.list = median(5, func() time.Duration {
		return took(func() {
			if all, err := st.List(t.Context()); err != nil || len(all) != n {
				t.Errorf("List has %d names, %v; want %d", len(all), err, n)
			}
		})
	})
	p.scaleChange(t, st, &c)
	began := time.Now()
	pub := startPublisher(t, keystore.NewStore(p.store(t, ns)), time.Hour) // no poll: what is left is what a change costs
	soon(t, "the publisher is ready", func() bool { return pub.Ready() == nil })
	c.ready = time.Since(began)
	const changes = 20
	before := p.quiet(t)
	c.served = median(changes, func() time.Duration {
		s, err := keystore.Update(t.Context(), keystore.NewStore(st), numbered(n/2), storetest.Numbered)
		must(t, err)
		return took(func() {
			soon(t, "the change is served", func() bool { return statusOf(pub, s.Name()).Generation == s.Generation() })
		})
	})
	c.requests = float64(p.quiet(t)-before-2*changes) / changes // without the two of the writer
	return c
}

// scaleChange measures how long a change takes to be written, and from then to the event of a watch.
func (p *kubeScene) scaleChange(t *testing.T, st keystore.Backend, c *scaleCost) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := make(chan time.Time, 1000)
	watching := make(chan error, 1)
	go func() {
		watching <- st.(keystore.Watcher).Watch(ctx, func(...keystore.Name) { events <- time.Now() }) //nolint:forcetypeassert // it is one
	}()
	<-events // it stands
	var noticed []time.Duration
	c.written = median(20, func() time.Duration {
		var done time.Time
		d := took(func() {
			_, err := keystore.Update(t.Context(), keystore.NewStore(st), numbered(c.sets/2), storetest.Numbered)
			must(t, err)
			done = time.Now()
		})
		noticed = append(noticed, max(0, (<-events).Sub(done)))
		return d
	})
	slices.Sort(noticed)
	c.noticed = noticed[len(noticed)/2]
	cancel()
	<-watching
}

// soon polls as fast as a measurement needs it.
func soon(t *testing.T, what string, check func() bool) {
	t.Helper()
	for began := time.Now(); !check(); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func median(n int, f func() time.Duration) time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = f()
	}
	slices.Sort(all)
	return all[n/2]
}

// quiet waits until nobody reads any more (the watch has a publisher list once when it stands), and returns reads.
func (p *kubeScene) quiet(t *testing.T) int {
	t.Helper()
	last := -1
	await(t, "nobody reads key sets", func(context.Context) error {
		time.Sleep(300 * time.Millisecond)
		if now := p.reads(t); now != last {
			last = now
			return fmt.Errorf("%d reads", now)
		}
		return nil
	})
	return last
}

var keySetReads = regexp.MustCompile(`(?m)^apiserver_request_total\{.*resource="keysets".*verb="(?:GET|LIST)".*\} (\d+)$`)

// reads is how many GET and LIST requests for key sets the kube-apiserver has answered.
func (p *kubeScene) reads(t *testing.T) int {
	t.Helper()
	sum := 0
	for _, m := range keySetReads.FindAllStringSubmatch(p.try(t, "", "get", "--raw", "/metrics").ok(t), -1) {
		n, err := strconv.Atoi(m[1])
		must(t, err)
		sum += n
	}
	return sum
}
