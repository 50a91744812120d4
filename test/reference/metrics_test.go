package reference

import (
	"fmt"
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/golden"
)

const metricsPreface = `# Metrics

Made from the source, and from the chart's alerts, by ` + "`KEYPOST_UPDATE=1 go test ./test/reference -run TestMetricsReference`" + `: edit those.

Times are seconds since 1970. Names end as Prometheus wants them: ` + "`_total`" + ` is a counter, ` + "`_timestamp_seconds`" + ` a time. The chart
scrapes all of it. The last column has its alerts that ask for the metric, each with a runbook; those that ask only for Prometheus'
own ` + "`up`" + `, %s, are in no row. keypostd, ` + "`keypost mirror`" + `, ` + "`keypost watch`" + ` and ` + "`keypost enroll`" + ` have Go's
own metrics (` + "`go_*`, `process_*`" + `) as well. No label holds what a client or a stranger's server said.

`

// metric is a family as the source makes it.
type metric struct {
	name, kind, help string
	labels           []string
}

// exporters are the programs, with the packages that make their metrics.
var exporters = []struct {
	title, text string
	dirs        []string
}{
	{"keypostd", "At `/metrics` of `admin.address`, by default 127.0.0.1:9090.", []string{"cmd/keypostd", "issuer", "issuer/listen", "issuer/listen/shield"}},
	{"keypost mirror", "At `/metrics` of `--admin-address`.", []string{"cmd/keypost/internal/mirrorcmd"}},
	{"keypost watch", "At `/metrics` of `--listen`, by default 127.0.0.1:9094.", []string{"cmd/keypost/internal/watchcmd"}},
	{"keypost-signer", "At `/metrics` of `admin.address`, by default 127.0.0.1:9095.", []string{"issuer/signer"}},
	{"keypost enroll", "At `/metrics` of `--listen`, by default 127.0.0.1:9096.", []string{"cmd/keypost/internal/enrollcmd"}},
}

// TestMetricsReference: docs/reference/metrics.md names every metric that the source makes, and the alerts that ask for it.
func TestMetricsReference(t *testing.T) {
	var b strings.Builder
	users, others := alertsByMetric(t)
	fmt.Fprintf(&b, metricsPreface, strings.Join(others, ", "))
	documented, ending, packages := 0, 0, sources(t, "github.com/prometheus/client_golang/prometheus")
	for _, e := range exporters {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n| metric | type | labels | what it says | alerts |\n|---|---|---|---|---|\n", e.title, e.text)
		for _, m := range metricsOf(t, e.dirs) {
			documented++
			var alerts []string
			for _, a := range users[m.name] {
				alerts = append(alerts, fmt.Sprintf("[%s](../../charts/keypost/README.md#%s)", a, strings.ToLower(a)))
			}
			if strings.Contains(m.name, "_not_after_") {
				if ending++; len(alerts) == 0 {
					t.Errorf("no alert asks for %s: what it is about expires, and nobody is told", m.name)
				}
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.name, m.kind, codes(m.labels), cell(m.help), strings.Join(alerts, ", "))
			delete(users, m.name)
		}
		b.WriteString("\n")
		packages = slices.DeleteFunc(packages, func(dir string) bool { return slices.Contains(e.dirs, dir) })
	}
	for name, alerts := range users {
		t.Errorf("%s ask for %s, which nothing exports", alerts, name)
	}
	for _, dir := range packages {
		if len(metricsOf(t, []string{dir})) > 0 {
			t.Errorf("%s makes metrics: say here which program's", dir)
		}
	}
	if ending < 3 {
		t.Errorf("only %d metrics say when something expires", ending)
	}
	if documented < 40 {
		t.Errorf("only %d metrics were found", documented)
	}
	golden.Same(t, root+"/docs/reference/metrics.md", strings.TrimRight(b.String(), "\n")+"\n")
}

