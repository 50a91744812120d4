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
	rule := the(t, preset("central").objects(t, append(enrolls, "watch.enabled=true", "monitoring.rules.keyChanges=true")...), "PrometheusRule")
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
	t.Parallel()
	alerts, file := rules(t)
	output(t, nil, tool(t, "promtool"), "check", "rules", file)
	shown(t, alerts, filepath.Dir(file), "alerts.yaml", "alerts-days.yaml", "alerts-enroll.yaml")
}

// shown has promtool run files of testdata on the alerts, which stand in dir/rules.yaml without their annotations: promtool compares
// those to the letter, and what is tested is when an alert fires.
func shown(t *testing.T, alerts []object, dir string, files ...string) {
	t.Helper()
	for _, a := range alerts {
		delete(a, "annotations")
	}
	bare, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "bare", "rules": alerts}}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), bare, 0o600))
	var cases []alertCase
	for _, name := range files {
		given := read(t, "testdata/"+name)
		tests := filepath.Join(dir, name)
		must(t, os.WriteFile(tests, given, 0o600))
		output(t, nil, tool(t, "promtool"), "test", "rules", tests)
		var parsed struct{ Tests []alertCase }
		must(t, yaml.Unmarshal(given, &parsed))
		cases = append(cases, parsed.Tests...)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, c := range cases {
		for _, at := range c.AlertRuleTest {
			fires[at.Alertname] = fires[at.Alertname] || len(at.ExpAlerts) > 0
			silent[at.Alertname] = silent[at.Alertname] || len(at.ExpAlerts) == 0
		}
	}
	for _, a := range alerts {
		if name := a.str("alert"); !fires[name] || !silent[name] {
			t.Errorf("no test shows %s both firing and silent", name)
		}
	}
	checkNotEarly(t, cases)
}

// checkNotEarly: wherever an alert fires, the same metrics show it silent until shortly before.
func checkNotEarly(t *testing.T, cases []alertCase) {
	t.Helper()
	for _, c := range cases {
		early := map[string]bool{}
		for _, at := range c.AlertRuleTest {
			if len(at.ExpAlerts) == 0 {
				early[at.Alertname] = true
			} else if !early[at.Alertname] {
				t.Errorf("nothing shows that %s, which fires at %s, does not fire early", at.Alertname, at.EvalTime)
			}
		}
	}
}

// alertCase is one of promtool's tests.
type alertCase struct {
	AlertRuleTest []struct {
		EvalTime  string `json:"eval_time"`
		Alertname string `json:"alertname"`
		ExpAlerts []any  `json:"exp_alerts"`
	} `json:"alert_rule_test"`
}

func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	alerts, _ := rules(t)
	text := read(t, chartDir+"/README.md")
	for _, a := range alerts {
		name := a.str("alert")
		if !regexp.MustCompile(`(?m)^### ` + name + `$`).Match(text) {
			t.Errorf("README.md has no section %s", name)
		}
		if url := a.str("annotations", "runbook_url"); !strings.HasSuffix(url, "/charts/keypost/README.md#"+strings.ToLower(name)) {
			t.Errorf("%s: runbook %s", name, url)
		}
		severity := a.str("labels", "severity")
		if !slices.Contains([]string{"info", "warning", "critical"}, severity) {
			t.Errorf("%s: severity %q", name, severity)
		}
		// A page is for what relying parties feel, now or soon; the runbook says which alerts page.
		if says := strings.Contains(string(text), "### "+name+"\nCritical"); says != (severity == "critical") {
			t.Errorf("%s is %s, but its runbook says critical: %v", name, severity, says)
		}
	}
	if lines := strings.Count(string(text), "\n"); lines > 320 {
		t.Errorf("README.md has %d lines; nobody reads more than 320", lines)
	}
}

