//go:build chart

package chart

import (
	"fmt"
	"reflect"
	"testing"
)

// Times, bounds and paths that no other test would miss, as every preset renders them, and what another one would do to anyone who runs it.
func TestWhatAMistakeWouldCost(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		all := p.objects(t)
		w := workload(t, all)
		spec := object(w.at("spec", "template", "spec").(map[string]any))
		keypostd := spec.objects("containers")[0]
		probe := func(path string, times map[string]any) map[string]any {
			times["httpGet"] = map[string]any{"path": path, "port": "probes"}
			return times
		}
		for _, tt := range []struct {
			what      string
			got, want any
			otherwise string
		}{
			{"liveness", keypostd.at("livenessProbe"), probe("/livez", map[string]any{"periodSeconds": 10.0, "timeoutSeconds": 5.0, "failureThreshold": 6.0}), "a busy or unready keypostd, which serves, is restarted"},
			{"readiness", keypostd.at("readinessProbe"), probe("/readyz", map[string]any{"periodSeconds": 2.0, "failureThreshold": 1.0}), "requests go on to a pod that drains, for longer than drainDelaySeconds"},
			{"startup", keypostd.at("startupProbe"), probe("/livez", map[string]any{"periodSeconds": 1.0, "failureThreshold": 60.0}), "a large store has no time to be read"},
			{"minReadySeconds", w.at("spec", "minReadySeconds"), 10.0, "the last old pod goes before load balancers know a new one"},
		} {
			if !reflect.DeepEqual(tt.got, tt.want) {
				t.Errorf("%s is %v, want %v; otherwise %s", tt.what, tt.got, tt.want, tt.otherwise)
			}
		}
		for _, c := range w.objects("spec", "volumeClaimTemplates") {
			if got := fmt.Sprint(c.at("spec", "accessModes")); got != "[ReadWriteOnce]" {
				t.Errorf("claims are %s; two mirrors would write into one directory", got)
			}
		}
		for _, v := range spec.objects("volumes") {
			if v.at("emptyDir") != nil && v.at("emptyDir", "sizeLimit") == nil {
				t.Errorf("the volume %s has no bound; it may fill the node's disk", v.str("name"))
			}
			for _, s := range v.objects("projected", "sources") {
				if token := s.at("serviceAccountToken"); token != nil && s.at("serviceAccountToken", "expirationSeconds") != 3600.0 {
					t.Errorf("the mirror's token is %v; one that is stolen is good for an hour and no longer", token)
				}
			}
		}
		for _, m := range spec.objects("initContainers") {
			if got := []any{m.at("startupProbe", "periodSeconds"), m.at("startupProbe", "failureThreshold")}; !reflect.DeepEqual(got, []any{1.0, 86400.0}) {
				t.Errorf("the mirror may take %v; a pod that starts while the store is down is restarted with growing pauses", got)
			}
		}
		for _, a := range find(all, "ServiceAccount") {
			if a.at("automountServiceAccountToken") != false {
				t.Errorf("%s: every pod that uses the account gets a token", a.str("metadata", "name"))
			}
		}
	})
}

// keypostd reads its configuration once: each change of it has to replace the pods, and nothing else may.
func TestAChangedConfigurationReplacesThePods(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		sum := func(set ...string) string {
			return workload(t, p.objects(t, set...)).str("spec", "template", "metadata", "annotations", "keypost.dev/config")
		}
		before := sum()
		if before == "" || sum("drainDelaySeconds=7") == before {
			t.Errorf("with another drainDelaySeconds the annotation is still %q", before)
		}
		if after := sum("podLabels.team=a"); after != before {
			t.Errorf("a label of pods makes %q of %q", after, before)
		}
	})
}
