package fakecloud

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"
)

func TestABucketRefillsAndSaysWhen(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		rate, holds float64
		burst       int
		after       time.Duration
	}{{5, 0, 5, 200 * time.Millisecond}, {1, 0, 1, time.Second}, {0.25, 0, 1, 4 * time.Second}, {1, 60, 60, time.Second}, {10, 2, 2, 100 * time.Millisecond}} {
		b := Bucket{Rate: c.rate, Burst: c.holds}
		for i := range c.burst {
			if _, ok := b.Take(now); !ok {
				t.Errorf("%v: refused after %d", c.rate, i)
			}
		}
		after, ok := b.Take(now)
		if ok || after != c.after {
			t.Errorf("%v: %v %v", c.rate, after, ok)
		}
		if _, ok := b.Take(now.Add(after - time.Millisecond)); ok {
			t.Errorf("%v: too soon", c.rate)
		}
		if _, ok := b.Take(now.Add(after)); !ok {
			t.Errorf("%v: refused when it was told to come back", c.rate)
		}
	}
	free := Bucket{}
	for range 100 {
		if _, ok := free.Take(now); !ok {
			t.Fatal("a bucket without a rate ran dry")
		}
	}
}

func TestALateReadFindsTheOldState(t *testing.T) {
	t.Parallel()
	const delay = 10 * time.Second
	now := time.Now()
	h := NewHistory("none")
	h.Commit("first", now, delay)
	h.Commit("second", now.Add(time.Second), delay)
	for after, want := range map[time.Duration]string{0: "none", 9 * time.Second: "none", 10 * time.Second: "first", 11 * time.Second: "second"} {
		if got := h.View(now.Add(after), delay); got != want {
			t.Errorf("after %v: %s", after, got)
		}
	}
	if h.Present() != "second" {
		t.Error(h.Present())
	}
	h.Commit("third", now.Add(time.Minute), delay)
	if len(h) != 2 {
		t.Errorf("%d states are kept, where reads can see one of two", len(h))
	}
}

func TestMapsAreCopied(t *testing.T) {
	t.Parallel()
	one := With(map[string]int(nil), "a", 1)
	two := With(one, "b", 2)
	if three := Without(two, "a"); len(one) != 1 || len(two) != 2 || len(three) != 1 || !slices.Equal(Sorted(two), []int{1, 2}) {
		t.Error(one, two, three)
	}
}

func TestARecordCountsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	var r Record
	r.Fault(func(c Call) Fault {
		if c.Action == "slow" {
			return Fault{Late: time.Second}
		}
		return Fault{}
	})
	told := []int{}
	r.OnCall(func(n int, c Call) { told = append(told, n) })
	first, fault := r.Begin(Call{Action: "slow"})
	second, none := r.Begin(Call{Action: "quick"})
	if fault.Late != time.Second || none.Late != 0 || first.InFlight != 1 || second.InFlight != 2 {
		t.Error(fault, none, first, second)
	}
	r.End(second, "Conflict")
	if calls := r.Calls(); len(calls) != 1 || calls[0].N != 2 || calls[0].Code != "Conflict" || calls[0].Took <= 0 {
		t.Error(calls)
	}
	r.End(first, "")
	if calls := r.Calls(); len(calls) != 2 || calls[0].Action != "slow" || !slices.Equal(told, []int{2, 1}) {
		t.Error(calls, told)
	}
	r.ResetCalls()
	if third, _ := r.Begin(Call{}); third.N != 1 || third.InFlight != 1 {
		t.Error(third)
	}
}

func TestATunnelLeadsKnownHostsToTheServer(t *testing.T) {
	t.Parallel()
	fake := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "fake "+Host(r)) }))
	defer fake.Close()
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "other") }))
	defer other.Close()
	front := Start(t, "tunnel", func(l net.Listener) error {
		return Serve(l, &http.Server{Handler: Tunnel(fake.Listener.Addr().String(), []string{"example.com", "*.example.com"})})
	})
	proxy, err := url.Parse(front)
	if err != nil {
		t.Fatal(err)
	}
	transport := fake.Client().Transport.(*http.Transport).Clone()
	transport.Proxy = http.ProxyURL(proxy)
	transport.TLSClientConfig.RootCAs.AddCert(other.Certificate())
	client := &http.Client{Transport: transport}
	for u, want := range map[string]string{"https://example.com/": "fake example.com", "https://a.example.com/": "fake a.example.com", other.URL: "other"} {
		r, err := client.Get(u)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r.Body)
		if err != nil || string(b) != want || r.Body.Close() != nil {
			t.Errorf("%s: %s %v", u, b, err)
		}
	}
	if r, err := http.Get(front); err != nil || r.StatusCode != http.StatusMethodNotAllowed || r.Body.Close() != nil {
		t.Error(r, err)
	}
}

func TestFlagsAreRead(t *testing.T) {
	t.Parallel()
	if Dialer("") != nil || Dialer("direct") == nil || Dialer("127.0.0.1:1") == nil {
		t.Error("a dialer")
	}
	if p, err := Pool(""); p != nil || err != nil {
		t.Error(p, err)
	}
	for _, file := range []string{"/dev/null", "/nonexistent"} {
		if _, err := Pool(file); err == nil {
			t.Error(file)
		}
	}
}
