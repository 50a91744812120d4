//go:build chart

package chart

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/test/commands"
)

// Every command of the documentation for helm, kubectl, oc and aws, and every one of the chart's notes, is given to the
// program that it is for. In the same way it is shown for each that wrong ones are found.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	s := &documented{api: startAPIServer(t), dir: t.TempDir()}
	must(t, os.CopyFS(filepath.Join(s.dir, "keypost"), os.DirFS(chartDir)))
	text := read(t, chartDir+"/README.md")
	mine := regexp.MustCompile("(?ms)^```yaml\n# my-values.yaml(.*?)^```$").FindSubmatch(text)
	if mine == nil {
		t.Fatal("the chart's README does not show my-values.yaml")
	}
	must(t, os.WriteFile(filepath.Join(s.dir, "my-values.yaml"), mine[1], 0o600))
	s.api.prepare(t)
	var err error
	s.all, err = commands.All("../..")
	must(t, err)
	for _, p := range presets(t) {
		args := []string{"install", release, "./keypost", "--dry-run=server", "--set", "test.issuers={https://oidc.example.com/prod-a}", "-n", namespace}
		values := p.values(t)
		values[1] = "keypost/presets/" + string(p) + ".yaml"
		notes, err := s.api.helm(t, s.dir, append(args, values...)...)
		if err != nil {
			t.Fatal(notes)
		}
		_, text, _ := strings.Cut(notes, "NOTES:")
		if !strings.Contains(text, "issuer add NAME") || !strings.Contains(text, "keypost verify NAME --store ") { // what to type next
			t.Errorf("notes of %s: %s", p, text)
		}
		found, err := commands.Notes("notes of preset "+string(p), text)
		must(t, err)
		s.all = append(s.all, found...)
	}
	seen := map[string]bool{}
	s.all = slices.DeleteFunc(s.all, func(c commands.Command) bool { // presets and pages have many in common
		key := fmt.Sprint(c.Mention, c.Words)
		defer func() { seen[key] = true }()
		return seen[key]
	})
	t.Run("helm", s.checkHelm)
	t.Run("wrong helm", s.wrongHelm)
	t.Run("kubectl", s.checkKubectl)
	t.Run("aws", s.checkAWS)
}

// documented is what the parts of TestDocumentedCommands share.
type documented struct {
	api *apiServer
	dir string // to run in; the chart is in it as `helm pull --untar` leaves it
	all []commands.Command
}

// checkHelm: a command with a chart renders it: this one, under its address of the registry or unpacked.
func (s *documented) checkHelm(t *testing.T) {
	found := commands.For(s.all, "helm")
	if len(found) < 5 {
		t.Fatalf("only %d commands were found", len(found))
	}
	for _, c := range found {
		if c.Mention && len(c.Words) < 3 {
			continue // "helm upgrade" as such
		}
		if out, err := s.try(t, c.Words[1:]); err != nil {
			t.Errorf("%s: %v: %s", c, err, out)
		}
	}
}

// wrongHelm: a check that takes anything is none.
func (s *documented) wrongHelm(t *testing.T) {
	for _, line := range []string{
		"install keypost oci://ghcr.io/keypost/keypost/charts/keypost --set issuerURLs[0]=https://a.example.com",
		"install keypost ./keypost --set issuerURLs={https://a.example.com/{name}}",
		"install keypost ./keypost -f presets/kubernetes.yaml -f my-values.yaml",
		"upgrade keypost ./keypost -f keypost/presets/kubernetes.yaml", // forgets my-values.yaml
		"install keypost ./keypost -f keypost/presets/kubernetes.yaml -f my-values.yaml --create-namespaces",
		"rollback keypost --no-such-flag",
	} {
		if _, err := s.try(t, strings.Fields(line)); err == nil {
			t.Errorf("helm %s is taken", line)
		}
	}
}

