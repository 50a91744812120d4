package gcp_test

import (
	"context"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakegcp"
	"github.com/keypost/keypost/test/keys"
	"github.com/keypost/keypost/test/scene"
)

// site is all that an installation needs: a project and a scene. Time passes there.
type site struct {
	*fakegcp.Direct
	*scene.Scene
}

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{fakegcp.NewDirect(fakegcp.Options{}), scene.New(t)}
}

// caller returns the caller's access token.
func caller() oauth2.TokenSource {
	return oauth2.StaticTokenSource(&oauth2.Token{AccessToken: fakegcp.AccessToken})
}

// apply makes only what is wanted of the project.
func (s *site) apply(t *testing.T, w iam.Wanted) {
	t.Helper()
	client, err := iam.Open(t.Context(), rest.Access{Project: "my-project", Transport: s.Direct, Tokens: caller()})
	check(t, err)
	p, err := client.Plan(t.Context(), w)
	check(t, err)
	check(t, p.Apply(t.Context(), iam.Parallel, func(plan.Action, []string, error) {}))
}

func (s *site) options() gcp.Options {
	return gcp.Options{Options: s.Options("gcp"), Transport: s.Direct, Tokens: caller(), Project: "my-project", Audiences: []string{"openshift"}}
}

// request is a CredentialsRequest: its service accounts, and what the provider's spec holds beside its kind.
type request struct{ name, accounts, provider, annotations string }

// requests writes a directory of CredentialsRequests. Their Secrets are in namespaces of their names.
func (s *site) requests(t *testing.T, list ...request) gcp.RequestedAccounts {
	t.Helper()
	dir := filepath.Join(s.Dir, "requests")
	check(t, os.RemoveAll(dir))
	check(t, os.MkdirAll(dir, 0o700))
	for i, q := range list {
		text := fmt.Sprintf(`apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: %[1]s, namespace: openshift-cloud-credential-operator, annotations: {%[4]s}}
spec:
  secretRef: {name: creds, namespace: ns-%[1]s}
  serviceAccountNames: [%[2]s]
  providerSpec: {apiVersion: cloudcredential.openshift.io/v1, kind: GCPProviderSpec, %[3]s}
`, q.name, q.accounts, q.provider, q.annotations)
		check(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.yaml", i)), []byte(text), 0o600))
	}
	return gcp.RequestedAccounts{Dir: dir}
}

// broughtProvider is what the identity of a request that brings its own is reached by.
const broughtProvider = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"

// usual are requests of all kinds: the second brings its own account.
func usual() []request {
	return []request{
		{name: "registry", accounts: "registry, node", provider: "predefinedRoles: [roles/storage.admin]"},
		{name: "brought", accounts: "x", provider: "serviceAccountEmail: brought@my-project.iam.gserviceaccount.com, audience: " + broughtProvider},
		{name: "ingress", accounts: "ingress", provider: "permissions: [dns.changes.create, dns.changes.get]"},
		{name: "ccm", accounts: "ccm", provider: "predefinedRoles: [roles/compute.viewer], permissions: [compute.zones.list]"},
	}
}

// install makes the installation prod-a.
func (s *site) install(t *testing.T, change func(*gcp.CreateOptions)) gcp.Created {
	t.Helper()
	accounts := s.requests(t, usual()...)
	o := gcp.CreateOptions{Options: s.options(), Accounts: &accounts}
	if change != nil {
		change(&o)
	}
	made, err := gcp.Create(t.Context(), o)
	check(t, err)
	return made
}

// credentials returns what the Secret of a request names: the audience and the email.
func (s *site) credentials(t *testing.T, name string) (audience, email string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Out(), "manifests", "ns-"+name+"-creds-credentials.yaml"))
	check(t, err)
	data := regexp.MustCompile(`service_account.json: (\S+)`).FindStringSubmatch(string(text))
	if data == nil {
		t.Fatalf("no credentials in\n%s", text)
	}
	config, err := base64.StdEncoding.DecodeString(data[1])
	check(t, err)
	var c struct {
		Audience string `json:"audience"`
		URL      string `json:"service_account_impersonation_url"`
	}
	check(t, json.Unmarshal(config, &c))
	_, email, _ = strings.Cut(strings.TrimSuffix(c.URL, ":generateAccessToken"), "/serviceAccounts/")
	return c.Audience, email
}

