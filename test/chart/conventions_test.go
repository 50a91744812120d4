//go:build chart

package chart

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// The schema refuses what no template would notice, before anything is replaced.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	for _, set := range []string{
		"drainDelaySeconds=100000", "podDisruptionBudget.maxUnavailable=0", "resources.limit.memory=1Gi", "resources.limits.memory=lots", "tolerations[0].effect=NoSchedul", "extraEnv[0].nam=x",
		"hosts[0]=https://oidc.example.com", "nameOverride=Bad_Name", "commonLabels.a=b c", `podLabels.app\.kubernetes\.io/name=x`, "affinity.nodeAfinity.x=y",
		"service.loadBalancerSourceRanges[0]=10.0.0.0", "monitoring.serviceMonitor.interval=often", "watch.every=1s", "test.issuers[0]=prod-a", "image.keypostd.tag=bad tag",
		"writers[0].name=a,writers[0].keySets[0]=Bad_Set,writers[0].subjects[0].kind=Group,writers[0].subjects[0].name=x",
		"writers[0].name=a,writers[0].keySets[0]=a,writers[0].subjects[0].kind=ServiceAccount,writers[0].subjects[0].name=x",
		"writers[0].name=mirror,writers[0].keySets[0]=a,writers[0].subjects[0].kind=Group,writers[0].subjects[0].name=x",
		"issuerURLs[0]=https://OIDC.example.com/{name}", "issuerURLs[0]=https://oidc.example.com/{name}/.well-known",
		`hostAliases.oidc\.example\.com=oidc.example.com`, "shield.header=X-Secret,shield.secretName=s,shield.keys={a,a}", "mirror.extraArgs[0]=--poll=soon", "store.configMap.name=x",
		"store.type=s3,store.s3.url=s3://b/p?region=x-1,store.s3.credentialsSecret=x,store.s3.webIdentity.roleARN=arn:aws:iam::123456789012:role/x",
		"watch.observations=kubernetes",
		"service.type=ClusterIP,service.nodePort=30443", "volume.type=claim,strategy.type=Recreate", "extraVolumes[0].name=keysets",
		"podDisruptionBudget.minAvailable=1,podDisruptionBudget.maxUnavailable=2",
	} {
		args := append([]string{"template", release, chartDir, "--kube-version", kubeVersion}, preset("kubernetes").values(t)...)
		_, errs, err := try(nil, tool(t, "helm"), append(args, "--set", set)...)
		value := regexp.MustCompile(`^[A-Za-z]+`).FindString(set)
		if err == nil || !strings.Contains(errs, value) && !strings.Contains(errs, "issuer URL") && !strings.Contains(errs, "watch.") && !strings.Contains(errs, "store.") {
			t.Errorf("%s: %v: %s", set, err, errs)
		}
	}
}

