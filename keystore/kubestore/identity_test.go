package kubestore

import (
	"net/http"
	"testing"

	"github.com/keypost/keypost/keystore"
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

// A tenant's annotation with a character that YAML has not makes one document broken, and no reading of the store fail.
func TestAnAnnotationWithoutYAML(t *testing.T) {
	for _, note := range []string{`a\u007fb`, `a\ufffeb`} {
		o, err := newObject([]byte(`{"apiVersion":"keypost.dev/v1","kind":"KeySet","metadata":{"name":"prod-b","resourceVersion":"1","annotations":{"note":"` + note + `"}},"spec":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		doc, err := o.document()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keystore.Parse("prod-b", doc); err == nil {
			t.Errorf("%s passes", note)
		}
	}
}
