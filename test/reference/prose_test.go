package reference

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	metricInProse = regexp.MustCompile(`\bkeypost_[a-z0-9_]+`)
	metricRow     = regexp.MustCompile("(?m)^\\| `(keypost_\\w+)` \\| (\\w+)")
	settingHead   = regexp.MustCompile(`(?m)^##+ ([a-z]\S*)$`)
	pathInProse   = regexp.MustCompile("`([a-z][A-Za-z0-9]*(?:\\.[A-Za-z][A-Za-z0-9]*(?:\\[\\])?)+)(?:: [^`]+)?`")
)

// TestProse: every metric that a document names is one that is exported, and every setting a.b.c one that keypostd or the chart has.
func TestProse(t *testing.T) {
	metrics, settings := exported(t), settings(t)
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(pages) < 8 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	more, err := filepath.Glob(root + "/docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(append(pages, more...), root+"/README.md", root+"/charts/keypost/README.md")
	named, set := 0, 0
	for _, page := range pages {
		name, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "docs/reference/") { // made from the source itself
			continue
		}
		text := read(t, name)
		for _, m := range metricInProse.FindAllString(text, -1) {
			if named++; !metrics[m] {
				t.Errorf("%s: %s is not a metric of docs/reference/metrics.md", name, m)
			}
		}
		if strings.HasPrefix(name, "docs/platforms/") || name == "docs/troubleshooting.md" { // settings and messages of other programs
			continue
		}
		for _, m := range pathInProse.FindAllStringSubmatch(text, -1) {
			if otherPath(m[1]) {
				continue
			}
			if set++; !settings[m[1]] {
				t.Errorf("%s: %s is not a setting of docs/reference/configuration.md, and no value of the chart", name, m[1])
			}
		}
	}
	if named < 10 || set < 20 {
		t.Errorf("only %d metrics and %d settings were seen", named, set)
	}
}

// exported are the metrics by name, those of a histogram as Prometheus has them too.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range metricRow.FindAllStringSubmatch(read(t, "docs/reference/metrics.md"), -1) {
		all[m[1]] = true
		if m[2] == "histogram" {
			all[m[1]+"_bucket"], all[m[1]+"_sum"], all[m[1]+"_count"] = true, true, true
		}
	}
	return all
}

// settings are the paths of keypostd's configuration and of the chart's values.
func settings(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range settingHead.FindAllStringSubmatch(read(t, "docs/reference/configuration.md"), -1) {
		all[m[1]] = true
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(read(t, "charts/keypost/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		all[path] = true
		m, _ := v.(map[string]any)
		for k, v := range m {
			walk(strings.TrimPrefix(path+"."+k, "."), v)
		}
	}
	walk("", values)
	return all
}

// otherPath reports whether a name with dots is another program's, a file, a host, or a member of what keypost prints.
func otherPath(p string) bool {
	last := p[strings.LastIndex(p, ".")+1:]
	others := []string{"apiServer.extraArgs"}
	return slices.Contains(others, p) ||
		slices.Contains(strings.Fields("crt key pem txt html json yaml conf md go com net org dev"), last)
}
