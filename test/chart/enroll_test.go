//go:build chart

package chart

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const enrolling = release + "-keypost-enroll"

// enrolls turns enrolment from Cluster API on.
var enrolls = []string{"enroll.enabled=true", "enroll.capi.namespace=clusters"}

// named are the objects of enrolment, by their kinds and the rest of their names.
func named(all []object) map[string]object {
	found := map[string]object{}
	for _, o := range all {
		if rest, ours := strings.CutPrefix(o.str("metadata", "name"), enrolling); ours {
			found[o.str("kind")+rest] = o
		}
	}
	return found
}

// Enrolment is a pod of its own, off until somebody wants it, with an account of its own: that of the mirror stays one that only reads.
func TestEnroll(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		if found := named(p.objects(t, everything...)); len(found) > 0 {
			t.Errorf("nobody asked for %v", found)
		}
		if p == "configmap" {
			refused(t, p, "enroll.enabled needs store.type kubernetes or s3", enrolls...)
			return
		}
		all := p.objects(t, append(append(slices.Clone(everything), enrolls...), "issuerURLs[0]=https://oidc.example.com/{name}")...) // one preset has none
		found := named(all)
		spec := object(found["Deployment"].at("spec", "template", "spec").(map[string]any))
		checkRestricted(t, map[bool]string{true: "openshift", false: "kubernetes"}[p == "openshift"], spec)
		if got := spec.str("serviceAccountName"); got != enrolling || found["ServiceAccount"].at("automountServiceAccountToken") != false {
			t.Errorf("it is %s: %v", got, found["ServiceAccount"])
		}
		standsAlone(t, all, found["Deployment"])
		isMonitored(t, found["ServiceMonitor"], found["Service"])
	})
}

// standsAlone: of all Services and network policies only those that have the name of a Deployment select its pods.
func standsAlone(t *testing.T, all []object, deployment object) {
	t.Helper()
	for _, s := range append(find(all, "Service"), find(all, "NetworkPolicy")...) {
		selector, _ := s.at("spec", "selector").(map[string]any)
		if selector == nil {
			selector, _ = s.at("spec", "podSelector", "matchLabels").(map[string]any)
		}
		selects := len(selector) > 0
		for k, v := range selector {
			selects = selects && deployment.at("spec", "template", "metadata", "labels", k) == v
		}
		if name := s.str("metadata", "name"); selects != (name == deployment.str("metadata", "name")) {
			t.Errorf("%s %s selects the pod: %v", s.str("kind"), name, selects)
		}
	}
}

// isMonitored: a ServiceMonitor finds a Service.
func isMonitored(t *testing.T, monitor, service object) {
	t.Helper()
	for k, v := range monitor.at("spec", "selector", "matchLabels").(map[string]any) {
		if service.at("metadata", "labels", k) != v {
			t.Errorf("the ServiceMonitor does not find the Service by %s=%v", k, v)
		}
	}
}

