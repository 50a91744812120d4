//go:build chart

package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func each(t *testing.T, check func(t *testing.T, p preset)) {
	t.Helper()
	for _, p := range presets(t) {
		t.Run(string(p), func(t *testing.T) { check(t, p) })
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		output(t, nil, tool(t, "helm"), append([]string{"lint", "--strict", "--kube-version", kubeVersion, chartDir}, p.values(t)...)...)
	})
}

// A preset must not serve under a host, read a bucket or let a team write that only its author knows: anyone who forgets to
// give his own values again at an upgrade is refused, and nothing is replaced.
func TestPresetsNameNobody(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		_, errs, err := try(nil, tool(t, "helm"), "template", release, chartDir, "--kube-version", kubeVersion, "-f", p.file())
		if err == nil || !strings.Contains(errs, "set issuerURLs") && !strings.Contains(errs, "store.s3.url is not set") {
			t.Errorf("without values of one's own: %v: %s", err, errs)
		}
		text := read(t, p.file())
		if !strings.Contains(string(text), "# Survives: ") {
			t.Error("it does not say what it survives")
		}
		for line := range strings.Lines(string(text)) {
			live, _, _ := strings.Cut(line, "#")
			if named := regexp.MustCompile(`example|arn:|s3://|team-`).FindString(live); named != "" {
				t.Errorf("%q is the author's own: %s", named, live)
			}
		}
	})
}

// The Pod Security Standard restricted, and nothing that OpenShift's restricted-v2 would refuse on its platform.
func TestPodsAreRestricted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		for _, platform := range []string{"kubernetes", "openshift"} {
			set := append(slices.Clone(everything), "platform="+platform)
			if platform == "kubernetes" {
				set = append(set, "route.enabled=false")
			}
			all := p.objects(t, set...)
			for _, spec := range []object{pod(t, all), the(t, all, "Pod").at("spec").(map[string]any)} {
				checkRestricted(t, platform, spec)
			}
		}
	})
}

func checkRestricted(t *testing.T, platform string, spec object) {
	t.Helper()
	for _, field := range []string{"runAsUser", "runAsGroup", "fsGroup"} {
		if v := spec.at("securityContext", field); (v == nil) != (platform == "openshift") || v != nil && v != 65532.0 {
			t.Errorf("on %s %s is %v", platform, field, v)
		}
	}
	want := map[string]any{
		"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
		"capabilities": map[string]any{"drop": []any{"ALL"}}, "seccompProfile": map[string]any{"type": "RuntimeDefault"},
	}
	for _, c := range append(spec.objects("containers"), spec.objects("initContainers")...) {
		if got := c.at("securityContext"); !reflect.DeepEqual(got, want) {
			t.Errorf("container %s: %v", c.str("name"), got)
		}
		if c.at("resources", "limits", "memory") == nil || c.at("resources", "requests", "cpu") == nil {
			t.Errorf("container %s has no limit of memory or no request", c.str("name"))
		}
	}
	for _, field := range []string{"hostNetwork", "hostPID", "hostIPC"} {
		if spec.at(field) != nil {
			t.Errorf("%s is set", field)
		}
	}
	if spec.at("automountServiceAccountToken") != false {
		t.Error("the service account's token is mounted into every container")
	}
}

// keypostd is the public side: what it does not hold cannot be taken from it.
func TestKeypostdHoldsNoToken(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		spec := pod(t, p.objects(t))
		containers := spec.objects("containers")
		if len(containers) != 1 || containers[0].str("name") != "keypostd" {
			t.Fatalf("containers: %v", containers)
		}
		for _, m := range containers[0].objects("volumeMounts") {
			if !slices.Contains([]string{"config", "keysets", "tls"}, m.str("name")) || m.at("readOnly") != true {
				t.Errorf("keypostd mounts %v", m)
			}
		}
		if env := containers[0].at("env"); env != nil {
			t.Errorf("keypostd gets variables: %v", env)
		}
	})
}

