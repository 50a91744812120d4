//go:build chart

package chart

import (
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestSignerAlerts: promtool takes keypost-signer's alerts, testdata/alerts-signer.yaml shows each firing and silent, and docs/signer.md has a
// runbook for each.
func TestSignerAlerts(t *testing.T) {
	t.Parallel()
	const shipped = "../../cmd/keypost-signer/prometheus/alerts.yaml"
	output(t, nil, tool(t, "promtool"), "check", "rules", shipped)
	text := read(t, shipped)
	var file struct {
		Groups []struct {
			Name  string   `json:"name"`
			Rules []object `json:"rules"`
		} `json:"groups"`
	}
	must(t, yaml.Unmarshal(text, &file))
	page := read(t, "../../docs/signer.md")
	for _, a := range file.Groups[0].Rules {
		name := a.str("alert")
		if !strings.HasSuffix(a.str("annotations", "runbook_url"), "/docs/signer.md#"+strings.ToLower(name)) || !regexp.MustCompile(`(?m)^### `+name+`$`).Match(page) {
			t.Errorf("%s has no runbook in docs/signer.md", name)
		}
	}
	shown(t, file.Groups[0].Rules, t.TempDir(), "alerts-signer.yaml")
}
