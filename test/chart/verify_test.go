//go:build chart

package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What keypost verify leaves for node_exporter is what Prometheus reads, by its own linter.
func TestVerifyMetrics(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keypost.prom")
	_, stderr, err := try(nil, filepath.Join(tool(t, "bin"), "keypost"), "verify", "https://localhost:1/a b", "https://localhost:1/a", "--dev", "--metrics-file", file)
	if err == nil {
		t.Fatal("nothing listens there, and verify finds nothing")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	for _, name := range []string{"keypost_verify_findings", "keypost_verify_failed", "keypost_verify_unread_key_sets", "keypost_verify_last_run_timestamp_seconds"} {
		if !strings.Contains(string(data), "\n"+name) {
			t.Errorf("no %s in\n%s", name, data)
		}
	}
	if out := output(t, strings.NewReader(string(data)), tool(t, "promtool"), "check", "metrics"); out != "" {
		t.Errorf("promtool: %s", out)
	}
}
