//go:build chart

package chart

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestAPIServer gives one API server what the chart makes and what the documentation shows.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	api := startAPIServer(t)
	api.prepare(t)
	for _, n := range []string{"keypost-keysets", "clusters"} { // helm makes the first before it needs it, and kubectl's dry run does not
		api.namespace(t, n)
	}
	t.Run("presets", api.acceptsEveryPreset)
	t.Run("GitOps", api.takesGitOps)
	t.Run("CronJob", api.takesCronJob)
	t.Run("enrolment", api.runsEnrollment)
	t.Run("ClusterClass", api.takesClusterClass)
}

// acceptsEveryPreset: the API server itself judges every preset with every optional part, strictly, in a namespace that enforces the Pod
// Security Standard restricted. Nothing is created.
func (s *apiServer) acceptsEveryPreset(t *testing.T) {
	kubectl := s.kubectl
	for name, v := range map[string]struct {
		preset preset
		set    []string
	}{
		"HTTPRoute":         {"ingress", []string{"gateway.httpRoute.enabled=true", "gateway.httpRoute.parentRefs[0].name=public"}},
		"route, edge":       {"ingress", []string{"route.enabled=true", "route.termination=edge"}},
		"route, re-encrypt": {"openshift", []string{"route.termination=reencrypt", "route.destinationCACertificate=x"}},
		"route, wildcard":   {"openshift", []string{"issuerURLs[0]=https://{name}.apps.example.com"}},
		"watch": {"kubernetes", []string{"watch.enabled=true", "watch.observations=kubernetes", "watch.caConfigMap=ca", "watch.env[0].name=A", "watch.env[0].value=b",
			"watch.egress[0].ports[0].port=8443", "monitoring.serviceMonitor.enabled=true"}},
		"enrolment":          {"kubernetes", enrolls},
		"static credentials": {"s3", []string{"store.s3.webIdentity.roleARN=", "store.s3.credentialsSecret=aws", "mirror.env[0].name=AWS_CA_BUNDLE", "mirror.env[0].value=/x"}},
		"placement": {"statefulset", []string{"nodeSelector.a=b", "tolerations[0].operator=Exists", "priorityClassName=system-cluster-critical",
			"volume.storageClassName=fast", "imagePullSecrets[0].name=x", "podLabels.a=b", "commonLabels.c=d", "service.nodePort=30443"}},
	} {
		t.Run(name, func(t *testing.T) {
			kubectl(t, v.preset.text(t, v.set...), "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		})
	}
	each(t, func(t *testing.T, p preset) {
		pod := object{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "x", "namespace": namespace}}
		pod["spec"] = workload(t, p.objects(t)).at("spec", "template", "spec")
		withoutClaims(pod)
		text, err := yaml.Marshal(pod)
		must(t, err)
		kubectl(t, p.text(t, everything...)+"\n---\n"+string(text), "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	})
}

// prepare makes the kinds of the chart's optional parts known, and the release's namespace.
func (s *apiServer) prepare(t *testing.T) {
	t.Helper()
	s.prepareKinds(t)
	s.namespace(t, namespace)
}

func (s *apiServer) namespace(t *testing.T, name string) {
	t.Helper()
	s.kubectl(t, "", "create", "namespace", name)
	s.kubectl(t, "", "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
}

func (s *apiServer) prepareKinds(t *testing.T) {
	t.Helper()
	s.define(t, "certificates.yaml", "routes.crd.yaml", "gateway.networking.k8s.io_httproutes.yaml", "gateway.networking.k8s.io_tlsroutes.yaml",
		"monitoring.coreos.com_servicemonitors.yaml", "monitoring.coreos.com_prometheusrules.yaml")
}

// define makes kinds known.
func (s *apiServer) define(t *testing.T, crds ...string) {
	t.Helper()
	args := []string{"apply", "--server-side"}
	for _, crd := range crds {
		args = append(args, "-f", tool(t, "crds")+"/"+crd)
	}
	s.kubectl(t, "", args...)
	awaitReady(t, func() error { return s.try("", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s") }) // fails while one has no status
}

// withoutClaims stands in for the StatefulSet controller, which adds the volumes of claims.
func withoutClaims(pod object) {
	for _, v := range pod.objects("spec", "volumes") {
		if v.str("name") == "keysets" {
			return
		}
	}
	spec := object(pod.at("spec").(map[string]any))
	spec["volumes"] = append(spec["volumes"].([]any), map[string]any{"name": "keysets", "emptyDir": map[string]any{}})
}

// apiServer is etcd and kube-apiserver on free ports of loopback.
type apiServer struct{ url, ca, bin string }

func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	dir, bin := t.TempDir(), tool(t, "kube")
	ports := freePorts(t, 3)
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	start(t, dir, bin+"/etcd", "--data-dir", dir+"/etcd", "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	output(t, nil, "openssl", "genrsa", "-out", dir+"/sa.key", "2048")
	must(t, os.WriteFile(dir+"/tokens", []byte(`chart,admin,1,"system:masters"`+"\n"), 0o600))
	start(t, dir, bin+"/kube-apiserver", "--etcd-servers", client, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", ports[2]), "--cert-dir", dir+"/certs", "--service-cluster-ip-range=10.96.0.0/24",
		"--authorization-mode=RBAC", "--token-auth-file", dir+"/tokens", "--service-account-issuer=https://chart.test",
		"--service-account-signing-key-file", dir+"/sa.key", "--service-account-key-file", dir+"/sa.key",
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none")
	s := &apiServer{url: fmt.Sprintf("https://127.0.0.1:%d", ports[2]), ca: dir + "/certs/apiserver.crt", bin: bin}
	awaitReady(t, func() error { return s.try("", "get", "--raw", "/readyz") })
	return s
}

// asAdmin are kubectl's arguments, with those that lead to the server.
func (s *apiServer) asAdmin(args ...string) []string {
	return append([]string{"--server", s.url, "--token", "chart", "--certificate-authority", s.ca, "--kubeconfig=/dev/null"}, args...)
}

// helm runs helm in a directory, as the administrator.
func (s *apiServer) helm(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	return runIn(dir, tool(t, "helm"), append(args, "--kubeconfig=/dev/null", "--kube-apiserver", s.url, "--kube-token", "chart", "--kube-ca-file", s.ca)...)
}

func (s *apiServer) try(in string, args ...string) error {
	args = s.asAdmin(args...)
	if out, errs, err := try(strings.NewReader(in), s.bin+"/kubectl", args...); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s%s", strings.Join(args, " "), err, errs, out)
	}
	return nil
}

// kubectl must succeed.
func (s *apiServer) kubectl(t *testing.T, in string, args ...string) {
	t.Helper()
	must(t, s.try(in, args...))
}

// start runs a program until the test ends. Those that were started last end first.
func start(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, filepath.Base(name)+".log"))
	must(t, err)
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s: %s", filepath.Base(name), text[max(0, len(text)-4000):])
		}
	})
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// out is what kubectl prints.
func (s *apiServer) out(t *testing.T, args ...string) string {
	t.Helper()
	return output(t, nil, s.bin+"/kubectl", s.asAdmin(args...)...)
}

// get is what a path leads to in an object of the release's namespace.
func (s *apiServer) get(t *testing.T, name, path string) string {
	t.Helper()
	return s.out(t, "-n", namespace, "get", name, "-o", "jsonpath="+path)
}

// kubeconfig is a file of the administrator, or of whom he stands for.
func (s *apiServer) kubeconfig(t *testing.T, dir, as string) string {
	t.Helper()
	file := filepath.Join(dir, "kubeconfig"+strings.ReplaceAll(as, ":", "-"))
	must(t, os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}], users: [{name: u, user: {token: chart, as: %q}}]}`, s.url, s.ca, as), 0o600))
	return file
}