// emailOf is the email of the account that was made for a request.
func (s *site) emailOf(t *testing.T, request string) string {
	t.Helper()
	for _, a := range s.State().Accounts {
		if a.Deleted == nil && a.DisplayName == "prod-a-"+request {
			return a.Email
		}
	}
	t.Fatalf("there is no account for %s", request)
	return ""
}

// Every Secret names the account of its own request, and the provider by which that is reached.
func TestSecretsNameTheirAccounts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.WriteKeys(t)
	made := s.install(t, nil)
	if made.Accounts != 3 || made.Secrets != 4 || "//iam.googleapis.com/"+made.Provider != broughtProvider {
		t.Errorf("made %+v", made)
	}
	for _, q := range usual() {
		want := "brought@my-project.iam.gserviceaccount.com"
		if q.name != "brought" {
			want = s.emailOf(t, q.name)
		}
		if audience, email := s.credentials(t, q.name); email != want || audience != broughtProvider {
			t.Errorf("the Secret of %s names %s by %s, want %s", q.name, email, audience, want)
		}
	}
}

// A key that is stored is checked as one in a file is, before Google is asked anything. A retired one signs nothing.
func TestStoredKeysAreChecked(t *testing.T) {
	t.Parallel()
	rs256, err := keystore.NewPublic(keys.NewRSA()().Public())
	check(t, err)
	es384, err := keystore.NewPublic(keys.EC(elliptic.P384(), 1).Public())
	check(t, err)
	for state, refused := range map[keystore.State]bool{keystore.Active: true, keystore.Next: true, keystore.Retired: false} {
		for _, mode := range []install.Mode{install.Preview, install.Apply} {
			s := newSite(t)
			s.StoreKeys(t, rs256, es384, state)
			s.apply(t, iam.Wanted{Pool: &federation.Pool{ID: "prod-a", Owner: federation.OwnedBy("prod-a")}})
			s.ResetCalls()
			o := gcp.CreateOptions{Options: s.options(), Stored: true}
			o.Mode = mode
			switch _, err := gcp.Create(t.Context(), o); {
			case !refused:
				check(t, err)
			case err == nil || !strings.Contains(err.Error(), "is for ES384, and Google takes only tokens signed with RS256 or ES256") || len(s.Calls()) > 0:
				t.Errorf("%s: %v, after %d calls", state, err, len(s.Calls()))
			}
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const bucket = "https://oidc.example.com/bucket"

// move is a site with an installation for the issuer of a bucket, and what moves it to the site's own.
func (s *site) move(t *testing.T, key keystore.VerificationKey) gcp.MigrateOptions {
	t.Helper()
	o := s.options()
	o.IssuerURL, o.Dir = bucket, filepath.Join(s.Dir, "old")
	accounts := s.requests(t, usual()...)
	w := iam.Wanted{Pool: &federation.Pool{ID: "prod-a", Owner: federation.OwnedBy("prod-a")}, Provider: &federation.Provider{Pool: "prod-a", ID: "prod-a", IssuerURL: bucket,
		Audiences: []string{"openshift", "sts.googleapis.com"}, Owner: federation.OwnedBy("prod-a")}}
	s.apply(t, w)
	_, err := gcp.CreateAccounts(t.Context(), o, accounts)
	check(t, err)
	s.Reported()
	s.ResetCalls()
	return gcp.MigrateOptions{Options: s.options(), Accounts: accounts, Move: install.Move{Old: bucket,
		OldKeys: func(context.Context) ([]keystore.VerificationKey, error) { return []keystore.VerificationKey{key}, nil }}}
}

// provider changes the old provider as somebody else does.
func (s *site) provider(t *testing.T, mask string, value any) {
	t.Helper()
	name, inner, nested := strings.Cut(mask, ".")
	body := map[string]any{name: value}
	if nested {
		body[name] = map[string]any{inner: value}
	}
	s.Do(t, "PATCH", "my-project/locations/global/workloadIdentityPools/prod-a/providers/prod-a?updateMask="+mask, body)
}

// A run that finds nothing to do does not wait; one whose key set or provider is still to be made does.
func TestAMoveWaitsUnlessNothingIsLeft(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.move(t, s.WriteKeys(t))
	run := func(what string, waits bool) {
		t.Helper()
		_, err := gcp.Migrate(t.Context(), o)
		check(t, err)
		if told := s.Reported(); strings.Contains(told, "waiting until") != waits || !strings.Contains(told, "is served with key") {
			t.Errorf("%s: it told\n%s", what, told)
		}
	}
	run("all of it", true)
	s.ResetCalls()
	run("nothing to do", false)
	if n := s.Writes(); n > 0 {
		t.Errorf("it wrote %d times", n)
	}
	s.provider(t, "oidc.allowedAudiences", []string{"openshift"}) // the old one's, which only the second is to take
	run("something to change", true)
	fresh := scene.New(t) // the store is another
	s.Scene, o.Options.Options = fresh, fresh.Options("gcp")
	run("nothing is published", true)
}

// What moves nothing, or would move what then works no more, is refused before anything is published or written.
func TestMigrateRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, s *site, o *gcp.MigrateOptions)
		says   string
	}{
		{"a condition on the old issuer", func(t *testing.T, s *site, _ *gcp.MigrateOptions) {
			s.provider(t, "attributeCondition", "assertion.iss == '"+bucket+"'")
		}, "has the attribute condition assertion.iss == '" + bucket + "', which names the old issuer"},
		{"another mapping of subjects", func(t *testing.T, s *site, _ *gcp.MigrateOptions) {
			s.provider(t, "attributeMapping", map[string]string{"google.subject": "assertion.aud"})
		}, "maps google.subject to assertion.aud, and not to assertion.sub"},
		{"a copy of the keys without a word about it", func(t *testing.T, s *site, o *gcp.MigrateOptions) {
			s.provider(t, "oidc.jwksJson", `{"keys":[{"kty":"RSA","alg":"RS256","use":"sig","kid":"k1","n":"AQAB","e":"AQAB"}]}`)
			o.UsualKeys = true
		}, "provider prod-a has a copy of the keys; say --key-storage-method pool-jwk-file for another copy"},
		{"another cluster's directory", func(t *testing.T, _ *site, o *gcp.MigrateOptions) {
			o.Dir = t.TempDir()
			check(t, os.Mkdir(filepath.Join(o.Dir, ccoctl.ManifestsDir), 0o700))
			file := ccoctl.AuthenticationFile("https://oidc.example.com/foreign")
			check(t, os.WriteFile(filepath.Join(o.Dir, file.Name), file.Data, 0o600))
		}, "has the issuer URL https://oidc.example.com/foreign, so that the manifests of its cluster would be replaced by those for https://oidc.example.com/prod-a"},
		{"a link in place of the manifests", func(t *testing.T, _ *site, o *gcp.MigrateOptions) {
			o.Dir = t.TempDir()
			check(t, os.Symlink(t.TempDir(), filepath.Join(o.Dir, ccoctl.ManifestsDir)))
		}, "manifests in it is not a directory; move it away"},
		{"a store whose address is wrong", func(_ *testing.T, _ *site, o *gcp.MigrateOptions) {
			o.Store.Check = func() error { return errors.New("no such scheme") }
		}, "no such scheme"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			o := s.move(t, s.WriteKeys(t))
			tt.change(t, s, &o)
			s.ResetCalls()
			if _, err := gcp.Migrate(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v", err)
			}
			if n := s.Writes(); n > 0 {
				t.Errorf("it wrote %d times", n)
			}
			if list, err := s.Store.List(t.Context()); len(list) > 0 || err != nil {
				t.Errorf("published: %v, %v", list, err)
			}
		})
	}
}
