package iam_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/test/fakegcp"
)

// Every refusal has Google's own reason, and where it is known what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	disabled := "Identity and Access Management (IAM) API has not been used in project 123456789012 before or it is disabled. Enable it by visiting https://x then retry."
	for _, tt := range []struct {
		name    string
		options fakegcp.Options
		fault   func(c fakegcp.Call) fakegcp.Fault
		problem rest.Problem
		said    []string
		writes  int // that take effect
	}{
		{name: "issuer that the organisation does not let in", options: fakegcp.Options{AllowedIssuers: []string{"https://x.example.com"}},
			said: []string{"an organisation policy (constraints/iam.workloadIdentityPoolProviders) forbids it, and its administrator must allow it", "Org Policy violated for value: 'https://oidc.example.com/demo'"}, writes: 1},
		{name: "API that is not enabled", fault: of("ListServiceAccounts", fakegcp.Fail(http.StatusForbidden, "PERMISSION_DENIED", disabled)),
			said: []string{"needs an API that is not enabled in the project", "Enable it by visiting https://x"}},
		{name: "permission", fault: of("GetRole", fakegcp.Fail(http.StatusForbidden, "PERMISSION_DENIED", "You don't have it.")),
			problem: rest.Denied, said: []string{"the caller does not have the permission iam.roles.get, which iam:GetRole needs (Google says: You don't have it"}},
		{name: "account quota", options: fakegcp.Options{AccountLimit: 2},
			said: []string{"Maximum number of service accounts on project reached"}, writes: 8},
		{name: "credentials", fault: of("GetProject", fakegcp.Fail(http.StatusUnauthorized, "UNAUTHENTICATED", "Request had invalid authentication credentials.")),
			problem: rest.NoCredentials, said: []string{"Google does not take the credentials of the caller"}},
		{name: "a predefined role that does not exist", fault: of("SetProjectIamPolicy", fakegcp.Fail(http.StatusBadRequest, "INVALID_ARGUMENT",
			"Role (roles/storage.admin) does not exist in the resource's hierarchy.")), said: []string{"Role (roles/storage.admin) does not exist"}, writes: 10},
		{name: "what is not an answer of Google's", fault: of("GetProject", fakegcp.Fail(http.StatusTeapot, "", "")), said: []string{"the answer is 418"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, tt.options, func(t *testing.T, w *world) {
				start := time.Now()
				w.Fault(tt.fault)
				_, err := apply(t.Context(), w.client(), installation("demo"))
				if err == nil || problemOf(err) != tt.problem {
					t.Fatalf("error %v of problem %d, want %d", err, problemOf(err), tt.problem)
				}
				contains(t, err.Error(), tt.said...)
				if took := time.Since(start); took > time.Minute {
					t.Errorf("it took %s to say so", took)
				}
				made := 0
				for _, c := range w.Calls() {
					if c.Write && c.Code == "" {
						made++
					}
				}
				if made > tt.writes {
					t.Errorf("%d writes before the refusal", made)
				}
			})
		})
	}
}

func of(action string, f fakegcp.Fault) func(fakegcp.Call) fakegcp.Fault {
	return func(c fakegcp.Call) fakegcp.Fault {
		if c.Action == action {
			return f
		}
		return fakegcp.Fault{}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Where nobody listens, that is known within seconds; what stays busy is given up.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		most time.Duration
		said string
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 10 * time.Second, "Google cannot be reached; see the network and HTTPS_PROXY"},
		{syscall.ECONNRESET, 5 * time.Minute, "connection reset"},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			c := iam.OpenWith("x", rest.Access{Project: "p", Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, tt.err })})
			_, err := c.Project(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.said) || time.Since(start) > tt.most || time.Since(start) < time.Second {
				t.Errorf("%v after %s", err, time.Since(start))
			}
		})
	}
}