func TestWithoutMirrorThereIsNoAccountAndNoEgress(t *testing.T) {
	t.Parallel()
	all := preset("configmap").objects(t)
	for _, kind := range []string{"ServiceAccount", "Role", "RoleBinding", "CustomResourceDefinition"} {
		if found := find(all, kind); len(found) > 0 {
			t.Errorf("there is a %s", kind)
		}
	}
	policy := the(t, all, "NetworkPolicy")
	if egress, ok := policy.at("spec", "egress").([]any); !ok || len(egress) > 0 {
		t.Errorf("egress %v", policy.at("spec", "egress"))
	}
	if types := fmt.Sprint(policy.at("spec", "policyTypes")); types != "[Ingress Egress]" {
		t.Errorf("policy types %s", types)
	}
}

// The watch is a pod of its own, off until somebody wants it. It reads key sets with the mirror's rights, is not part of a
// Service of keypostd, and only it may reach public addresses.
func TestWatch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		const name = release + "-keypost-watch"
		named := func(all []object, kind string) (found object) {
			for _, o := range find(all, kind) {
				if o.str("metadata", "name") == name {
					found = o
				}
			}
			return found
		}
		for _, kind := range []string{"Deployment", "Service", "NetworkPolicy", "ServiceMonitor"} {
			if o := named(p.objects(t, everything...), kind); o != nil {
				t.Errorf("a watch that nobody asked for: %v", o)
			}
		}
		if p == "configmap" {
			refused(t, p, "watch.enabled needs store.type kubernetes or s3", "watch.enabled=true") // a copy is not the store
			return
		}
		all := p.objects(t, append(slices.Clone(everything), "watch.enabled=true", "watch.observations=s3://b/p?region=eu-central-1",
			"watch.vantage=eu", "watch.caConfigMap=ca", "watch.credentialsSecret=aws")...)
		deployment := named(all, "Deployment")
		spec := object(deployment.at("spec", "template", "spec").(map[string]any))
		checkRestricted(t, map[bool]string{true: "openshift", false: "kubernetes"}[p == "openshift"], spec)
		if spec.str("serviceAccountName") != release+"-keypost" || len(find(all, "Role")) != len(find(p.objects(t), "Role")) {
			t.Errorf("it is %s", spec.str("serviceAccountName"))
		}
		standsAlone(t, all, deployment)
		if p == "s3" {
			return
		}
		all = p.objects(t, append(slices.Clone(everything), "watch.enabled=true", "watch.observations=kubernetes")...)
		if got := named(all, "Deployment").str("spec", "template", "spec", "serviceAccountName"); got != name || named(all, "ServiceAccount") == nil {
			t.Errorf("with observations it is %s", got)
		}
		want := "[map[apiGroups:[keypost.dev] resources:[keysets] verbs:[get list watch]] map[apiGroups:[keypost.dev] resources:[observations] verbs:[get list create update]]]"
		if got := fmt.Sprint(named(all, "Role").at("rules")); got != want {
			t.Errorf("it may %s", got)
		}
		isMonitored(t, named(all, "ServiceMonitor"), named(all, "Service"))
	})
}

