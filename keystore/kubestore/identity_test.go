package kubestore

import (
	"net/http"
	"testing"
)

func TestIdentity(t *testing.T) {
	f := newFake(t)
	st := f.store()
	f.when(func(w http.ResponseWriter, r *http.Request, _ func() answer) bool {
		if r.Method != http.MethodPost || r.URL.Path != "/apis/authentication.k8s.io/v1/selfsubjectreviews" {
			return false
		}
		answer{201, map[string]any{"kind": "SelfSubjectReview", "status": map[string]any{"userInfo": map[string]any{"username": "system:serviceaccount:ci:deploy"}}}}.write(w)
		return true
	})
	if name, err := st.Identity(t.Context()); err != nil || name != "system:serviceaccount:ci:deploy" {
		t.Errorf("%q, %v", name, err)
	}
	f.when(nil) // an API server from before Kubernetes 1.28
	if name, err := st.Identity(t.Context()); err == nil {
		t.Errorf("%q without an error", name)
	}
}
