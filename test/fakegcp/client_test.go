package fakegcp

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	newer "cloud.google.com/go/auth/credentials"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google/externalaccount"
	"google.golang.org/api/iam/v1"
	"google.golang.org/api/option"

	"github.com/keypost/keypost/test/fakecloud/cluster"
	"github.com/keypost/keypost/test/keys"
)

const (
	issuerURL = cluster.IssuerURL
	parent    = "projects/my-project"
	locations = parent + "/locations/global"
	poolPath  = locations + "/workloadIdentityPools/prod-a"
	numbered  = "projects/123456789012/locations/global/workloadIdentityPools/prod-a"
	subject   = cluster.Subject
)

// The keys of all tests: making one takes long.
var firstKey, secondKey = keys.NewRSA(), keys.NewRSA()

// signer has an RSA key; that of k2 is another one.
func signer(kid string) cluster.Signer {
	key := firstKey
	if kid == "k2" {
		key = secondKey
	}
	return cluster.Signer{KID: kid, Alg: jose.RS256, Key: key()}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// iamOf is Google's own client of IAM, which finds the server under Google's own URLs.
func iamOf(t testing.TB, s *Server) *iam.Service {
	return must(iam.NewService(t.Context(), option.WithHTTPClient(s.CallerClient())))(t)
}

func poolsOf(t testing.TB, s *Server) *iam.ProjectsLocationsWorkloadIdentityPoolsService {
	return iamOf(t, s).Projects.Locations.WorkloadIdentityPools
}

func accountsOf(t testing.TB, s *Server) *iam.ProjectsServiceAccountsService {
	return iamOf(t, s).Projects.ServiceAccounts
}

// goodProvider is what a provisioner makes for a cluster.
func goodProvider() *iam.WorkloadIdentityPoolProvider {
	return &iam.WorkloadIdentityPoolProvider{
		AttributeMapping: map[string]string{"google.subject": "assertion.sub"},
		Oidc:             &iam.Oidc{IssuerUri: issuerURL, AllowedAudiences: []string{"openshift"}},
	}
}

func makePool(t testing.TB, s *Server) {
	t.Helper()
	must(poolsOf(t, s).Create(locations, &iam.WorkloadIdentityPool{}).WorkloadIdentityPoolId("prod-a").Do())(t)
}

func makeProvider(t testing.TB, s *Server, p *iam.WorkloadIdentityPoolProvider) {
	t.Helper()
	must(poolsOf(t, s).Providers.Create(poolPath, p).WorkloadIdentityPoolProviderId("prod-a").Do())(t)
}

// makeAccount makes an account, and gives its email.
func makeAccount(t testing.TB, s *Server, id string) string {
	t.Helper()
	return must(accountsOf(t, s).Create(parent, &iam.CreateServiceAccountRequest{AccountId: id}).Do())(t).Email
}

// bind lets a member use an account.
func bind(t testing.TB, s *Server, email, member string) {
	t.Helper()
	accounts, name := accountsOf(t, s), parent+"/serviceAccounts/"+email
	p := must(accounts.GetIamPolicy(name).OptionsRequestedPolicyVersion(3).Do())(t)
	p.Bindings = append(p.Bindings, &iam.Binding{Role: "roles/iam.workloadIdentityUser", Members: []string{member}})
	must(accounts.SetIamPolicy(name, &iam.SetIamPolicyRequest{Policy: p}).Do())(t)
}

// credentials are what a Secret of ccoctl's form says, read by Google's own client, which is given a token's file.
func credentials(t testing.TB, s *Server, token, email string) (oauth2.TokenSource, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	c := externalaccount.Config{
		Audience:         "//iam.googleapis.com/" + numbered + "/providers/prod-a",
		SubjectTokenType: "urn:ietf:params:oauth:token-type:jwt",
		TokenURL:         "https://sts.googleapis.com/v1/token",
		Scopes:           []string{"https://www.googleapis.com/auth/cloud-platform"},
		CredentialSource: &externalaccount.CredentialSource{File: file, Format: externalaccount.Format{Type: "text"}},
	}
	if email != "" {
		c.ServiceAccountImpersonationURL = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + email + ":generateAccessToken"
	}
	return externalaccount.NewTokenSource(context.WithValue(t.Context(), oauth2.HTTPClient, s.Client()), c)
}

// stage is a project with a pool, a provider, an account that the workload may use, and the workload's issuer.
type stage struct {
	*Server
	issuer *cluster.Issuer
	clock  *cluster.Clock
	key    cluster.Signer
	email  string
}

func newStage(t testing.TB, o Options, change func(*iam.WorkloadIdentityPoolProvider)) *stage {
	t.Helper()
	st := &stage{issuer: cluster.Start(t), clock: cluster.NewClock(), key: signer("k1")}
	st.issuer.Keys = append(st.issuer.Keys, st.key.Public())
	o.Dial, o.Roots, o.Now = st.issuer.Dial, st.issuer.CA.Pool(), st.clock.Now
	st.Server = Start(t, o)
	makePool(t, st.Server)
	p := goodProvider()
	if change != nil {
		change(p)
	}
	makeProvider(t, st.Server, p)
	st.email = makeAccount(t, st.Server, "workload")
	bind(t, st.Server, st.email, "principal://iam.googleapis.com/"+numbered+"/subject/"+subject)
	return st
}

func TestTheNewerClientTakesTheSecretAsItIsWritten(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{}, nil)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(st.key.Sign(t, cluster.Workload(st.clock.Now()))), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := `{"type":"external_account","audience":"//iam.googleapis.com/` + numbered + `/providers/prod-a",` +
		`"subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":"https://sts.googleapis.com/v1/token",` +
		`"service_account_impersonation_url":"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/` + st.email + `:generateAccessToken",` +
		`"credential_source":{"file":"` + file + `","format":{"type":"text"}}}`
	c := must(newer.NewCredentialsFromJSON(newer.ExternalAccount, []byte(secret), &newer.DetectOptions{Client: st.Client(), Scopes: []string{iam.CloudPlatformScope}}))(t)
	if email, ok := st.Email(must(c.Token(t.Context()))(t).Value); !ok || email != st.email {
		t.Errorf("the token belongs to %q", email)
	}
}

func TestAWorkloadGetsItsAccountsToken(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{}, nil)
	source := must(credentials(t, st.Server, st.key.Sign(t, cluster.Workload(st.clock.Now())), st.email))(t)
	token := must(source.Token())(t)
	if email, ok := st.Email(token.AccessToken); !ok || email != st.email {
		t.Errorf("the token belongs to %q", email)
	}
	if life := token.Expiry.Sub(st.clock.Now()); life != time.Hour {
		t.Error(life)
	}
	if st.issuer.Hits("/.well-known/openid-configuration") != 1 || st.issuer.Hits("/keys.json") != 1 {
		t.Error("the issuer's documents were not fetched")
	}
	for _, c := range st.Calls() {
		if c.Service == "sts" && c.Body != "" {
			t.Error("a token is kept in the record of calls")
		}
	}
}