// Arguments of the watch that the chart gives are those that it takes.
func TestWatchArguments(t *testing.T) {
	t.Parallel()
	all := preset("kubernetes").objects(t, "watch.enabled=true", "watch.observations=s3://b/p?region=eu-central-1", "watch.vantage=eu",
		"watch.caConfigMap=ca", "watch.every=7s",
		"watch.origins.hosts={origin.example.net,10.1.2.3:8443}", "watch.origins.headerSecret=cdn-header", "watch.origins.certSecret=cdn-cert")
	for _, d := range find(all, "Deployment") {
		if d.str("metadata", "name") != release+"-keypost-watch" {
			continue
		}
		spec := object(d.at("spec", "template", "spec").(map[string]any))
		args := spec.objects("containers")[0].strs("args")
		// Up to a file that is not here, all is as it should be.
		_, errs, err := try(nil, tool(t, "bin")+"/keypost", args...)
		if err == nil || !strings.Contains(errs, "/ca/ca.crt") {
			t.Errorf("keypost %q: %v: %s", args, err, errs)
		}
		mounted := map[string]string{}
		for _, v := range spec.objects("volumes") {
			mounted[v.str("name")] = v.str("secret", "secretName")
		}
		for _, m := range spec.objects("containers")[0].objects("volumeMounts") {
			mounted[m.str("mountPath")] = mounted[m.str("name")]
		}
		env := map[string]string{}
		for _, e := range spec.objects("containers")[0].objects("env") {
			env[e.str("name")] = e.str("value")
		}
		if mounted["/origin-header"] != "cdn-header" || mounted["/origin-cert"] != "cdn-cert" || env["KEYPOST_ORIGIN"] != "origin.example.net,10.1.2.3:8443" ||
			env["KEYPOST_ORIGIN_HEADER_FILE"] != "/origin-header/header" || env["KEYPOST_ORIGIN_CERT"] != "/origin-cert/tls.crt" || env["KEYPOST_ORIGIN_KEY"] != "/origin-cert/tls.key" {
			t.Errorf("the shield of origins: %v, %v", mounted, env)
		}
		if !slices.Contains(args, "--issuer-url=https://oidc.example.com/{name}") {
			t.Errorf("it dials whatever URL is stored: %q", args)
		}
		return
	}
	t.Fatal("no Deployment")
}

// A half-filled directory must not be listed as if it were everything.
func TestKeypostdStartsAfterACompleteCopy(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		spec := pod(t, p.objects(t))
		mirrors := spec.objects("initContainers")
		if p == "configmap" {
			if len(mirrors) > 0 {
				t.Error("there is a mirror")
			}
			return
		}
		if len(mirrors) != 1 || mirrors[0].str("restartPolicy") != "Always" {
			t.Fatalf("sidecars %v", mirrors)
		}
		if probe := mirrors[0].at("startupProbe", "httpGet"); !reflect.DeepEqual(probe, map[string]any{"path": "/readyz", "port": "mirror"}) {
			t.Errorf("startup probe %v", probe)
		}
		for _, probe := range []string{"readinessProbe", "livenessProbe"} {
			if mirrors[0].at(probe) != nil {
				t.Errorf("the mirror has a %s: an outage of the store would take the pod away", probe)
			}
		}
	})
}

func TestAReplicaGoesOnlyWhenAnotherIsThere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		all := p.objects(t, "drainDelaySeconds=7", "drainTimeoutSeconds=9")
		w := workload(t, all)
		if grace := w.at("spec", "template", "spec", "terminationGracePeriodSeconds"); grace != 21.0 {
			t.Errorf("grace period %v, want drain and 5 s", grace)
		}
		if w.str("kind") == "Deployment" && w.at("spec", "strategy", "rollingUpdate", "maxUnavailable") != 0.0 {
			t.Error("maxUnavailable is not 0")
		}
		if w.str("kind") == "StatefulSet" && (w.str("spec", "podManagementPolicy") != "Parallel" || w.at("spec", "replicas").(float64) < 2) {
			t.Error("a stateful set needs Parallel and two replicas: it ends a pod before it starts the next")
		}
		if single := w.at("spec", "replicas") == 1.0; single == (len(find(all, "PodDisruptionBudget")) == 1) {
			t.Error("a disruption budget is for several replicas")
		}
	})
}

// Anyone who says that there may be no key set yet says it to the mirror and to keypostd: each would hold the pod back.
func TestEmptyIsSaidToBoth(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		for _, allowed := range []bool{false, true} {
			all := p.objects(t, "allowEmpty="+strconv.FormatBool(allowed))
			if text := config(all); strings.Contains(text, "\nallowEmpty: true\n") != allowed {
				t.Errorf("allowed: %v; keypostd's configuration:\n%s", allowed, text)
			}
			for _, m := range pod(t, all).objects("initContainers") {
				if slices.Contains(m.at("args").([]any), any("--allow-empty")) != allowed {
					t.Errorf("allowed: %v; the mirror's arguments: %v", allowed, m.at("args"))
				}
			}
		}
	})
}

