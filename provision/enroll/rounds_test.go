package enroll

import (
	"strings"
	"testing"
)

// What a cluster calls itself comes from the cluster, and goes into the flags of an API server: nothing but a URL does.
func TestFlagsOfWhatAClusterCallsItself(t *testing.T) {
	const url = "https://oidc.example.com/prod-a"
	for own, want := range map[string]int{
		"https://kubernetes.default.svc.cluster.local": 3, "https://10.0.0.1:6443/a_b~c": 3,
		url: 0, "": 0, "kubernetes/serviceaccount": 0, "https://$(SECRET)": 0, "https://a b": 0, "https://a\n--anonymous-auth=true": 0, `https://a"`: 0,
		"https://" + strings.Repeat("a", 600): 0,
	} {
		r := Report{URL: url, Own: own, Flags: flagsOf(url, own), ControlPlane: ControlPlane{"clusters", "cp"}}
		if len(r.Flags) != want {
			t.Errorf("%q: %q", own, r.Flags)
		}
		if _, _, err := r.Rounds(); (err == nil) != (want > 0) {
			t.Errorf("%q: %v", own, err)
		}
	}
	if _, _, err := (Report{URL: url, Own: "https://a", Flags: flagsOf(url, "https://a")}).Rounds(); err == nil {
		t.Error("there are manifests for no control plane")
	}
}
