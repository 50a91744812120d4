package enroll_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/provision/enroll"
)

// management plays Cluster API's objects as far as they are read, two to a page; a key of secrets is NAMESPACE/CLUSTER.
func management(t *testing.T, clusters []string, secrets map[string][]byte) *rest.Config {
	t.Helper()
	type m = map[string]any
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/cluster.x-k8s.io", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(m{"preferredVersion": m{"version": "v1beta2"}})
	})
	list := func(w http.ResponseWriter, r *http.Request) {
		if s := r.FormValue("labelSelector"); s != "" && s != "keypost=yes" {
			_ = json.NewEncoder(w).Encode(m{"items": []m{}})
			return
		}
		from, items, more := 0, []m{}, ""
		_, _ = fmt.Sscan(r.FormValue("continue"), &from)
		for i, c := range clusters[from:] {
			if i == 2 {
				more = fmt.Sprint(from + i)
				break
			}
			namespace, name, _ := strings.Cut(c, "/")
			if want := r.PathValue("namespace"); want == "" || want == namespace {
				items = append(items, m{"metadata": m{"namespace": namespace, "name": name}, "spec": m{"controlPlaneRef": m{"kind": "KubeadmControlPlane", "name": "cp"}}})
			}
		}
		_ = json.NewEncoder(w).Encode(m{"metadata": m{"continue": more}, "items": items})
	}
	mux.HandleFunc("GET /apis/cluster.x-k8s.io/v1beta2/clusters", list)
	mux.HandleFunc("GET /apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/clusters", list)
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/secrets/{name}", func(w http.ResponseWriter, r *http.Request) {
		value, ok := secrets[r.PathValue("namespace")+"/"+strings.TrimSuffix(r.PathValue("name"), "-kubeconfig")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(m{"data": map[string][]byte{"value": value}})
	})
	sv := httptest.NewServer(mux)
	t.Cleanup(sv.Close)
	return &rest.Config{Host: sv.URL}
}

func TestClusterAPI(t *testing.T) {
	good := newPlane(t, "uid").config()
	runs := []byte(strings.Replace(string(good), "token: good", "exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, interactiveMode: Never}", 1))
	access := management(t, []string{"a/one", "a/two", "b/one", "b/Bad_name", "b/runs"}, map[string][]byte{"a/one": good, "b/one": good, "b/runs": runs})
	for name, tt := range map[string]struct {
		source enroll.ClusterAPI
		want   string
	}{
		"all":         {enroll.ClusterAPI{Template: "{namespace}-{name}"}, "a-one: taken; a-two: its Secret a/two-kubeconfig; b-one: taken; b-Bad_name: refused; b-runs: its Secret b/runs-kubeconfig"},
		"a namespace": {enroll.ClusterAPI{Template: "{name}", Namespace: "a", Selector: "keypost=yes"}, "one: taken; two: its Secret a/two-kubeconfig"},
		"none":        {enroll.ClusterAPI{Template: "{name}", Selector: "keypost=no"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tt.source.Access = access
			all, err := tt.source.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range all {
				what := "taken"
				if c.Err == nil && c.ControlPlane.Name != "cp" {
					t.Errorf("%s has the control plane %v", c.Name, c.ControlPlane)
				}
				if c.Err != nil {
					if what = "refused"; strings.HasPrefix(c.Err.Error(), "its Secret") {
						what, _, _ = strings.Cut(c.Err.Error(), ": ")
					}
				} else if c.Access == nil {
					t.Errorf("%s has no access", c.Name)
				}
				got = append(got, string(c.Name)+": "+what)
			}
			if strings.Join(got, "; ") != tt.want {
				t.Errorf("%s\nwant %s", strings.Join(got, "; "), tt.want)
			}
		})
	}
	// What cannot be listed is not an empty list: nothing would be reported as absent that is there.
	if all, err := (enroll.ClusterAPI{Access: &rest.Config{Host: "http://127.0.0.1:1"}}).List(t.Context()); err == nil {
		t.Errorf("nobody answers, and %d clusters are listed", len(all))
	}
	sv := httptest.NewServer(http.NotFoundHandler())
	defer sv.Close()
	if _, err := (enroll.ClusterAPI{Access: &rest.Config{Host: sv.URL}}).List(t.Context()); err == nil || !strings.Contains(err.Error(), "has no Cluster API") {
		t.Errorf("without Cluster API: %v", err)
	}
}