func TestMirrorMayOnlyRead(t *testing.T) {
	t.Parallel()
	all := preset("central").objects(t)
	roles := find(all, "Role")
	if len(roles) != 3 || len(find(all, "ClusterRole")) > 0 {
		t.Fatalf("%d roles", len(roles))
	}
	if got := fmt.Sprint(roles[0].at("rules")); got != "[map[apiGroups:[keypost.dev] resources:[keysets] verbs:[get list watch]]]" {
		t.Errorf("mirror: %s", got)
	}
	if got := fmt.Sprint(roles[1].at("rules")); got != "[map[apiGroups:[keypost.dev] resourceNames:[prod-a stage-a] resources:[keysets] verbs:[get update]]]" {
		t.Errorf("writer: %s", got)
	}
}

func TestUninstallKeepsTheKeySets(t *testing.T) {
	t.Parallel()
	definitions := find(preset("kubernetes").objects(t), "CustomResourceDefinition")
	for _, crd := range definitions {
		if crd.str("metadata", "annotations", "helm.sh/resource-policy") != "keep" {
			t.Errorf("the definition %s would go, and all its objects with it", crd.str("metadata", "name"))
		}
	}
	if len(definitions) != 2 {
		t.Errorf("%d definitions", len(definitions))
	}
	stateful := workload(t, preset("statefulset").objects(t))
	if stateful.str("spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted") != "Retain" {
		t.Error("the volumes would go")
	}
}

func TestPublicServiceHasNoMetrics(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		for _, s := range find(p.objects(t), "Service") {
			ports := fmt.Sprint(s.at("spec", "ports"))
			if public := !strings.HasSuffix(s.str("metadata", "name"), "-metrics"); public == (strings.Contains(ports, "admin") || strings.Contains(ports, "mirror")) {
				t.Errorf("%s: %s", s.str("metadata", "name"), ports)
			}
		}
	})
}

// A probe that other clients can hold up lets them restart the pods.
func TestNobodyElseReachesTheProbes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		objects := p.objects(t)
		pod := fmt.Sprint(workload(t, objects).at("spec", "template", "spec", "containers"))
		for _, probe := range []string{"path:/livez port:probes", "path:/readyz port:probes"} {
			if !strings.Contains(pod, probe) {
				t.Errorf("no probe with %s: %s", probe, pod)
			}
		}
		for _, kind := range []string{"NetworkPolicy", "Service"} {
			for _, o := range find(objects, kind) {
				if text := fmt.Sprint(o.at("spec")); strings.Contains(text, "probes") || strings.Contains(text, "9092") {
					t.Errorf("%s %s leads to the probes: %s", kind, o.str("metadata", "name"), text)
				}
			}
		}
	})
}

