package fakeazure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"

	"github.com/keypost/keypost/test/fakecloud/cluster"
	"github.com/keypost/keypost/test/keys"
)

const (
	subscription = "/subscriptions/11111111-2222-3333-4444-555555555555"
	group        = subscription + "/resourceGroups/prod-a-oidc"
	identity     = group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/prod-a-ns-creds"
	definitions  = subscription + "/providers/Microsoft.Authorization/roleDefinitions"
	reader       = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
)

// stage is a tenant with an identity that the workload may use, and the workload's issuer.
type stage struct {
	*Server
	issuer *cluster.Issuer
	clock  *cluster.Clock
	key    cluster.Signer
	client string
}

func newStage(t *testing.T, o Options) *stage {
	t.Helper()
	st := &stage{issuer: cluster.Start(t), clock: cluster.NewClock(), key: cluster.Signer{KID: "k1", Alg: "RS256", Key: keys.NewRSA()()}}
	st.issuer.Keys = append(st.issuer.Keys, st.key.Public())
	o.Dial, o.Roots, o.Now = st.issuer.Dial, st.issuer.CA.Pool(), st.clock.Now
	st.Server = Start(t, o)
	st.put(t, group, "2021-04-01", `{"location":"centralus"}`)
	st.put(t, identity, "2024-11-30", `{"location":"centralus"}`)
	st.put(t, identity+"/federatedIdentityCredentials/app", "2024-11-30",
		fmt.Sprintf(`{"properties":{"issuer":%q,"subject":%q,"audiences":["openshift"]}}`, cluster.IssuerURL, cluster.Subject))
	st.client = st.State().Identities[0].ClientID
	return st
}

func (s *Server) put(t testing.TB, path, version, body string) {
	t.Helper()
	if err := s.Ask("PUT", path, version, body); err != nil {
		t.Fatal(err)
	}
}

// sdk is the options of Microsoft's clients that find the server.
func (s *Server) sdk() policy.ClientOptions {
	return policy.ClientOptions{Transport: s.Client(), Retry: policy.RetryOptions{MaxRetries: -1}}
}

