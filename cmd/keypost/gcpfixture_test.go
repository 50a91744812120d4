package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/auth/credentials"
	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/test/fakegcp"
)

// project is a Google Cloud project that a script or a test has started, as programs of this machine see it: Google's hosts lead
// there by a proxy, over TLS with a CA of its own.
type project struct {
	*fakegcp.Server
	env []string
}

type projectKey struct{}

type fakeProject struct{ *project }

// startProject plays a project until the test ends.
func startProject(t testing.TB, c checker, o fakegcp.Options) *project {
	p := &project{Server: fakegcp.Start(t, o)}
	env, err := p.Env()
	c.Check(err)
	p.env = append(append(env, p.Tunnel(t)...), "GOOGLE_CLOUD_KEYFILE_JSON=", "GCLOUD_KEYFILE_JSON=", "GOOGLE_APPLICATION_CREDENTIALS=")
	return p
}

// startGCP plays a project from here on: fakegcp [issuer|refusing|slow|lagging]. All commands of the script talk to it. With issuer, its
// STS reaches what serve has published, and takes its CA for a public one; refusing, its organisation lets no issuer in but one;
// slow, operations take a while; lagging, new accounts too.
func (a accounts) startGCP(ts *testscript.TestScript, args []string) {
	o := fakegcp.Options{}
	switch strings.Join(args, "") {
	case "issuer":
		o.Roots, o.Dial = x509.NewCertPool(), dialing("127.0.0.1:"+ts.Getenv("PORT"))
		o.Roots.AppendCertsFromPEM([]byte(ts.ReadFile(ts.Getenv("CA"))))
	case "refusing":
		o.AllowedIssuers = []string{"https://storage.googleapis.com/prod-a-oidc"}
	case "slow":
		o.OperationDelay = 300e6
	case "lagging":
		o.OperationDelay, o.AccountDelay = 300e6, 300e6
	}
	p := startProject(a.t, ts, o)
	setenv(ts, p.env...)
	ts.Value(projectKey{}).(*fakeProject).project = p
}

func projectOf(ts *testscript.TestScript) *project {
	p := ts.Value(projectKey{}).(*fakeProject).project
	if p == nil {
		ts.Fatalf("fakegcp was not started")
	}
	return p
}

func describeProject(s fakegcp.State) string {
	var b strings.Builder
	for _, p := range s.Pools {
		fmt.Fprintf(&b, "pool %s %s disabled=%t %s\n", p.Name, p.State, p.Disabled, p.Description)
	}
	for _, p := range s.Providers {
		fmt.Fprintf(&b, "provider %s %s disabled=%t %s\n  mapping %s\n  oidc %s\n", p.Name, p.State, p.Disabled, p.Description, asJSON(p.Mapping), asJSON(p.OIDC))
	}
	slices.SortFunc(s.Accounts, func(a, b fakegcp.Account) int { return strings.Compare(a.Email, b.Email) })
	for _, a := range s.Accounts {
		if a.Deleted == nil {
			fmt.Fprintf(&b, "account %s %q %q\n  users %s\n", a.Email, a.DisplayName, a.Description, describePolicy(s.Policies[a.Email]))
		}
	}
	for _, r := range s.Roles {
		fmt.Fprintf(&b, "role %s deleted=%t %q %s\n", r.Name, r.Deleted, r.Title, asJSON(sorted(r.Permissions)))
	}
	fmt.Fprintf(&b, "policy %s\n", describePolicy(s.Project))
	return b.String()
}

func describePolicy(p fakegcp.Policy) string {
	var lines []string
	for _, b := range p.Bindings {
		for _, m := range b.Members {
			if !strings.HasPrefix(m, "deleted:") {
				lines = append(lines, fmt.Sprint(b.Role, " ", m, " ", asJSON(b.Condition)))
			}
		}
	}
	return asJSON(sorted(lines))
}

// callGoogle changes the project behind keypost's back, as somebody at the console would: google METHOD URL [BODY]. A body @FILE is the
// file's text.
func callGoogle(ts *testscript.TestScript, args []string) {
	body := strings.Join(args[2:], "")
	if file, is := strings.CutPrefix(body, "@"); is {
		body = ts.ReadFile(file)
	}
	ts.Check(askGoogle(projectOf(ts).Server, args[0], args[1], body))
}

func askGoogle(s *fakegcp.Server, method, url, body string) error {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.CallerClient().Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s %s: %s %s", method, url, resp.Status, said)
	}
	return nil
}

// exchange gives the Secret of a manifest, as it is written, to Google's own client, with a token of a service account: exchange KEYFILE
// ISSUER NAMESPACE/NAME MANIFEST. Only the token file is another: the client reads it on this machine.
func exchange(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 4 {
		ts.Fatalf("usage: exchange KEYFILE ISSUER NAMESPACE/NAME MANIFEST")
	}
	token, err := signToken(ts.ReadFile(args[0]), args[1], []string{"openshift"}, strings.Replace(args[2], "/", ":", 1))
	ts.Check(err)
	file := ts.MkAbs("exchanged-token")
	ts.Check(os.WriteFile(file, []byte(token), 0o600))
	var secret struct {
		Data map[string][]byte `json:"data"`
	}
	ts.Check(yaml.Unmarshal([]byte(ts.ReadFile(args[3])), &secret))
	config := regexp.MustCompile(`("file": )"[^"]*"`).ReplaceAll(secret.Data["service_account.json"], fmt.Appendf(nil, "$1%q", file))
	p := projectOf(ts)
	c, err := credentials.NewCredentialsFromJSON(credentials.ExternalAccount, config, &credentials.DetectOptions{Client: p.Client(),
		Scopes: []string{"https://www.googleapis.com/auth/cloud-platform"}})
	ts.Check(err)
	got, err := c.Token(context.Background())
	if neg {
		if err == nil {
			ts.Fatalf("%s gets a token", args[2])
		}
		ts.Logf("%v", err)
		return
	}
	ts.Check(err)
	var said struct {
		URL string `json:"service_account_impersonation_url"`
	}
	ts.Check(json.Unmarshal(config, &said))
	if email, ok := p.Email(got.Value); !ok || !strings.Contains(said.URL, "/"+email+":") {
		ts.Fatalf("the token belongs to %q, not to whom %s names", email, said.URL)
	}
}

// gsaid is compareLines of what makes things: gsaid COUNT
func gsaid(ts *testscript.TestScript, args []string) {
	compareLines(ts, projectOf(ts), args[0], map[string]string{
		"CreateWorkloadIdentityPool":         "Workload identity pool created with name ",
		"CreateWorkloadIdentityPoolProvider": "workload identity provider created with name ",
		"CreateServiceAccount":               "IAM service account .* created",
		"CreateRole":                         "IAM custom role .* created",
	})
}

// gcpCluster is all that create-all needs in Google Cloud.
type gcpCluster struct {
	*clusterFixture
	gcp *project
}

func newGCPCluster(t *testing.T, o fakegcp.Options) *gcpCluster {
	t.Helper()
	f := &gcpCluster{clusterFixture: newClusterFixture(t, "testdata/gcp/requests")}
	f.gcp = startProject(t, checked{t}, o)
	f.reach(t, f.gcp.env)
	f.cloud, f.holds = f.gcp, func() string { return describeProject(f.gcp.State()) }
	f.creates = []string{"gcp", "create-all", "--name", "prod-a", "--project", "my-project"}
	return f
}
