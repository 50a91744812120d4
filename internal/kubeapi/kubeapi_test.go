package kubeapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func serve(t *testing.T, h http.HandlerFunc) Client {
	t.Helper()
	sv := httptest.NewServer(h)
	t.Cleanup(sv.Close)
	c, err := New(&rest.Config{Host: sv.URL + "/root/", BearerToken: "SECRET"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCall(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Method, " ", r.URL, " ", r.Header.Get("Accept"), " ", r.Header.Get("Content-Type"), " ", r.UserAgent())
	})
	most := Limits{Time: time.Minute, Bytes: 100}
	got, err := c.Call(t.Context(), Request{Method: http.MethodPut, Path: "/x", Query: map[string][]string{"a": {"b"}}, Accept: "text/plain", Body: []byte("{}")}, most)
	if want := "PUT /root/x?a=b text/plain application/json keypost"; err != nil || string(got) != want {
		t.Errorf("Call = %q, %v; want %q", got, err, want)
	}
	if _, err := c.Call(t.Context(), Request{Method: http.MethodGet, Path: "/x"}, Limits{Time: time.Minute, Bytes: 10}); err == nil || !strings.Contains(err.Error(), "larger than 10 bytes") {
		t.Errorf("a long answer: %v", err)
	}
}

func TestSlowServer(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := c.Call(t.Context(), Request{Method: http.MethodGet, Path: "/x"}, Limits{Time: 50 * time.Millisecond, Bytes: 10})
	if err == nil || err.Error() != "no answer within 50ms" {
		t.Errorf("Call = %v", err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	asked := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "/root/y", http.StatusTemporaryRedirect)
	})
	_, err := c.Call(t.Context(), Request{Method: http.MethodGet, Path: "/x"}, Limits{Time: time.Minute, Bytes: 10})
	if !IsStatus(err, http.StatusTemporaryRedirect) || asked != 1 {
		t.Errorf("Call = %v after %d requests", err, asked)
	}
}

func TestStatusError(t *testing.T) {
	for body, want := range map[string]StatusError{
		`{"kind": "Status", "reason": "NotFound", "message": "no\nsuch", "details": {"group": "g", "kind": "k", "name": "n"}}`: {
			Code: 404, Status: true, Reason: "NotFound", Message: "no such", Group: "g", Kind: "k", Name: "n", After: 3 * time.Second,
		},
		`{"kind": "Status", "message": "User \"SECRET\" cannot"}`: {
			Code: 404, Status: true, Message: "(a text that repeats the credential, and is not shown)", After: 3 * time.Second,
		},
		"<html>Authorization: Bearer SECRET": {Code: 404, After: 3 * time.Second},
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, body)
		})
		_, err := c.Call(t.Context(), Request{Method: http.MethodGet, Path: "/x"}, Limits{Time: time.Minute, Bytes: 10})
		if strings.Contains(err.Error(), "SECRET") {
			t.Errorf("it says %v", err)
		}
		if got, ok := errors.AsType[*StatusError](err); !ok || *got != want {
			t.Errorf("%s: %+v, want %+v", body, err, want)
		}
	}
}

// In a pod, a kubeconfig that names no cluster must not become the pod's own cluster.
func TestLoadNeverTakesThePodsCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	_, err := Load("", "")
	if empty, ok := errors.AsType[*EmptyError](err); !ok || len(empty.Files) != 1 || empty.Files[0] != file {
		t.Errorf("Load = %v", err)
	}
	if _, err := Load(file+"x", ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load of a missing file = %v", err)
	}
}
