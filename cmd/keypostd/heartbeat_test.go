package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/keystore/replicate"
)

// Where no mirror is, nothing is said of one; where there is one, its note tells, and a damaged note alarms.
func TestHeartbeat(t *testing.T) {
	const text = "# HELP keypost_mirror_heartbeat_timestamp_seconds When keypost mirror last listed the whole store, as it noted in the directory; absent where no mirror writes it.\n" +
		"# TYPE keypost_mirror_heartbeat_timestamp_seconds gauge\nkeypost_mirror_heartbeat_timestamp_seconds "
	for note, want := range map[string]string{
		"": "",
		`{"complete":"2030-01-02T03:04:05Z","store":"s3://b/p","keySets":3}`: text + "1.893553445e+09\n",
		`{"complete":`: text + "0\n",
		`{}`:           text + "0\n",
	} {
		dir := t.TempDir()
		if note != "" {
			if err := os.WriteFile(filepath.Join(dir, replicate.HeartbeatFile), []byte(note), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := testutil.CollectAndCompare(newHeartbeat(dir), strings.NewReader(want)); err != nil {
			t.Errorf("%s: %v", note, err)
		}
	}
}

// A reading that hangs takes no metric away.
func TestHeartbeatThatHangs(t *testing.T) {
	dir := t.TempDir()
	h := newHeartbeat(dir)
	free := make(chan struct{})
	defer close(free)
	_ = hang.Do(t.Context(), &h.hangs, dir, func() error { <-free; return nil }) // one that hangs
	began := time.Now()
	if n := testutil.CollectAndCount(h); n != 1 || time.Since(began) > time.Second {
		t.Errorf("%d metrics after %v while a reading hangs, want one that alarms", n, time.Since(began))
	}
}