// The credentials are looked for where ccoctl looks, and never asked for.
func TestOpen(t *testing.T) {
	s := fakegcp.Start(t, fakegcp.Options{})
	key, err := s.Credentials()
	check(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "sa.json")
	check(t, os.WriteFile(file, []byte(key), 0o600))
	bad := filepath.Join(dir, "bad.json")
	check(t, os.WriteFile(bad, []byte("secret"), 0o600))
	home := filepath.Join(dir, "home", ".gcp", "osServiceAccount.json")
	check(t, os.MkdirAll(filepath.Dir(home), 0o700))
	check(t, os.WriteFile(home, []byte(key), 0o600))
	for _, tt := range []struct {
		name   string
		env    map[string]string
		source string
		err    string
	}{
		{"content", map[string]string{"GOOGLE_CREDENTIALS": key}, `environment variable "GOOGLE_CREDENTIALS", content <redacted>`, ""},
		{"file", map[string]string{"GCLOUD_KEYFILE_JSON": file}, `environment variable "GCLOUD_KEYFILE_JSON", file "` + file + `"`, ""},
		{"the first that is set", map[string]string{"GOOGLE_CLOUD_KEYFILE_JSON": key, "GCLOUD_KEYFILE_JSON": bad}, `environment variable "GOOGLE_CLOUD_KEYFILE_JSON"`, ""},
		{"home", map[string]string{"HOME": filepath.Join(dir, "home")}, `file "` + home + `"`, ""},
		{"default", map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": file}, "gcloud CLI defaults", ""},
		{"missing file", map[string]string{"GOOGLE_CREDENTIALS": dir + "/none"}, "", `the environment variable "GOOGLE_CREDENTIALS" is neither JSON nor the path of a file that can be read: no such file`},
		{"content in another form", map[string]string{"GOOGLE_CREDENTIALS": strings.Repeat("secret", 100)}, "", "is neither JSON nor the path of a file that can be read: file name too long"},
		{"no JSON", map[string]string{"GOOGLE_CREDENTIALS": bad}, "", "they are not JSON"},
		{"default that is missing", map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": dir + "/none"}, "", `the environment variable "GOOGLE_APPLICATION_CREDENTIALS" is not the path of a file that can be read`},
		{"content as the default", map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": `{"private_key":"secret"}`}, "", "is not the path of a file that can be read, and takes nothing else: no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range []string{"GOOGLE_CREDENTIALS", "GOOGLE_CLOUD_KEYFILE_JSON", "GCLOUD_KEYFILE_JSON", "GOOGLE_APPLICATION_CREDENTIALS"} {
				t.Setenv(name, tt.env[name])
			}
			t.Setenv("HOME", dir)
			if tt.env["HOME"] != "" {
				t.Setenv("HOME", tt.env["HOME"])
			}
			c, err := iam.Open(t.Context(), rest.Access{Project: "my-project", Transport: s.Client().Transport})
			if tt.err != "" {
				if problemOf(err) != rest.NoCredentials || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "secret") {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			check(t, err)
			if !strings.HasPrefix(c.Rest.Source, tt.source) {
				t.Errorf("source %q, want %q", c.Rest.Source, tt.source)
			}
			p, err := c.Project(t.Context())
			check(t, err)
			if p.Caller != "provisioner@my-project.iam.gserviceaccount.com" {
				t.Errorf("caller %q", p.Caller)
			}
		})
	}
	t.Run("quota", func(t *testing.T) {
		t.Setenv("GOOGLE_CREDENTIALS", strings.Replace(key, "{", `{"quota_project_id": "p1", `, 1))
		for _, want := range []string{"p1", "p2"} {
			if want == "p2" {
				t.Setenv("GOOGLE_CLOUD_QUOTA_PROJECT", want)
			}
			sent := ""
			c, err := iam.Open(t.Context(), rest.Access{Project: "my-project", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				sent = r.Header.Get("X-Goog-User-Project")
				return s.Client().Transport.RoundTrip(r)
			})})
			check(t, err)
			if _, err := c.Project(t.Context()); err != nil || sent != want {
				t.Errorf("quota of %q, want %q (%v)", sent, want, err)
			}
		}
	})
	t.Run("revoked", func(t *testing.T) {
		t.Setenv("GOOGLE_CREDENTIALS", key)
		s.Fault(of("KeyToken", fakegcp.Fail(http.StatusBadRequest, "invalid_grant", "Invalid JWT Signature.")))
		c, err := iam.Open(t.Context(), rest.Access{Project: "my-project", Transport: s.Client().Transport})
		check(t, err)
		if _, err := c.Project(t.Context()); problemOf(err) != rest.NoCredentials || !strings.Contains(err.Error(), "give no access token") {
			t.Errorf("error %v", err)
		}
	})
}

// What asks for a token is signed by the caller and good for an hour: it goes to the endpoint that the credentials name, and follows
// nobody elsewhere.
func TestATokenEndpointLeadsNowhere(t *testing.T) {
	s := fakegcp.Start(t, fakegcp.Options{})
	key, err := s.Credentials()
	check(t, err)
	t.Setenv("GOOGLE_CREDENTIALS", key)
	led := 0
	c, err := iam.Open(t.Context(), rest.Access{Project: "my-project", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host == "elsewhere.example.net" {
			led++
		}
		return &http.Response{StatusCode: http.StatusTemporaryRedirect, Status: "307 Temporary Redirect", Header: http.Header{"Location": {"http://elsewhere.example.net/x"}},
			Body: http.NoBody, Request: r}, nil
	})})
	check(t, err)
	if _, err := c.Project(t.Context()); problemOf(err) != rest.NoCredentials || led > 0 {
		t.Errorf("%d requests elsewhere: %v", led, err)
	}
}
