//go:build chart

package chart

import (
	"fmt"
	"reflect"
	"testing"
)

// Bounds and rights that no other test would miss, as every preset renders them, and what others would do to anyone who runs it.
func TestWhatAMistakeWouldCost(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p preset) {
		all := p.objects(t)
		w := workload(t, all)
		spec := object(w.at("spec", "template", "spec").(map[string]any))
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
