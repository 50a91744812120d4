package gcpcmd

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestDates: what the clock of who answered says is remembered, and goes on; who says nothing changes nothing.
func TestDates(t *testing.T) {
	date := time.Now().Add(-2 * time.Hour).UTC()
	said := []string{date.Format(http.TimeFormat)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = said }))
	defer server.Close()
	d := &dates{}
	if !d.now().IsZero() {
		t.Error("before any answer")
	}
	client := &http.Client{Transport: d}
	for _, said = range [][]string{said, nil, {"yesterday"}} {
		resp, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if off := d.now().Sub(date); off.Abs() > time.Minute {
			t.Errorf("%q: %v off", said, off)
		}
	}
}