func TestHosts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		set  []string
		want string
	}{
		"paths":    {nil, "[oidc.example.com]"},
		"wildcard": {[]string{"issuerURLs[0]=https://{name}.oidc.example.com", "issuerURLs[1]=a=https://x.example.com", "issuerURLs[2]=https://oidc.example.com/{name}"}, "[*.oidc.example.com x.example.com oidc.example.com]"},
		"alias":    {[]string{`hostAliases.origin\.example\.com=oidc.example.com`}, "[oidc.example.com origin.example.com]"},
		"given":    {[]string{"hosts={a.example.com}"}, "[a.example.com]"},
	} {
		t.Run(name, func(t *testing.T) {
			route := the(t, preset("gateway").objects(t, tc.set...), "TLSRoute")
			if got := fmt.Sprint(route.at("spec", "hostnames")); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		set  string
		want string
	}{
		"no issuer URL":           {"issuerURLs=null", "issuerURLs is empty"},
		"unknown value":           {"replica=3", "replica"},
		"issuer URL with a slash": {"issuerURLs={https://oidc.example.com/}", "issuerURLs"},
		"unknown store":           {"store.type=etcd", "type"},
		"bucket without a URL":    {"store.type=s3", "store.s3.url is not set"},
		"no name of a ConfigMap":  {"store.type=configMap", "store.configMap.name"},
		"certificate without TLS": {"certificate.enabled=true,certificate.issuerRef.name=x,tls.mode=off", "certificate.enabled needs"},
		"passthrough without TLS": {"route.enabled=true,tls.mode=off", "need tls.mode files"},
		"route without a gateway": {"gateway.tlsRoute.enabled=true", "parentRefs"},
		"route on Kubernetes":     {"route.enabled=true,platform=kubernetes", "route.enabled needs OpenShift"},
		"ingress with TLS":        {"ingress.enabled=true", "ingress needs tls.mode off"},
		"maxAge too short":        {"policy.maxAge=5s", "policy.maxAge is 5s; it must be from 1m to 24h"},
		"stale for too long":      {"policy.staleIfError=169h", "policy.staleIfError is 169h; it must be at most 168h"},
		"a pattern twice":         {"issuerURLs={https://a.example.com,https://a.example.com}", "/issuerURLs"},
		"a pattern for no name":   {"issuerURLs={https://oidc.example.com/x}", "put {name} into it once, or write NAME=URL to bind one URL to one key set"},
		"half a part":             {"issuerURLs[0]=https://x{name}.example.com", "{name} must be a whole part between dots or slashes"},
		"alias in upper case":     {"hostAliases.Origin=oidc.example.com", "/hostAliases"},
		"size of a volume":        {"volume.size=lots", "/volume/size"},
		"argument of the mirror":  {"mirror.extraArgs={--pol=3s}", "/mirror/extraArgs/0"},
		"watch into a directory":  {"watch.observations=file:///x", "/watch/observations"},
		"bucket without a region": {"store.type=s3,store.s3.url=s3://bucket/prefix", "/store/s3/url"},
		"no account at all":       {"serviceAccount.create=false", "serviceAccount.name must say"},
		"image.tag":               {"image.tag=1.0.0", "use image.keypostd.tag and image.keypost.tag"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, preset("kubernetes"), tc.want, tc.set) })
	}
}

// What keypostd would say of its configuration, it says here and not in a pod that does not start.
func TestKeypostdTakesTheConfiguration(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		dir := t.TempDir()
		all := p.objects(t, "certificate.issuerRef.name=x", "certificate.enabled="+strconv.FormatBool(p != "ingress"), "allowEmpty=true")
		var hosts []string
		for _, c := range find(all, "Certificate") { // the chart asks for a certificate with which keypostd starts
			hosts = append(hosts, c.strs("spec", "dnsNames")...)
		}
		checked(t, dir, hosts, config(all))
	})
}

// checked has keypostd look at its configuration in a directory that has all of its files, and returns what it says.
func checked(t *testing.T, dir string, hosts []string, text string) string {
	t.Helper()
	cert, key := selfSigned(t, dir, hosts)
	text = strings.NewReplacer("/var/lib/keypost", dir, "/etc/keypost/tls/tls.crt", cert, "/etc/keypost/tls/tls.key", key,
		"/etc/keypost/shield/", dir+"/", "/etc/keypost/shield-ca/ca.crt", cert).Replace(text)
	file := filepath.Join(dir, "keypostd.conf")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return output(t, nil, tool(t, "bin")+"/keypostd", "--config", file, "--check")
}