// metricsOf returns the metrics that packages make, by name.
func metricsOf(t *testing.T, dirs []string) []metric {
	t.Helper()
	all := map[string]metric{}
	for _, dir := range dirs {
		s := parse(t, dir)
		helpers := s.helpers()
		named := map[string]bool{}
		for _, f := range s.files {
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					if v, ok := s.text(n); ok && regexp.MustCompile(`^keypost_\w+$`).MatchString(v) {
						named[v] = true
					}
				case *ast.CallExpr:
					if m, ok := s.metric(n, helpers); ok {
						all[m.name] = m
					}
				}
				return true
			})
		}
		for name := range named {
			if _, found := all[name]; !found {
				t.Errorf("%s names %s, and this test does not see how it is made", dir, name)
			}
		}
	}
	var sorted []metric
	for _, name := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, all[name])
	}
	return sorted
}

// metric returns what a call makes: prometheus.NewXVec(prometheus.XOpts{…}, labels), prometheus.NewDesc(name, help, labels, nil), or
// a function of ours with name and help first.
func (s *source) metric(c *ast.CallExpr, helpers map[string][]string) (metric, bool) {
	if len(c.Args) == 0 {
		return metric{}, false
	}
	if opts, ok := c.Args[0].(*ast.CompositeLit); ok {
		m := metric{}
		for _, e := range opts.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				switch v, _ := s.text(kv.Value); fmt.Sprint(kv.Key) {
				case "Name":
					m.name = v
				case "Help":
					m.help = v
				}
			}
		}
		if len(c.Args) > 1 {
			m.labels = s.texts(c.Args[1])
		}
		_, name := called(c)
		m.kind = strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(name, "New"), "Vec"), "Func"))
		return m, strings.HasPrefix(m.name, "keypost_")
	}
	if len(c.Args) < 2 {
		return metric{}, false
	}
	name, _ := s.text(c.Args[0])
	help, helped := s.text(c.Args[1])
	m := metric{name: name, help: help, kind: "gauge"}
	switch _, function := called(c); {
	case function == "NewDesc" && len(c.Args) > 2:
		m.labels = s.texts(c.Args[2])
	default:
		m.labels = slices.Clone(helpers[function])
		for _, a := range c.Args[2:] {
			if v, ok := s.text(a); ok {
				m.labels = append(m.labels, v)
			}
		}
	}
	return m, helped && strings.HasPrefix(name, "keypost_")
}

// helpers returns the labels that functions of ours give to each metric that they make: those of append([]string{…}, more...).
func (s *source) helpers() map[string][]string {
	found := map[string][]string{}
	for _, f := range s.files {
		ast.Inspect(f, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok || len(a.Rhs) != 1 {
				return true
			}
			if body, ok := a.Rhs[0].(*ast.FuncLit); ok {
				ast.Inspect(body, func(n ast.Node) bool {
					if c, ok := n.(*ast.CallExpr); ok {
						if _, name := called(c); name == "append" {
							found[fmt.Sprint(a.Lhs[0])] = s.texts(c.Args[0])
						}
					}
					return true
				})
			}
			return true
		})
	}
	return found
}

var (
	alertBlock = regexp.MustCompile(`(?m)^- alert: (\w+)\n(?:  .*\n)*?  expr: (.*(?:\n    .*)*)$`) // an expression may go on in lines of its own
	metricName = regexp.MustCompile(`\bkeypost_\w+`)
)

// alertsByMetric returns the chart's alerts by the metrics of ours that they ask for, and those that ask for none. Each has a runbook.
func alertsByMetric(t *testing.T) (users map[string][]string, others []string) {
	t.Helper()
	users = map[string][]string{}
	template, runbooks := read(t, "charts/keypost/templates/_alerts.tpl"), read(t, "charts/keypost/README.md")
	seen := 0
	for _, m := range alertBlock.FindAllStringSubmatch(template, -1) {
		if !strings.Contains(runbooks, "\n### "+m[1]+"\n") {
			t.Errorf("%s has no runbook", m[1])
		}
		names := metricName.FindAllString(m[2], -1)
		if seen += len(names); len(names) == 0 {
			others = append(others, m[1])
		}
		for _, name := range names {
			if !slices.Contains(users[name], m[1]) {
				users[name] = append(users[name], m[1])
			}
		}
	}
	if all := len(metricName.FindAllString(template, -1)); seen != all || len(users) < 15 {
		t.Errorf("the template names metrics %d times, expressions of alerts were seen to %d times, %d metrics", all, seen, len(users))
	}
	return users, others
}
