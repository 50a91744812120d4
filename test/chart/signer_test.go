//go:build chart

package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestSignerAlerts: promtool takes keypost-signer's alerts, testdata/alerts-signer.yaml shows each firing and silent, and docs/signer.md has a
// runbook for each.
func TestSignerAlerts(t *testing.T) {
	const shipped = "../../cmd/keypost-signer/prometheus/alerts.yaml"
	output(t, nil, tool(t, "promtool"), "check", "rules", shipped)
	text, err := os.ReadFile(shipped)
	must(t, err)
	var file struct {
		Groups []struct {
			Name  string   `json:"name"`
			Rules []object `json:"rules"`
		} `json:"groups"`
	}
	must(t, yaml.Unmarshal(text, &file))
	cases, err := os.ReadFile("testdata/alerts-signer.yaml")
	must(t, err)
	page, err := os.ReadFile("../../docs/signer.md")
	must(t, err)
	for _, a := range file.Groups[0].Rules {
		name := a.str("alert")
		if !strings.HasSuffix(a.str("annotations", "runbook_url"), "/docs/signer.md#"+strings.ToLower(name)) || !regexp.MustCompile(`(?m)^### `+name+`$`).Match(page) {
			t.Errorf("%s has no runbook in docs/signer.md", name)
		}
		if n := strings.Count(string(cases), "alertname: "+name+","); n < 2 {
			t.Errorf("%d cases show %s firing and silent", n, name)
		}
		delete(a, "annotations") // promtool compares them to the letter
	}
	dir := t.TempDir()
	bare, err := yaml.Marshal(file)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), bare, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "tests.yaml"), cases, 0o600))
	output(t, nil, tool(t, "promtool"), "test", "rules", filepath.Join(dir, "tests.yaml"))
}