// What names no key set sends anyone who is paged to search ten thousand.
func TestAlertsOfKeySetsNameThem(t *testing.T) {
	t.Parallel()
	alerts, _ := rules(t)
	named := 0
	for _, a := range alerts {
		if !regexp.MustCompile(`keypost_(mirror_)?key_set_|keypost_watch_(certificate|rogue|served|last_complete|look_failing|upload_failing)`).MatchString(a.str("expr")) {
			continue
		}
		named++
		if !strings.Contains(a.str("expr"), "key_set") || !strings.Contains(a.str("annotations", "description"), "$labels.key_set") {
			t.Errorf("%s does not name the key set: %s: %s", a.str("alert"), a.str("expr"), a.str("annotations", "description"))
		}
	}
	if named < 10 {
		t.Errorf("only %d alerts are about key sets", named)
	}
}

// Every planned rotation would set it off: it is for those who have a rota that looks.
func TestNoticeOfChangesIsOffByDefault(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]bool{"monitoring.rules.keyChanges=true": true, "monitoring.rules.enabled=true": false} {
		if got := strings.Contains(preset("central").text(t, set), "alert: KeypostKeysChanged"); got != want {
			t.Errorf("with %s: %v", set, got)
		}
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
	t.Parallel()
	all := made(t)
	dashboard := read(t, chartDir+"/files/dashboard.json")
	texts := map[string]string{"dashboard": string(dashboard)}
	alerts, _ := rules(t)
	for _, a := range alerts {
		texts[a.str("alert")] = a.str("expr")
	}
	for where, text := range texts {
		for _, m := range metric.FindAllString(text, -1) {
			if !slices.Contains(all, strings.TrimSuffix(m, "_bucket")) { // of a histogram
				t.Errorf("%s: no program makes %s", where, m)
			}
		}
	}
}

func TestDashboardIsShippedWhole(t *testing.T) {
	t.Parallel()
	want := read(t, chartDir+"/files/dashboard.json")
	for _, c := range find(preset("central").objects(t), "ConfigMap") {
		if got := c.str("data", "keypost.json"); got != "" && strings.TrimSpace(got) == strings.TrimSpace(string(want)) {
			return
		}
	}
	t.Error("no ConfigMap holds the dashboard")
}

// dashboardPanel is as much of a panel as these tests look at.
type dashboardPanel struct {
	Title   string
	Targets []struct {
		Expr, LegendFormat string
	}
	FieldConfig struct {
		Defaults struct {
			Thresholds struct {
				Steps []struct {
					Color string
					Value *float64
				}
			}
		}
	}
}

// What a panel asks for is a query that Prometheus understands, of one thing at a time: a count of keypostd's added to
// one of the mirror's is neither's.
func TestDashboardExpressions(t *testing.T) {
	t.Parallel()
	text := read(t, chartDir+"/files/dashboard.json")
	var dashboard struct{ Panels []dashboardPanel }
	must(t, yaml.Unmarshal(text, &dashboard))
	var recorded []any
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			if strings.Contains(target.Expr, "__name__") {
				t.Errorf("%s mixes metrics: %s", p.Title, target.Expr)
			}
			if len(p.Targets) > 1 && target.LegendFormat == "" {
				t.Errorf("%s does not say which of its values is which", p.Title)
			}
			expr := strings.NewReplacer("$__rate_interval", "5m", "$namespace", "oidc", "$job", "j").Replace(target.Expr)
			recorded = append(recorded, map[string]any{"record": "panel:x", "expr": expr, "labels": map[string]string{"panel": p.Title + target.LegendFormat}})
		}
		// A cluster of one node has one replica, and nothing is wrong with it.
		if p.Title == "Replicas up" {
			for _, step := range p.FieldConfig.Defaults.Thresholds.Steps {
				if step.Value != nil && (*step.Value != 1 || step.Color != "green") {
					t.Errorf("%s is %s from %v on", p.Title, step.Color, *step.Value)
				}
			}
		}
	}
	if len(recorded) < 20 {
		t.Fatalf("%d queries", len(recorded))
	}
	rules, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": recorded}}})
	must(t, err)
	file := filepath.Join(t.TempDir(), "panels.yaml")
	must(t, os.WriteFile(file, rules, 0o600))
	output(t, nil, tool(t, "promtool"), "check", "rules", file)
}