// What users of charts expect to set reaches the pod.
func TestConventionalValuesReachThePod(t *testing.T) {
	t.Parallel()
	all := preset("kubernetes").objects(t, "strategy.type=Recreate", "startupProbe.failureThreshold=120", "livenessProbe.timeoutSeconds=9", "dnsPolicy=None", "dnsConfig.nameservers={10.0.0.10}",
		"runtimeClassName=gvisor", "extraVolumes[0].name=ca", "extraVolumes[0].configMap.name=ca", "mirror.extraVolumeMounts[0].name=ca", "mirror.extraVolumeMounts[0].mountPath=/ca",
		"podAnnotations.a=b", "podLabels.c=d", "nodeSelector.e=f", "tolerations[0].operator=Exists", "affinity.nodeAffinity.x=y", "resources.limits.memory=1Gi", "imagePullSecrets[0].name=regcred",
		"priorityClassName=high", "podDisruptionBudget.minAvailable=50%", "service.annotations.g=h", "fullnameOverride=issuer", "serviceAccount.annotations.i=j")
	w := workload(t, all)
	pod, podMeta := object(w.at("spec", "template", "spec").(map[string]any)), object(w.at("spec", "template", "metadata").(map[string]any))
	keypostd, mirror := pod.objects("containers")[0], pod.objects("initContainers")[0]
	for what, got := range map[string][2]any{
		"strategy":       {w.at("spec", "strategy"), map[string]any{"type": "Recreate"}},
		"startup probe":  {keypostd.at("startupProbe"), map[string]any{"httpGet": map[string]any{"path": "/livez", "port": "probes"}, "periodSeconds": 1.0, "failureThreshold": 120.0}},
		"liveness probe": {keypostd.at("livenessProbe", "timeoutSeconds"), 9.0},
		"DNS policy":     {pod.at("dnsPolicy"), "None"},
		"DNS":            {pod.at("dnsConfig"), map[string]any{"nameservers": []any{"10.0.0.10"}}},
		"runtime class":  {pod.at("runtimeClassName"), "gvisor"},
		"annotation":     {podMeta.at("annotations", "a"), "b"},
		"label":          {podMeta.at("labels", "c"), "d"},
		"node selector":  {pod.at("nodeSelector"), map[string]any{"e": "f"}},
		"tolerations":    {pod.at("tolerations"), []any{map[string]any{"operator": "Exists"}}},
		"affinity":       {pod.at("affinity", "nodeAffinity", "x"), "y"},
		"memory":         {keypostd.at("resources", "limits", "memory"), "1Gi"},
		"pull secrets":   {pod.at("imagePullSecrets"), []any{map[string]any{"name": "regcred"}}},
		"priority":       {pod.at("priorityClassName"), "high"},
		"disruption":     {the(t, all, "PodDisruptionBudget").at("spec", "minAvailable"), "50%"},
		"not both":       {the(t, all, "PodDisruptionBudget").at("spec", "maxUnavailable"), nil},
		"service":        {find(all, "Service")[0].at("metadata", "annotations", "g"), "h"},
		"name":           {w.str("metadata", "name"), "issuer"},
		"account":        {the(t, all, "ServiceAccount").at("metadata", "annotations", "i"), "j"},
	} {
		if !reflect.DeepEqual(got[0], got[1]) {
			t.Errorf("%s: %v, want %v", what, got[0], got[1])
		}
	}
	if !strings.Contains(fmt.Sprint(pod.objects("volumes")), "map[configMap:map[name:ca] name:ca]") || !strings.Contains(fmt.Sprint(mirror.at("volumeMounts")), "/ca") {
		t.Errorf("volumes %v, mounted %v", pod.at("volumes"), mirror.at("volumeMounts"))
	}
	if strings.Contains(fmt.Sprint(keypostd.at("volumeMounts")), "/ca") {
		t.Error("keypostd sees what is the mirror's")
	}
	if got := fmt.Sprint(workload(t, preset("statefulset").objects(t, "strategy.type=OnDelete")).at("spec", "updateStrategy")); got != "map[type:OnDelete]" {
		t.Errorf("strategy of a StatefulSet: %s", got)
	}
}

// TestInstallations has helm install the chart on an API server.
func TestInstallations(t *testing.T) {
	t.Parallel()
	api := startAPIServer(t)
	api.prepareKinds(t)
	api.kubectl(t, "", "create", "namespace", namespace)
	t.Run("central", api.installsCentral)
	t.Run("change of workload", api.refusesChangeOfWorkload)
}

// Anyone who takes the preset central needs no command before: the namespace of the key sets is the chart's, and stays.
func (s *apiServer) installsCentral(t *testing.T) {
	helm := func(args ...string) {
		t.Helper()
		if out, err := s.helm(t, ".", append(args, "-n", namespace)...); err != nil {
			t.Fatal(out)
		}
	}
	helm(append([]string{"install", release, chartDir}, preset("central").values(t)...)...)
	s.kubectl(t, "", "-n", "keypost-keysets", "get", "role", release+"-keypost-mirror")
	helm("uninstall", release)
	if phase := s.out(t, "get", "namespace", "keypost-keysets", "-o", "jsonpath={.status.phase}"); phase != "Active" {
		t.Errorf("after uninstall the namespace with all key sets is %s", phase)
	}
}
