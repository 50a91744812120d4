package gcp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakegcp"
	"github.com/keypost/keypost/test/scene"
)

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

// second is the provider that was made beside the old one.
func (s *site) second(t *testing.T) fakegcp.Provider {
	t.Helper()
	all := s.State().Providers
	i := slices.IndexFunc(all, func(p fakegcp.Provider) bool { return !strings.HasSuffix(p.Name, "/prod-a") })
	if len(all) != 2 || i < 0 {
		t.Fatalf("there are %d providers: %+v", len(all), all)
	}
	return all[i]
}

// The new provider takes what the old one takes, but for the issuer; each Secret names it and the account of its own request. A run
// that finds nothing to do does not wait; one whose key set or provider is still to be made does.
func TestMigrate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.move(t, s.WriteKeys(t))
	const condition = "assertion.sub != 'system:serviceaccount:default:default'"
	s.provider(t, "attributeCondition", condition)
	s.provider(t, "attributeMapping", map[string]string{"google.subject": "assertion.sub", "attribute.issued": "assertion.sub"})
	before := s.State()

	done, err := gcp.Migrate(t.Context(), o)
	check(t, err)
	scene.Held(t, s.Reported(), "Moving from issuer "+bucket+" to "+issuerOfSite, "Key set prod-a with 1 key", "waiting until", "is served with key")
	second := s.second(t)
	if second.OIDC.Issuer != issuerOfSite || !slices.Equal(second.OIDC.Audiences, []string{"openshift", "sts.googleapis.com"}) || second.Condition != condition ||
		fmt.Sprint(second.Mapping) != "map[attribute.issued:assertion.sub google.subject:assertion.sub]" {
		t.Errorf("the second provider: %+v, %+v", second, second.OIDC)
	}
	if !strings.HasSuffix(second.Name, "/"+done.To) || done.From != "prod-a" || done.Pool != "prod-a" || done.Copy != "" || done.KeySet.Name() != "prod-a" {
		t.Errorf("done %+v", done)
	}
	var components []string
	for _, c := range done.Components {
		components = append(components, c.Namespace)
		audience, email := s.credentials(t, strings.TrimPrefix(c.Namespace, "ns-"))
		if want := s.emailOf(t, strings.TrimPrefix(c.Namespace, "ns-")); c.Email != want || email != want || audience != "//iam.googleapis.com/"+second.Name || c.Secret != "creds" {
			t.Errorf("%+v, whose Secret names %s by %s, want %s", c, email, audience, want)
		}
	}
	if strings.Join(components, " ") != "ns-registry ns-ingress ns-ccm" || len(done.Named) != 1 || done.Named[0].Namespace != "ns-brought" || done.Named[0].File != "" {
		t.Errorf("components %q, named %+v", components, done.Named)
	}
	if _, err := os.Stat(filepath.Join(s.Out(), "manifests", "ns-brought-creds-credentials.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the Secret of who brings an account: %v", err)
	}
	after := s.State()
	if fmt.Sprint(before.Accounts, before.Roles, before.Project, before.Policies) != fmt.Sprint(after.Accounts, after.Roles, after.Project, after.Policies) {
		t.Error("accounts or policies have changed")
	}

	again := func(what string, waits bool) {
		t.Helper()
		_, err := gcp.Migrate(t.Context(), o)
		check(t, err)
		if told := s.Reported(); strings.Contains(told, "waiting until") != waits || !strings.Contains(told, "is served with key") {
			t.Errorf("%s: it told\n%s", what, told)
		}
	}
	s.ResetCalls()
	again("nothing to do", false)
	if n := s.Writes(); n > 0 {
		t.Errorf("it wrote %d times", n)
	}
	s.provider(t, "oidc.allowedAudiences", []string{"openshift"}) // the old one's, which only the second is to take
	again("something to change", true)
	fresh := scene.New(t) // the store is another
	s.Scene, o.Options.Options = fresh, fresh.Options("gcp")
	again("nothing is published", true)
}

