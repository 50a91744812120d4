//go:build chart

package chart

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// rules are the alerts as they are shipped.
func rules(t *testing.T) (alerts []object, file string) {
	t.Helper()
	rule := the(t, preset("central").objects(t), "PrometheusRule")
	text, err := yaml.Marshal(rule.at("spec"))
	must(t, err)
	file = filepath.Join(t.TempDir(), "rules.yaml")
	must(t, os.WriteFile(file, text, 0o600))
	for _, g := range rule.objects("spec", "groups") {
		alerts = append(alerts, g.objects("rules")...)
	}
	return alerts, file
}

// testdata/alerts*.yaml have, for each alert, the metrics under which it fires and those under which it does not.
func TestAlerts(t *testing.T) {
	alerts, file := rules(t)
	output(t, nil, tool(t, "promtool"), "check", "rules", file)
	// promtool compares annotations to the letter; what is tested here is when an alert fires.
	for _, a := range alerts {
		delete(a, "annotations")
	}
	bare, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "bare", "rules": alerts}}})
	must(t, err)
	must(t, os.WriteFile(file, bare, 0o600))
	var text []byte
	for _, name := range []string{"alerts.yaml", "alerts-days.yaml"} {
		cases, err := os.ReadFile("testdata/" + name)
		must(t, err)
		tests := filepath.Join(filepath.Dir(file), name)
		must(t, os.WriteFile(tests, cases, 0o600))
		output(t, nil, tool(t, "promtool"), "test", "rules", tests)
		text = append(text, cases...)
	}
	for _, a := range alerts {
		name := a.str("alert")
		fires := regexp.MustCompile(`alertname: ` + name + `\n\s+exp_alerts:\n`)
		silent := regexp.MustCompile(`alertname: ` + name + `\n\s+exp_alerts: \[\]`)
		if !fires.Match(text) || !silent.Match(text) {
			t.Errorf("no test shows %s both firing and silent", name)
		}
	}
}

func TestEveryAlertHasARunbook(t *testing.T) {
	alerts, _ := rules(t)
	text, err := os.ReadFile(chartDir + "/README.md")
	must(t, err)
	for _, a := range alerts {
		name := a.str("alert")
		if !regexp.MustCompile(`(?m)^### ` + name + `$`).Match(text) {
			t.Errorf("README.md has no section %s", name)
		}
		if url := a.str("annotations", "runbook_url"); !strings.HasSuffix(url, "/charts/keypost/README.md#"+strings.ToLower(name)) {
			t.Errorf("%s: runbook %s", name, url)
		}
		if s := a.str("labels", "severity"); s != "warning" && s != "critical" {
			t.Errorf("%s: severity %q", name, s)
		}
	}
	if lines := strings.Count(string(text), "\n"); lines > 300 {
		t.Errorf("README.md has %d lines; nobody reads more than 300", lines)
	}
}

var metric = regexp.MustCompile(`\b(keypost_[a-z0-9_]+)\b`)

// made are the names of all metrics in the programs' source.
func made(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	must(t, filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "test" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`"(keypost_[a-z0-9_]+)"`).FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	}))
	return slices.Sorted(maps.Keys(names))
}

func TestAlertsAndDashboardNameExistingMetrics(t *testing.T) {
	all := made(t)
	dashboard, err := os.ReadFile(chartDir + "/files/dashboard.json")
	must(t, err)
	texts := map[string]string{"dashboard": string(dashboard)}
	alerts, _ := rules(t)
	for _, a := range alerts {
		texts[a.str("alert")] = a.str("expr")
	}
	for where, text := range texts {
		for _, m := range metric.FindAllString(text, -1) {
			if !slices.Contains(all, m) {
				t.Errorf("%s: no program makes %s", where, m)
			}
		}
	}
}

func TestDashboardIsShippedWhole(t *testing.T) {
	want, err := os.ReadFile(chartDir + "/files/dashboard.json")
	must(t, err)
	for _, c := range find(preset("central").objects(t), "ConfigMap") {
		if got := c.str("data", "keypost.json"); got != "" && strings.TrimSpace(got) == strings.TrimSpace(string(want)) {
			return
		}
	}
	t.Error("no ConfigMap holds the dashboard")
}