// The shield's files are mounted where the configuration names them.
func TestShield(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := preset("kubernetes").objects(t, "shield.header=X-Origin-Secret", "shield.secretName=cdn", "shield.keys={current,next}", "shield.clientCAConfigMap=cdn-ca", "allowEmpty=true")
	spec := pod(t, all)
	from := map[string]string{}
	for _, v := range spec.objects("volumes") {
		from[v.str("name")] = v.str("secret", "secretName") + v.str("configMap", "name")
	}
	for _, m := range spec.objects("containers")[0].objects("volumeMounts") {
		from[m.str("mountPath")] = from[m.str("name")]
	}
	if from["/etc/keypost/shield"] != "cdn" || from["/etc/keypost/shield-ca"] != "cdn-ca" {
		t.Errorf("mounted: %v", from)
	}
	for _, name := range []string{"current", "next"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("0123456789abcdef-"+name), 0o600))
	}
	checked := checked(t, dir, []string{"oidc.example.com"}, config(all))
	if !strings.Contains(checked, dir+"/next") || !strings.Contains(checked, "clientCAFile") {
		t.Errorf("no shield in:\n%s", checked)
	}
}

// What is refused above must not be more than what is wrong.
func TestAcceptance(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{
		"bounds of maxAge":      "policy.maxAge=1m",
		"a compound duration":   "policy.maxAge=1h30m0s,policy.staleIfError=168h",
		"ingress passing TLS":   `ingress.enabled=true,ingress.annotations.nginx\.ingress\.kubernetes\.io/ssl-passthrough=\"true\"`,
		"bucket with options":   "store.type=s3,store.s3.url=s3://bucket/prefix?account=123456789012&region=eu-central-1&profile=x",
		"arguments":             "mirror.extraArgs={--poll=5s}",
		"size":                  "volume.size=1.5Gi",
		"account of other name": "serviceAccount.create=false,serviceAccount.name=shared",
		"alias":                 `hostAliases.origin\.example\.com=oidc.example.com`,
	} {
		t.Run(name, func(t *testing.T) { preset("kubernetes").text(t, set) })
	}
}

func TestConventionalValues(t *testing.T) {
	t.Parallel()
	all := preset("kubernetes").objects(t, "serviceAccount.create=false", "serviceAccount.name=shared", "extraEnv[0].name=GOGC", "extraEnv[0].value=x",
		"topologySpreadConstraints[0].topologyKey=rack")
	spec := pod(t, all)
	if spec.str("serviceAccountName") != "shared" || len(find(all, "ServiceAccount")) > 0 {
		t.Errorf("account %s, and %d are made", spec.str("serviceAccountName"), len(find(all, "ServiceAccount")))
	}
	if got := the(t, all, "RoleBinding").objects("subjects")[0].str("name"); got != "shared" {
		t.Errorf("the rights are %s's", got)
	}
	if env := spec.objects("containers")[0].objects("env"); len(env) != 1 || env[0].str("name") != "GOGC" {
		t.Errorf("keypostd gets %v", env)
	}
	if s := spec.objects("topologySpreadConstraints"); len(s) != 1 || s[0].str("topologyKey") != "rack" {
		t.Errorf("spread %v", s)
	}
	if all = preset("central").objects(t, "rbac.create=false"); len(find(all, "Role"))+len(find(all, "RoleBinding")) > 0 {
		t.Error("rbac.create=false makes roles")
	}
}

// helm lint on the bare chart says what is missing and not where a template panicked.
func TestLintWithoutValues(t *testing.T) {
	t.Parallel()
	out, errs, _ := try(nil, tool(t, "helm"), "lint", chartDir)
	if text := out + errs; !strings.Contains(text, "issuerURLs is empty") || strings.Contains(text, "slice index") {
		t.Error(text)
	}
}

// Who reaches the admin port from other machines sees the page and the report only if that is asked for.
func TestAdminPage(t *testing.T) {
	t.Parallel()
	for shown, want := range map[bool]string{false: `admin: {address: ":9090", probes: ":9092"}`, true: `admin: {address: ":9090", probes: ":9092", page: true}`} {
		if text := config(preset("kubernetes").objects(t, "admin.page="+strconv.FormatBool(shown))); !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("page %t: keypostd's configuration:\n%s", shown, text)
		}
	}
}
