//go:build chart || e2e_full

// Package chart holds the Helm chart against what it promises: every preset, its alerts and its dashboard.
package chart

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	chartDir    = "../../charts/keypost"
	kubeVersion = "1.34.4"
	namespace   = "oidc"
	release     = "r"
)

// tool is the path of a program that run has installed.
func tool(t *testing.T, name string) string {
	t.Helper()
	path := os.Getenv("KEYPOST_" + strings.ToUpper(name))
	if path == "" {
		t.Fatalf("KEYPOST_%s is not set: use test/chart/run", strings.ToUpper(name))
	}
	return path
}

// output runs a program, which must succeed, and returns its standard output.
func output(t *testing.T, in io.Reader, name string, args ...string) string {
	t.Helper()
	out, errs, err := try(in, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, errs, out)
	}
	return out
}

func try(in io.Reader, name string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// preset is a file of values under presets/.
type preset string

func presets(t *testing.T) []preset {
	t.Helper()
	files, err := filepath.Glob(chartDir + "/presets/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d presets: %v", len(files), err)
	}
	var all []preset
	for _, f := range files {
		all = append(all, preset(strings.TrimSuffix(filepath.Base(f), ".yaml")))
	}
	return all
}

func (p preset) file() string { return chartDir + "/presets/" + string(p) + ".yaml" }

// values are helm's arguments for a preset and what its user adds: no preset says whose hosts or buckets to use.
func (p preset) values(t *testing.T) []string {
	t.Helper()
	args := []string{"-f", p.file()}
	for _, name := range []string{"all", string(p)} {
		file, err := filepath.Abs("testdata/my-values/" + name + ".yaml")
		must(t, err)
		if _, err := os.Stat(file); err == nil {
			args = append(args, "-f", file)
		} else if name == "all" {
			t.Fatal(err)
		}
	}
	return args
}

// rendered is what helm has rendered, by presets and --set arguments: many tests look at the same.
var rendered sync.Map

// text is what helm renders of a preset, with more --set arguments.
func (p preset) text(t *testing.T, set ...string) string {
	t.Helper()
	key := fmt.Sprintf("%s %q", p, set)
	if text, is := rendered.Load(key); is {
		return text.(string)
	}
	args := append([]string{"template", release, chartDir, "--namespace", namespace, "--kube-version", kubeVersion}, p.values(t)...)
	for _, s := range set {
		args = append(args, "--set", s)
	}
	text := output(t, nil, tool(t, "helm"), args...)
	rendered.Store(key, text)
	return text
}

// everything is every optional part at once.
var everything = []string{
	"monitoring.serviceMonitor.enabled=true", "monitoring.rules.enabled=true", "monitoring.dashboard.enabled=true",
	"test.issuers={https://oidc.example.com/prod-a}",
}

// object is one rendered manifest.
type object map[string]any

func (p preset) objects(t *testing.T, set ...string) []object {
	t.Helper()
	var all []object
	for _, doc := range strings.Split(p.text(t, set...), "\n---\n") {
		var o object
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
	return all
}

// at walks down maps; a missing member is nil.
func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func (o object) str(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

func (o object) objects(path ...string) []object {
	list, _ := o.at(path...).([]any)
	var all []object
	for _, v := range list {
		m, _ := v.(map[string]any)
		all = append(all, m)
	}
	return all
}

func (o object) strs(path ...string) (all []string) {
	list, _ := o.at(path...).([]any)
	for _, v := range list {
		s, _ := v.(string)
		all = append(all, s)
	}
	return all
}

// find returns the objects of a kind.
func find(all []object, kind string) []object {
	var found []object
	for _, o := range all {
		if o.str("kind") == kind {
			found = append(found, o)
		}
	}
	return found
}

// the returns the only object of a kind.
func the(t *testing.T, all []object, kind string) object {
	t.Helper()
	found := find(all, kind)
	if len(found) != 1 {
		t.Fatalf("%d objects of kind %s", len(found), kind)
	}
	return found[0]
}

// workload is the Deployment or StatefulSet.
func workload(t *testing.T, all []object) object {
	t.Helper()
	return the(t, append(find(all, "Deployment"), find(all, "StatefulSet")...), append(find(all, "Deployment"), find(all, "StatefulSet")...)[0].str("kind"))
}

// config is keypostd's configuration.
func config(all []object) (text string) {
	for _, c := range find(all, "ConfigMap") {
		text += c.str("data", "keypostd.yaml")
	}
	return text
}

// pod is what the workload makes.
func pod(t *testing.T, all []object) object {
	t.Helper()
	return workload(t, all).at("spec", "template", "spec").(map[string]any)
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func awaitReady(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not ready after a minute: %v", err)
}
