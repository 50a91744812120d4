//go:build chart

package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// takesGitOps: an API server with the definitions of Argo CD and Flux accepts the files of docs/gitops strictly, with the chart's own
// definition of key sets beside them, and the chart accepts the values that they hold. Nothing is created.
func (s *apiServer) takesGitOps(t *testing.T) {
	s.define(t, "application-crd.yaml", "source.toolkit.fluxcd.io_gitrepositories.yaml", "source.toolkit.fluxcd.io_ocirepositories.yaml",
		"helm.toolkit.fluxcd.io_helmreleases.yaml", "kustomize.toolkit.fluxcd.io_kustomizations.yaml")
	s.kubectl(t, "", "create", "namespace", "argocd")
	for file, at := range map[string][]string{"argocd.yaml": {"spec", "source", "helm", "valuesObject"}, "flux.yaml": {"spec", "values"}} {
		t.Run(file, func(t *testing.T) {
			data := read(t, "../../docs/gitops/"+file)
			text := string(data)
			s.kubectl(t, text, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
			for _, wrong := range []string{"\nspec:\n  nonsense: true\n", "\nspec:\n  interval: often\n  source: nowhere\n"} {
				if err := s.try(strings.ReplaceAll(text, "\nspec:\n", wrong), "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err == nil {
					t.Errorf("%q is accepted as well", wrong)
				}
			}
			charts := 0
			for _, document := range strings.Split(text, "\n---\n") {
				var o object
				must(t, yaml.Unmarshal([]byte(document), &o))
				values := o.at(at...)
				if values == nil {
					continue
				}
				charts++
				given, err := yaml.Marshal(values)
				must(t, err)
				mine := filepath.Join(t.TempDir(), "values.yaml")
				must(t, os.WriteFile(mine, given, 0o600))
				output(t, nil, tool(t, "helm"), "template", release, chartDir, "--kube-version", "1.34", "--namespace", "oidc", "-f", mine)
			}
			if charts != 1 {
				t.Errorf("%d documents have values of the chart", charts)
			}
		})
	}
}

// TestTerraformValues: the chart takes the values of docs/gitops/terraform, with what main.tf adds to them.
func TestTerraformValues(t *testing.T) {
	t.Parallel()
	hosts := filepath.Join(t.TempDir(), "hosts.yaml")
	must(t, os.WriteFile(hosts, []byte("issuerURLs: ['https://oidc.example.com/{name}']\nhostAliases: {origin.example.com: oidc.example.com}\n"), 0o600))
	args := []string{"template", release, chartDir, "--kube-version", "1.34", "--namespace", "oidc", "-f", "../../docs/gitops/terraform/values.yaml", "-f", hosts}
	text := output(t, nil, tool(t, "helm"), args...)
	for _, want := range []string{"origin.example.com", "secretName: keypost-shield", "kind: Certificate", "type: LoadBalancer"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in what it makes", want)
		}
	}
}
