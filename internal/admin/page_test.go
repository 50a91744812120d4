package admin

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Many clients that do not take their page cost few collections and do not hold up the one that does. It gets the page that is being made.
func TestMetricsAreSharedAndFresh(t *testing.T) {
	var made, atOnce, most atomic.Int64
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		most.Store(max(most.Load(), atOnce.Add(1)))
		defer atOnce.Add(-1)
		n := made.Add(1)
		time.Sleep(10 * time.Millisecond)
		fmt.Fprintf(w, "%d %s", n, strings.Repeat("x", 1<<20))
	})
	srv := httptest.NewServer(Pages{Metrics: metrics}.handler())
	defer srv.Close()
	for range 50 {
		c := connect(t, srv.Listener.Addr().String(), strings.Repeat("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 10))
		defer c.Close()
	}
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			before := made.Load()
			resp, err := http.Get(srv.URL + "/metrics")
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			var n int64
			if _, err := fmt.Fscan(resp.Body, &n); err != nil || n < before {
				t.Errorf("page %d although %d had been begun: %v", n, before, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
		})
	}
	all.Wait()
	if most.Load() != 1 || made.Load() > 60 {
		t.Errorf("%d pages were made, %d at a time", made.Load(), most.Load())
	}
}
