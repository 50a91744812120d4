package fakeazure

import (
	"errors"
	"os"
	"path/filepath"
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
)

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
	st.must(t, "PUT", assignments+"/"+guid("a"), assigned(reader, st.State().Identities[0].PrincipalID, ""))
	_, err = groups(st.workload(t)).Get(t.Context(), "prod-a-oidc", nil)
	code(t, err, "")
	var failed *azidentity.AuthenticationFailedError
	if _, err = groups(st.workload(t, "aud", "vault")).Get(t.Context(), "prod-a-oidc", nil); !errors.As(err, &failed) || failed.RawResponse.StatusCode != 401 {
		t.Error(err)
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