// What the pod may do is what its source and its store need.
func TestEnrollRights(t *testing.T) {
	t.Parallel()
	const store = "[map[apiGroups:[keypost.dev] resources:[keysets] verbs:[get list create update]]]"
	const clusters = "[map[apiGroups:[cluster.x-k8s.io] resources:[clusters] verbs:[list]] map[apiGroups:[] resources:[secrets] verbs:[get]]]"
	dir := []string{"enroll.enabled=true", "enroll.source=dir", "enroll.dir.secretName=kubeconfigs"}
	for name, tt := range map[string]struct {
		preset preset
		set    []string
		want   map[string]string
		mounts string
	}{
		"a namespace": {"kubernetes", enrolls, map[string]string{"Role": store, "Role-clusters": clusters}, "/var/run/secrets/kubernetes.io/serviceaccount"},
		"every one": {"kubernetes", []string{"enroll.enabled=true", "enroll.capi.namespace=*"},
			map[string]string{"Role": store, "ClusterRole-oidc-clusters": clusters}, "/var/run/secrets/kubernetes.io/serviceaccount"},
		"a directory":     {"kubernetes", dir, map[string]string{"Role": store}, "/var/run/secrets/kubernetes.io/serviceaccount /clusters"},
		"all in a bucket": {"s3", append(dir, "enroll.s3.roleARN=arn:aws:iam::123456789012:role/enroll"), nil, "/var/run/secrets/aws /clusters"},
		"its own roles":   {"kubernetes", append(enrolls, "rbac.create=false"), nil, "/var/run/secrets/kubernetes.io/serviceaccount"},
	} {
		t.Run(name, func(t *testing.T) {
			found, got := named(tt.preset.objects(t, tt.set...)), map[string]string{}
			for kind, o := range found {
				bound := o.at("subjects")
				switch {
				case o.at("rules") != nil:
					got[kind] = fmt.Sprint(o.at("rules"))
					if role, _, _ := strings.Cut(kind, "-"); found[strings.Replace(kind, role, role+"Binding", 1)] == nil {
						t.Errorf("nobody has %s", kind)
					}
				case bound != nil && fmt.Sprint(bound) != "[map[kind:ServiceAccount name:"+enrolling+" namespace:oidc]]":
					t.Errorf("%s is given to %v", kind, bound)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("it may %v, want %v", got, tt.want)
			}
			var mounts []string
			for _, c := range found["Deployment"].objects("spec", "template", "spec", "containers") {
				for _, v := range c.objects("volumeMounts") {
					mounts = append(mounts, v.str("mountPath"))
				}
			}
			if strings.Join(mounts, " ") != tt.mounts {
				t.Errorf("mounted: %q", mounts)
			}
		})
	}
	refused(t, "kubernetes", "enroll.capi.namespace is not set", "enroll.enabled=true")
	refused(t, "kubernetes", "enroll.dir.secretName is not set", "enroll.enabled=true", "enroll.source=dir")
	refused(t, "kubernetes", "enroll.issuerURL must be one of issuerURLs", append(enrolls, "enroll.issuerURL=https://oidc.example.net/{name}")...)
	refused(t, "kubernetes", "/enroll/extraArgs/0", append(enrolls, "enroll.extraArgs={--once}")...)
	refused(t, "kubernetes", "enroll.interval is 1s", append(enrolls, "enroll.interval=1s")...)
}

// refused shows that the chart says what is wrong.
func refused(t *testing.T, p preset, want string, set ...string) {
	t.Helper()
	args := append([]string{"template", release, chartDir, "--kube-version", kubeVersion, "--set", strings.Join(set, ",")}, p.values(t)...)
	if _, errs, err := try(nil, tool(t, "helm"), args...); err == nil || !strings.Contains(errs, want) {
		t.Errorf("%q: %v: %s", set, err, errs)
	}
}

// arguments are those of the pod.
func arguments(t *testing.T, set ...string) []string {
	t.Helper()
	return named(preset("kubernetes").objects(t, set...))["Deployment"].objects("spec", "template", "spec", "containers")[0].strs("args")
}

// runsEnrollment: with the chart's own arguments and its own roles on a real API server, keypost enroll adds the key set of a cluster, and
// its account can neither delete nor read anything else.
func (s *apiServer) runsEnrollment(t *testing.T) {
	s.namespace(t, "elsewhere")
	s.define(t, "cluster.x-k8s.io_clusters.yaml", "controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml")
	for _, o := range preset("kubernetes").objects(t, enrolls...) {
		switch o.str("kind") {
		case "CustomResourceDefinition", "Role", "RoleBinding", "ServiceAccount":
			text, err := yaml.Marshal(o)
			must(t, err)
			inNamespace := []string{"-n", namespace}
			if other := o.str("metadata", "namespace"); other != "" {
				inNamespace = nil
			}
			s.kubectl(t, string(text), append(inNamespace, "apply", "--server-side", "-f", "-")...)
		}
	}
	dir := t.TempDir()
	s.cluster(t, "prod-a")
	s.kubectl(t, "", "-n", "elsewhere", "create", "secret", "generic", "prod-a-kubeconfig")

	account := "system:serviceaccount:" + namespace + ":" + enrolling
	file := s.kubeconfig(t, dir, account)
	args := append(arguments(t, append(enrolls, "enroll.extraArgs={--relying-party=aws,--token-lifetime=1h}")...), "--once")
	for i, a := range args {
		switch a {
		case "in-cluster":
			args[i] = file
		case "kubernetes://" + namespace:
			args[i] += "?kubeconfig=" + file
		}
	}
	awaitReady(t, func() error { return s.try("", "-n", "clusters", "get", "cluster", "prod-a") })
	for range 2 {
		out := output(t, nil, tool(t, "bin")+"/keypost", args...)
		t.Log(out)
		if !strings.Contains(out, "https://oidc.example.com/prod-a") {
			t.Fatal("the cluster is not enrolled")
		}
	}
	if got := s.get(t, "keyset/prod-a", "{.spec.issuers[0]} {.spec.generation} {.spec.policy.relyingParties[0]}"); got != "https://oidc.example.com/prod-a 1 aws" {
		t.Errorf("the key set is %s", got)
	}
	s.checkRounds(t, append(args, "--patches", dir))
	for _, args := range [][]string{
		{"-n", namespace, "delete", "keyset/prod-a"}, {"-n", namespace, "get", "secrets"}, {"-n", "clusters", "get", "secrets"},
		{"-n", "clusters", "delete", "cluster/prod-a"}, {"-n", "clusters", "delete", "secret/prod-a-kubeconfig"},
		{"-n", "elsewhere", "get", "secret/prod-a-kubeconfig"}, {"-n", "elsewhere", "get", "clusters.cluster.x-k8s.io"}, {"-n", namespace, "get", "observations"},
		{"-n", namespace, "patch", "keyset/prod-a", "--type=merge", "-p", `{"metadata":{"annotations":{"a":"b"}}}`},
	} {
		if err := s.try("", append([]string{"--as", account}, args...)...); err == nil || !strings.Contains(strings.ToLower(err.Error()), "forbidden") {
			t.Errorf("its account may %v: %v", args, err)
		}
	}
}

// checkRounds: Cluster API's own definition takes both manifests for the control plane, and a name stands once among its extraArgs.
func (s *apiServer) checkRounds(t *testing.T, args []string) {
	t.Helper()
	output(t, nil, tool(t, "bin")+"/keypost", args...)
	s.kubectl(t, `{apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlane, metadata: {name: x, namespace: clusters}, spec: {version: v1.34.4,
machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DockerMachineTemplate, name: x}}}}}`, "create", "-f", "-")
	const ours, before = "https://oidc.example.com/prod-a", "https://chart.test"
	for _, round := range []struct{ file, args, patched string }{
		{"1-accept", before, ours}, {"2-sign", ours + " " + ours + "/keys.json", before},
	} {
		s.kubectl(t, "", "apply", "--server-side", "--validate=strict", "-f", args[len(args)-1]+"/prod-a-"+round.file+".yaml")
		const config = "{.spec.kubeadmConfigSpec"
		got := s.out(t, "-n", "clusters", "get", "kubeadmcontrolplane/x", "-o", "jsonpath="+config+".clusterConfiguration.apiServer.extraArgs[*].value}"+
			config+".files[*].content}"+config+".initConfiguration.patches.directory}"+config+".joinConfiguration.patches.directory}")
		want := round.args + `[{"op":"add","path":"/spec/containers/0/command/-","value":"--service-account-issuer=` + round.patched + `"}]` +
			"/etc/kubernetes/patches/etc/kubernetes/patches"
		if got != want {
			t.Errorf("%s: %s\nwant %s", round.file, got, want)
		}
	}
}

// The ClusterClass of docs/enroll.md is one that Cluster API's definition takes, for every cluster and without a variable.
func (s *apiServer) takesClusterClass(t *testing.T) {
	s.define(t, "cluster.x-k8s.io_clusterclasses.yaml")
	page := read(t, "../../docs/enroll.md")
	block := regexp.MustCompile("(?s)```yaml\n(apiVersion: cluster.x-k8s.io.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/enroll.md has no ClusterClass")
	}
	var class object
	must(t, yaml.UnmarshalStrict(block[1], &class))
	ref := func(group, kind string) map[string]any {
		return map[string]any{"templateRef": map[string]any{"apiVersion": group + ".cluster.x-k8s.io/v1beta2", "kind": kind, "name": "x"}}
	}
	spec := class.at("spec").(map[string]any)
	spec["infrastructure"], spec["controlPlane"] = ref("infrastructure", "DockerClusterTemplate"), ref("controlplane", "KubeadmControlPlaneTemplate")
	text, err := yaml.Marshal(class)
	must(t, err)
	s.kubectl(t, string(text), "create", "--validate=strict", "-f", "-")
}

// cluster makes this API server a cluster of Cluster API's, with its own kubeconfig.
func (s *apiServer) cluster(t *testing.T, name string) {
	t.Helper()
	ca := read(t, s.ca)
	file := filepath.Join(t.TempDir(), "value")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {token: chart}}]}`, s.url, base64.StdEncoding.EncodeToString(ca)), 0o600))
	s.kubectl(t, fmt.Sprintf(`{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: %s, namespace: clusters},
spec: {controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: x}}}`, name), "create", "-f", "-")
	s.kubectl(t, "", "-n", "clusters", "create", "secret", "generic", name+"-kubeconfig", "--from-file", file)
}
