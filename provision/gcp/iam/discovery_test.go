package iam_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/test/fakegcp"
)

// discovery is what Google publishes of a service: its methods, what they take and what they answer
// (https://developers.google.com/discovery/v1/reference/apis).
type discovery struct {
	Parameters map[string]any
	Schemas    map[string]schema
	Resources  map[string]resource
}

type resource struct {
	Methods   map[string]method
	Resources map[string]resource
}

type method struct {
	HTTPMethod, FlatPath string
	Parameters           map[string]struct{ Location string }
	Request, Response    schema
}

type schema struct {
	Ref        string `json:"$ref"`
	Type       string
	ReadOnly   bool
	Properties map[string]schema
	Items      *schema
	More       *schema `json:"additionalProperties"`
}

// find returns the method that a call is one of.
func (r resource) find(verb, path string) *method {
	for _, m := range r.Methods {
		if pattern := "^/" + regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(m.FlatPath), `[^/:]+`) + "$"; m.HTTPMethod == verb && regexp.MustCompile(pattern).MatchString(path) {
			return &m
		}
	}
	for _, inner := range r.Resources {
		if m := inner.find(verb, path); m != nil {
			return m
		}
	}
	return nil
}

// violations returns what a value has that its schema does not, or that only Google sets.
func (d discovery) violations(s schema, at string, value any, sent bool) (all []string) {
	if s.Ref != "" {
		s = d.Schemas[s.Ref]
	}
	if s.Type == "any" {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			is, known := s.Properties[name]
			if !known && s.More != nil {
				is, known = *s.More, true
			}
			if !known || sent && is.ReadOnly {
				all = append(all, at+"."+name)
			}
			all = append(all, d.violations(is, at+"."+name, inner, sent)...)
		}
	case []any:
		for _, inner := range v {
			if s.Items == nil {
				return append(all, at+" is not a list")
			}
			all = append(all, d.violations(*s.Items, at+"[]", inner, sent)...)
		}
	case string:
		if s.Type != "string" {
			all = append(all, at+" is not a string")
		}
	}
	return all
}

// judge returns what is wrong with a call by what Google publishes.
func (d discovery) judge(r *http.Request, sent, answered []byte) []string {
	m := (resource{Resources: d.Resources}).find(r.Method, r.URL.Path)
	if m == nil {
		return []string{"there is no such method"}
	}
	var all []string
	for name := range r.URL.Query() {
		if _, everywhere := d.Parameters[name]; !everywhere && m.Parameters[name].Location != "query" {
			all = append(all, "query "+name)
		}
	}
	for _, body := range []struct {
		data []byte
		of   schema
		at   string
	}{{sent, m.Request, "sent"}, {answered, m.Response, "answered"}} {
		var v any
		if len(body.data) > 0 {
			if err := json.Unmarshal(body.data, &v); err != nil {
				all = append(all, body.at+" is not JSON")
			}
		}
		all = append(all, d.violations(body.of, body.at, v, body.at == "sent")...)
	}
	return all
}

// What is asked of Google in the whole life of an installation is what Google publishes of its services, field by field; and so is what
// the stand-in answers.
func TestCallsAreThoseThatGooglePublishes(t *testing.T) {
	t.Parallel()
	// Only documents of the module are used, so that no build has downloaded it.
	out, err := exec.Command("go", "mod", "download", "-json", "google.golang.org/api").Output()
	check(t, err)
	var module struct{ Dir string }
	check(t, json.Unmarshal(out, &module))
	services := map[string]discovery{}
	for _, name := range []string{"iam", "cloudresourcemanager"} {
		data, err := os.ReadFile(filepath.Join(module.Dir, name, "v1", name+"-api.json"))
		check(t, err)
		var d discovery
		check(t, json.Unmarshal(data, &d))
		services[name] = d
	}
	inWorld(t, fakegcp.Options{OperationDelay: time.Second, PageSize: 1}, func(t *testing.T, w *world) {
		var mu sync.Mutex
		calls, methods := 0, map[string]bool{}
		client := iam.OpenWith(fakegcp.AccessToken, rest.Access{Project: "my-project", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			var sent []byte
			if r.Body != nil {
				sent, _ = io.ReadAll(r.Body) // it is in memory
				r.Body = io.NopCloser(bytes.NewReader(sent))
			}
			res, err := w.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			answered, _ := io.ReadAll(res.Body) // it is in memory
			res.Body = io.NopCloser(bytes.NewReader(answered))
			if res.StatusCode != http.StatusOK {
				answered = nil
			}
			service, _, _ := strings.Cut(r.URL.Host, ".")
			mu.Lock()
			defer mu.Unlock()
			calls++
			methods[fmt.Sprint(r.Method, regexp.MustCompile(`(/[a-zA-Z]+)$|:[a-zA-Z]+$`).FindString(r.URL.Path))] = true
			for _, v := range services[service].judge(r, sent, answered) {
				t.Errorf("%s %s: %s", r.Method, r.URL, v)
			}
			return res, nil
		})})
		life(t, w, client)
		if calls < 150 || len(methods) < 15 {
			t.Errorf("only %d calls of %d kinds", calls, len(methods))
		}
	})
}

// life makes an installation, again, a workload and other keys for it, what has drifted, and deletes and revives it.
func life(t *testing.T, w *world, c *iam.Client) {
	t.Helper()
	want := installation("demo")
	create := func(want iam.Wanted) {
		t.Helper()
		_, err := apply(t.Context(), c, want)
		check(t, err)
	}
	create(want)
	create(want)
	want.Accounts.Prune = true
	drifted(t, w, want)
	create(want)
	want.Provider.JWKS, want.Provider.Condition, want.Provider.Adopt = jwks(keyOne, "k1"), "assertion.sub != 'x'", true
	want.Accounts.List = want.Accounts.List[1:]
	create(want)
	_, err := c.UploadKeys(t.Context(), federation.Provider{Pool: "demo", ID: "demo", IssuerURL: issuerURL, Owner: federation.OwnedBy("demo"), JWKS: jwks(keyTwo, "e1")})
	check(t, err)
	create(iam.Wanted{Accounts: &iam.Accounts{Owner: federation.OwnedByKeypost(), Pool: "demo", List: []iam.Account{
		{Name: "backup", Roles: []string{"roles/viewer"}, Subjects: []string{"system:serviceaccount:ns-z:x"}}}}})
	for range 2 {
		p, _, err := c.PlanDelete(t.Context(), iam.Deletion{Name: "demo", Pool: "demo", CustomRoles: true})
		check(t, err)
		_, err = carryOut(t.Context(), p)
		check(t, err)
		create(want)
	}
}
