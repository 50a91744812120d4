package enroll_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
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
				items = append(items, m{"metadata": m{"namespace": namespace, "name": name, "creationTimestamp": "2026-01-02T03:04:05Z"}, "spec": m{"controlPlaneRef": m{"kind": "KubeadmControlPlane", "name": "cp"}}})
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
				if !strings.HasSuffix(c.Object, "/one") && c.Name == "a-one" || c.Since.IsZero() {
					t.Errorf("%s is the object %q of %v", c.Name, c.Object, c.Since)
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

// A tenant that fills its Cluster objects makes no page too large. An object of etcd's largest size is 1.5 MiB.
func TestLargeClusters(t *testing.T) {
	const clusters, size = 45, 3 << 19
	filler := strings.Repeat("x", size-200)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/cluster.x-k8s.io", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"preferredVersion": {"version": "v1beta2"}}`)
	})
	mux.HandleFunc("GET /apis/cluster.x-k8s.io/v1beta2/clusters", func(w http.ResponseWriter, r *http.Request) {
		from, limit, comma := 0, clusters, ""
		_, _ = fmt.Sscan(r.FormValue("continue"), &from)
		_, _ = fmt.Sscan(r.FormValue("limit"), &limit)
		end := min(from+limit, clusters)
		fmt.Fprint(w, `{"items": [`)
		for i := from; i < end; i++ {
			fmt.Fprintf(w, `%s{"metadata": {"namespace": "a", "name": "c%d", "annotations": {"x": %q}}}`, comma, i, filler)
			comma = ","
		}
		more := fmt.Sprint(end)
		if end == clusters {
			more = ""
		}
		fmt.Fprintf(w, `], "metadata": {"continue": %q}}`, more)
	})
	sv := httptest.NewServer(mux)
	defer sv.Close()
	all, err := enroll.ClusterAPI{Access: &rest.Config{Host: sv.URL}, Template: "{name}"}.List(t.Context())
	if err != nil || len(all) != clusters {
		t.Errorf("%d clusters, %v", len(all), err)
	}
}

// Of two Cluster objects with one name the one that was made first keeps it, in every pass, and only the other one is refused. Of two files
// none has it.
func TestOneName(t *testing.T) {
	old, late := time.Unix(1e9, 0), time.Unix(2e9, 0)
	for name, tt := range map[string]struct {
		since        [2]time.Time
		objects      [2]string
		keeps, other keystore.Name // other: who is refused
		first        int           // whose key is enrolled; -1 for none
	}{
		"the first is older":  {[2]time.Time{old, late}, [2]string{"team-a/prod", "team/a-prod"}, "team-a-prod", "team/a-prod", 0},
		"the second is older": {[2]time.Time{late, old}, [2]string{"team-a/prod", "team/a-prod"}, "team-a-prod", "team-a/prod", 1},
		"a tie":               {[2]time.Time{old, old}, [2]string{"team/a-prod", "team-a/prod"}, "team-a-prod", "team/a-prod", 1},
		"two files":           {[2]time.Time{}, [2]string{}, "", "team-a-prod", -1},
	} {
		t.Run(name, func(t *testing.T) {
			var source list
			keys := someKeys(t, 2)
			for i := range 2 {
				access, err := kubeapi.Inline(newPlane(t, fmt.Sprint("uid-", i), keys[i]).config())
				if err != nil {
					t.Fatal(err)
				}
				source = append(source, enroll.Cluster{Name: "team-a-prod", Access: access, Object: tt.objects[i], Since: tt.since[i]})
			}
			st := storetest.NewMemStore(t)
			e := newEnroller(t, st.Store, source)
			for _, want := range []enroll.State{enroll.Enrolled, enroll.InStep} {
				all := passOf(t, e)
				if r := all[tt.other]; r.State != enroll.Refused || tt.keeps != "" && !strings.Contains(r.Why, "made first") {
					t.Errorf("the other is %s (%s)", r.State, r.Why)
				}
				if tt.keeps == "" {
					if st.Writes() > 0 || len(all) != 1 {
						t.Errorf("%d writes, and %v", st.Writes(), all)
					}
					continue
				}
				if r := all[tt.keeps]; r.State != want || len(all) != 2 {
					t.Errorf("the first is %s (%s), want %s", r.State, r.Why, want)
				}
				if got := states(t, st, tt.keeps); len(got) != 1 || got[keys[tt.first].ID()] != active {
					t.Errorf("keys %v", got)
				}
			}
		})
	}
}

// list is a source of these clusters.
type list []enroll.Cluster

func (l list) List(context.Context) ([]enroll.Cluster, error) { return l, nil }