// caller is the provisioner's own credential.
func (s *Server) caller(t testing.TB) azcore.TokenCredential {
	t.Helper()
	c, err := azidentity.NewClientSecretCredential(s.options.Tenant, s.CallerID(), ClientSecret, &azidentity.ClientSecretCredentialOptions{ClientOptions: s.sdk()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// workload is what a pod's environment makes of a Secret.
func (st *stage) workload(t testing.TB, claims ...any) azcore.TokenCredential {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(st.key.Sign(t, cluster.Workload(st.clock.Now(), claims...))), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: st.sdk(), ClientID: st.client,
		TenantID: st.options.Tenant, TokenFilePath: file})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// code fails the test unless err is a refusal with that code; empty is none.
func code(t testing.TB, err error, want string) {
	t.Helper()
	var r *azcore.ResponseError
	if got := errors.As(err, &r); got && r.ErrorCode != want || !got && (want != "" || err != nil) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestMicrosoftsClientsCloseTheCircle(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{})
	options := &arm.ClientOptions{ClientOptions: st.sdk()}
	groups := func(c azcore.TokenCredential) *armresources.ResourceGroupsClient {
		g, err := armresources.NewResourceGroupsClient(st.options.Subscription, c, options)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	_, err := groups(st.caller(t)).Get(t.Context(), "prod-a-oidc", nil)
	code(t, err, "")
	_, err = groups(st.workload(t)).Get(t.Context(), "prod-a-oidc", nil)
	code(t, err, "AuthorizationFailed")
	st.put(t, group+"/providers/Microsoft.Authorization/roleAssignments/"+guid("a"), "2022-04-01",
		fmt.Sprintf(`{"properties":{"roleDefinitionId":%q,"principalId":%q}}`, definitions+"/"+reader, st.State().Identities[0].PrincipalID))
	_, err = groups(st.workload(t)).Get(t.Context(), "prod-a-oidc", nil)
	code(t, err, "")
	for claim, says := range map[string]string{"iss": "AADSTS700211", "aud": "AADSTS700212", "sub": "AADSTS700213"} {
		if _, err = groups(st.workload(t, claim, "https://vault.example.com")).Get(t.Context(), "prod-a-oidc", nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("another %s: %v", claim, err)
		}
	}
	st.key.KID = "k2"
	if _, err = groups(st.workload(t)).Get(t.Context(), "prod-a-oidc", nil); err == nil || !strings.Contains(err.Error(), "AADSTS7000272") {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestTheTypedClientsProvision(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{PageSize: 1, OperationPolls: 1})
	subscriptionID, ctx := s.options.Subscription, t.Context()
	options := &arm.ClientOptions{ClientOptions: s.sdk()}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	groups, err := armresources.NewResourceGroupsClient(subscriptionID, s.caller(t), options)
	must(err)
	msi, err := armmsi.NewClientFactory(subscriptionID, s.caller(t), options)
	must(err)
	authorization, err := armauthorization.NewClientFactory(subscriptionID, s.caller(t), options)
	must(err)

	_, err = groups.CreateOrUpdate(ctx, "prod-a-oidc", armresources.ResourceGroup{Location: to.Ptr("centralus")}, nil)
	must(err)
	for _, name := range []string{"one", "two"} {
		_, err = msi.NewUserAssignedIdentitiesClient().CreateOrUpdate(ctx, "prod-a-oidc", name, armmsi.Identity{Location: to.Ptr("centralus")}, nil)
		must(err)
	}
	var found []*armmsi.Identity
	for p := msi.NewUserAssignedIdentitiesClient().NewListByResourceGroupPager("prod-a-oidc", nil); p.More(); {
		page, err := p.NextPage(ctx)
		must(err)
		found = append(found, page.Value...)
	}
	if len(found) != 2 {
		t.Fatal(found)
	}
	credentials := msi.NewFederatedIdentityCredentialsClient()
	_, err = credentials.Get(ctx, "prod-a-oidc", "one", "sa1", nil)
	code(t, err, "NotFound")
	_, err = credentials.CreateOrUpdate(ctx, "prod-a-oidc", "one", "sa1", armmsi.FederatedIdentityCredential{Properties: &armmsi.FederatedIdentityCredentialProperties{
		Issuer: to.Ptr(cluster.IssuerURL), Subject: to.Ptr(cluster.Subject), Audiences: []*string{to.Ptr("openshift")}}}, nil)
	must(err)
	_, err = authorization.NewRoleDefinitionsClient().CreateOrUpdate(ctx, subscription, guid("role"), armauthorization.RoleDefinition{
		Properties: &armauthorization.RoleDefinitionProperties{RoleName: to.Ptr("n"), AssignableScopes: []*string{to.Ptr(subscription)},
			Permissions: []*armauthorization.Permission{{Actions: []*string{to.Ptr("A/b/read")}}}}}, nil)
	must(err)
	_, err = authorization.NewRoleAssignmentsClient().Create(ctx, group, guid("a"), armauthorization.RoleAssignmentCreateParameters{
		Properties: &armauthorization.RoleAssignmentProperties{PrincipalID: found[0].Properties.PrincipalID,
			RoleDefinitionID: to.Ptr(definitions + "/" + guid("role")), PrincipalType: to.Ptr(armauthorization.PrincipalTypeServicePrincipal)}}, nil)
	must(err)
	_, err = authorization.NewRoleDefinitionsClient().Delete(ctx, subscription, guid("role"), nil)
	code(t, err, "RoleDefinitionHasAssignments")
	poller, err := groups.BeginDelete(ctx, "prod-a-oidc", nil)
	must(err)
	_, err = poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second})
	must(err)
	if st := s.State(); len(st.Groups)+len(st.Identities)+len(st.Credentials)+len(st.Assignments) != 0 || len(st.Definitions) != 1 {
		t.Errorf("%+v", st)
	}
}