const issuerOfSite = scene.IssuerURL

// What moves nothing, or would move what then works no more, is refused before anything is published or written.
func TestMigrateRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		change  func(t *testing.T, s *site, o *gcp.MigrateOptions)
		problem rest.Problem
		says    string
	}{
		{"a condition on the old issuer", func(t *testing.T, s *site, _ *gcp.MigrateOptions) {
			s.provider(t, "attributeCondition", "assertion.iss == '"+bucket+"'")
		}, 0, "has the attribute condition assertion.iss == '" + bucket + "', which names the old issuer"},
		{"another mapping of subjects", func(t *testing.T, s *site, _ *gcp.MigrateOptions) {
			s.provider(t, "attributeMapping", map[string]string{"google.subject": "assertion.aud"})
		}, 0, "maps google.subject to assertion.aud, and not to assertion.sub"},
		{"another old issuer", func(_ *testing.T, _ *site, o *gcp.MigrateOptions) { o.Old += "-x" }, rest.NothingToMove, "trusts the issuer " + bucket + ", and not " + bucket + "-x"},
		{"no old provider", func(_ *testing.T, _ *site, o *gcp.MigrateOptions) { o.From = "other" }, rest.NothingToMove, "it is not there, is deleted or not for OIDC"},
		{"a deleted one", func(t *testing.T, s *site, _ *gcp.MigrateOptions) {
			s.Do(t, "DELETE", "my-project/locations/global/workloadIdentityPools/prod-a/providers/prod-a", nil)
		}, rest.NothingToMove, "it is not there, is deleted or not for OIDC"},
		{"the same provider", func(_ *testing.T, _ *site, o *gcp.MigrateOptions) { o.ProviderID = "prod-a" }, 0, "are both prod-a: a provider takes one issuer"},
		{"a copy of the keys without a word about it", func(t *testing.T, s *site, o *gcp.MigrateOptions) {
			s.provider(t, "oidc.jwksJson", `{"keys":[{"kty":"RSA","alg":"RS256","use":"sig","kid":"k1","n":"AQAB","e":"AQAB"}]}`)
			o.UsualKeys = true
		}, 0, "provider prod-a has a copy of the keys; say --key-storage-method pool-jwk-file for another copy"},
		{"an account that is missing", func(t *testing.T, s *site, _ *gcp.MigrateOptions) {
			s.Do(t, "DELETE", "my-project/serviceAccounts/"+s.emailOf(t, "ccm"), nil)
		}, rest.AccountsDiffer, "the service accounts of prod-a are not what the CredentialsRequests in"},
		{"another cluster's directory", func(t *testing.T, _ *site, o *gcp.MigrateOptions) {
			o.Dir = t.TempDir()
			check(t, os.Mkdir(filepath.Join(o.Dir, ccoctl.ManifestsDir), 0o700))
			file := ccoctl.AuthenticationFile("https://oidc.example.com/foreign")
			check(t, os.WriteFile(filepath.Join(o.Dir, file.Name), file.Data, 0o600))
		}, 0, "has the issuer URL https://oidc.example.com/foreign, so that the manifests of its cluster would be replaced by those for https://oidc.example.com/prod-a"},
		{"a link in place of the manifests", func(t *testing.T, _ *site, o *gcp.MigrateOptions) {
			o.Dir = t.TempDir()
			check(t, os.Symlink(t.TempDir(), filepath.Join(o.Dir, ccoctl.ManifestsDir)))
		}, 0, "manifests in it is not a directory; move it away"},
		{"a store whose address is wrong", func(_ *testing.T, _ *site, o *gcp.MigrateOptions) {
			o.Store.Check = func() error { return errors.New("no such scheme") }
		}, 0, "no such scheme"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			o := s.move(t, s.WriteKeys(t))
			tt.change(t, s, &o)
			s.ResetCalls()
			if _, err := gcp.Migrate(t.Context(), o); err == nil || problemOf(err) != tt.problem || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v of problem %d", err, problemOf(err))
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