// try runs helm, without changing anything.
func (s *documented) try(t *testing.T, args []string) (string, error) {
	t.Helper()
	args = slices.Clone(args)
	renders := false
	for i, a := range args {
		switch {
		case a == "oci://ghcr.io/keypost/charts/keypost" && args[0] != "pull":
			args[i], renders = "./keypost", true
		case a == "./keypost":
			renders = true
		}
	}
	switch verb := slices.IndexFunc(args, func(a string) bool { return a == "install" || a == "upgrade" }); {
	case renders && verb >= 0:
		// An upgrade begins by asking the cluster; what it renders is what an installation does.
		args[verb] = "install"
		args = append(slices.DeleteFunc(args, func(a string) bool { return a == "--install" }), "--dry-run=server")
	case slices.Contains(args, "install"):
		if !slices.ContainsFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") && a != "install" }) {
			args = append(args, "--help") // such as `helm install --wait`, which stands for its flags
			break
		}
		return "no chart of ours", os.ErrNotExist
	default:
		args = append(args, "--help") // flags are parsed first; an unknown one is an error
	}
	return s.api.helm(t, s.dir, args...)
}

func runIn(dir, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// checkKubectl runs every command for real, against an API server that holds nothing: what it understands it answers or
// does not find. oc takes the same commands with objects of OpenShift.
func (s *documented) checkKubectl(t *testing.T) {
	s.api.kubectl(t, "", "apply", "--server-side", "-f", chartDir+"/files/keysets.keypost.dev.yaml")
	s.api.kubectl(t, "", "wait", "--for=condition=Established", "crd", "keysets.keypost.dev", "--timeout=60s")
	awaitReady(t, func() error { return s.api.try("", "-n", "default", "create", "serviceaccount", "default") })
	selfSigned(t, s.dir, []string{"oidc.example.com"})
	for from, to := range map[string]string{"tls.crt": "fullchain.pem", "tls.key": "key.pem"} {
		must(t, os.Rename(filepath.Join(s.dir, from), filepath.Join(s.dir, to)))
	}
	for _, dir := range []string{"keysets", "next"} {
		must(t, os.Mkdir(filepath.Join(s.dir, dir), 0o700))
	}
	for _, half := range []string{"sa.key", "sa.pub"} {
		must(t, os.WriteFile(filepath.Join(s.dir, "next", half), []byte("PEM"), 0o600))
	}
	found := commands.For(s.all, "kubectl", "oc")
	if len(found) < 12 {
		t.Fatalf("only %d commands were found", len(found))
	}
	for _, c := range found {
		if err := s.understands(c); err != "" {
			t.Errorf("%s: %s", c, err)
		}
	}
	for _, line := range []string{"get pods --no-such-flag", "gett pods", "auth can-i list", "get nothings", "create secret tls x --certs=fullchain.pem", "patch pod x --type merge -p {"} {
		if err := s.understands(commands.Command{Words: append([]string{"kubectl"}, strings.Fields(line)...)}); err == "" {
			t.Errorf("kubectl %s is taken", line)
		}
	}
}

// notThere are the answers of a kubectl that has understood, about objects that do not exist here.
var notThere = regexp.MustCompile(`(?m)(rror from server \(NotFound\): |^error: failed to create (token|secret).* not found$|^error: no objects passed to apply$|^error: the path "[^"]*" does not exist$|^error: current-context must exist in order to minify$| already exists$|^No resources found)`)

func (s *documented) understands(c commands.Command) string {
	words := c.Words[1:]
	if c.Mention && !strings.ContainsFunc(strings.Join(words, ""), func(r rune) bool { return r < 'a' || r > 'z' }) {
		words = append(slices.Clone(words), "--help") // "kubectl create token" as such
	}
	for i, w := range words {
		var patch map[string]any
		if w == "-p" && i+1 < len(words) && yaml.Unmarshal([]byte(words[i+1]), &patch) != nil {
			return "the patch is not JSON" // kubectl looks for the object first
		}
	}
	out, err := runIn(s.dir, s.api.bin+"/kubectl", s.api.asAdmin(words...)...)
	switch {
	case err == nil, notThere.MatchString(out):
		return ""
	case slices.Contains(c.Words, "can-i") && (strings.TrimSpace(out) == "yes" || strings.TrimSpace(out) == "no"):
		return ""
	case c.Words[0] == "oc" && strings.Contains(out, "the server doesn't have a resource type"):
		return "" // the flags were understood; OpenShift has it
	}
	return out
}

// placeholders are words that a reader replaces, with what the AWS CLI takes in their place.
func placeholders() map[string]string {
	return map[string]string{"ARN": "arn:aws:iam::123456789012:oidc-provider/oidc.example.com", "SHA1": strings.Repeat("ab", 20), "SECONDS": "3600"}
}

// checkAWS: every command has flags that the AWS CLI knows, and all that are required.
func (s *documented) checkAWS(t *testing.T) {
	aws := tool(t, "aws")
	parse := func(words []string) (string, error) {
		args, skeleton := slices.Clone(words), "output"
		for i, w := range args {
			if value, is := placeholders()[w]; is {
				args[i] = value
			}
		}
		if strings.HasPrefix(args[1], "get-") {
			skeleton = "input" // what the client makes up for an answer breaks the rules that it holds answers to
		}
		return runIn(t.TempDir(), aws, append(args, "--generate-cli-skeleton", skeleton, "--region", "us-east-1")...)
	}
	found := commands.For(s.all, "aws")
	if len(found) == 0 {
		t.Fatal("no command was found")
	}
	for _, c := range found {
		if out, err := parse(c.Words[1:]); err != nil {
			t.Errorf("%s: %s", c, out)
		}
	}
	for _, line := range []string{"iam create-open-id-connect-provider --urls https://oidc.example.com", "iam get-role --name app", "sts get-caller-identities"} {
		if _, err := parse(strings.Fields(line)); err == nil {
			t.Errorf("aws %s is taken", line)
		}
	}
}

// A change of the kind of workload through Helm would delete the old one before the new one is ready. It is refused,
// and what the refusal says to do lets the change through, with the old pods' owner gone and the pods left.
func (s *apiServer) refusesChangeOfWorkload(t *testing.T) {
	helm := func(args ...string) (string, error) { return s.helm(t, ".", append(args, "-n", namespace)...) }
	for _, step := range []struct{ from, to, kind string }{{"kubernetes", "statefulset", "deployment"}, {"statefulset", "kubernetes", "statefulset"}} {
		if out, err := helm(append([]string{"upgrade", "--install", release, chartDir}, preset(step.from).values(t)...)...); err != nil {
			t.Fatal(out)
		}
		upgrade := append([]string{"upgrade", release, chartDir}, preset(step.to).values(t)...)
		out, err := helm(upgrade...)
		command := "kubectl -n oidc delete " + step.kind + " r-keypost --cascade=orphan"
		if err == nil || !strings.Contains(out, command) {
			t.Fatalf("from %s to %s: %v: %s", step.from, step.to, err, out)
		}
		// No garbage collector runs here to let go of the pods; the deletion waits for it.
		s.kubectl(t, "", append(strings.Fields(command)[1:], "--wait=false")...)
		s.kubectl(t, "", "-n", namespace, "patch", step.kind, "r-keypost", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		if out, err := helm(upgrade...); err != nil {
			t.Fatalf("after the old one has lost its owner: %s", out)
		}
	}
}

// Manifests in the documentation are manifests, and their alerts are rules.
func TestDocumentedManifests(t *testing.T) {
	t.Parallel()
	text := read(t, chartDir+"/README.md")
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Fatal("no manifest was found")
	}
	alerts := 0
	for _, b := range blocks {
		for _, doc := range strings.Split(string(b[1]), "\n---\n") {
			var o object
			must(t, yaml.UnmarshalStrict([]byte(doc), &o))
			if o.str("kind") != "PrometheusRule" {
				continue
			}
			rule, err := yaml.Marshal(o.at("spec"))
			must(t, err)
			file := filepath.Join(t.TempDir(), "rules.yaml")
			must(t, os.WriteFile(file, rule, 0o600))
			output(t, nil, tool(t, "promtool"), "check", "rules", file)
			for _, g := range o.objects("spec", "groups") {
				for _, a := range g.objects("rules") {
					alerts++
					if !strings.Contains(string(text), "\n### "+a.str("alert")+"\n") {
						t.Errorf("%s has no runbook", a.str("alert"))
					}
				}
			}
		}
	}
	if alerts == 0 {
		t.Error("no alert was found")
	}
}
