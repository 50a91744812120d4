package arm

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/keypost/keypost/provision/cloud"
)

// A key or a token in the place of a file's path is in no error.
func TestASecretInAPathsPlaceIsNotShown(t *testing.T) {
	const secret = "SECRET"
	key := "-----BEGIN PRIVATE KEY-----\n" + secret + "\n-----END PRIVATE KEY-----\n"
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE"} {
		for _, value := range []string{key, "eyJ" + secret, strings.Repeat(secret, 1000), file + "/" + secret} {
			t.Setenv("AZURE_TENANT_ID", "99999999-8888-7777-6666-555555555555")
			t.Setenv("AZURE_CLIENT_ID", "99999999-8888-7777-6666-555555555555")
			t.Setenv(name, value)
			_, err := Open(Account{Subscription: "11111111-2222-3333-4444-555555555555"}, nil)
			e, is := errors.AsType[*Error](err)
			if !is || e.Problem != NoCredentials || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), secret) {
				t.Errorf("%s=%.20q: %v", name, value, err)
			}
			t.Setenv(name, "")
		}
		if err := checkFiles(func(n string) string { return map[string]string{name: file}[n] }); err != nil {
			t.Error(err)
		}
	}
}

// The error that ends a group of calls is what net/http returns to those that it cuts short: they take it as it is, side by side.
func TestWhatAnotherCallCameToIsNotReadAgain(t *testing.T) {
	t.Parallel()
	body := `{"error":{"code":"ResourceNotFound","message":"It is not there."}}`
	first := explain("a", runtime.NewResponseError(answered(http.StatusNotFound, body)))
	const says = "a: It is not there (ResourceNotFound)"
	if first.Error() != says || !IsMissing(first) {
		t.Errorf("%v, missing: %v", first, IsMissing(first))
	}
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if err := explain("b", fmt.Errorf("Get: %w", first)); err.Error() != "Get: "+says || !IsMissing(err) {
				t.Errorf("%v, missing: %v", err, IsMissing(err))
			}
		})
	}
	calls.Wait()
}

func answered(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)),
		Request: &http.Request{Method: http.MethodGet, URL: &url.URL{}}, Body: io.NopCloser(strings.NewReader(body))}
}

// What Entra says is told, without what only Microsoft can look up.
func TestEntrasRefusalIsTold(t *testing.T) {
	t.Parallel()
	const body = `{"error_description":"AADSTS7000222: The provided client secret keys for app '1' are expired.\r\nTrace ID: 1"}`
	err := explain("a", &azidentity.AuthenticationFailedError{RawResponse: answered(http.StatusUnauthorized, body)})
	if e, is := errors.AsType[*Error](err); !is || e.Problem != NoCredentials ||
		err.Error() != "a: Entra refuses the credentials: AADSTS7000222: The provided client secret keys for app '1' are expired" {
		t.Error(err)
	}
}

// A proxy's page, or a gateway's words, with the status 404 do not say that a thing is not there.
func TestA404ThatIsNotAzuresSaysNothing(t *testing.T) {
	t.Parallel()
	for body, missing := range map[string]bool{
		`{"error":{"code":"ResourceNotFound","message":"It is not there."}}`: true,
		"<html>404 no such page</html>":                                      false,
		"":                                                                   false,
		`{"error":{"code":404,"message":"no Route matched with those values"}}`:                      false,
		`{"type":"about:blank","title":"Not Found","status":404}`:                                    false,
		`{"error":{"code":"InvalidResourceType","message":"The resource type could not be found."}}`: false,
	} {
		if err := explain("a", runtime.NewResponseError(answered(http.StatusNotFound, body))); IsMissing(err) != missing {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// What each refusal that is known from reports means for a change.
func TestRefusalsMean(t *testing.T) {
	t.Parallel()
	const notFound, conflict = http.StatusNotFound, http.StatusConflict
	for _, tt := range []struct {
		status     int
		code, text string
		means      cloud.Answer
	}{
		{http.StatusBadRequest, "PrincipalNotFound", "Principal 1 does not exist in the directory 2.", cloud.NotYet},
		{notFound, "RoleDefinitionDoesNotExist", "The specified role definition with ID '1' does not exist.", cloud.NotYet},
		{notFound, "ParentResourceNotFound", "Failed to perform 'write' on resource(s).", cloud.NotYet},
		{conflict, "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity", "Too many Federated Identity Credentials are written concurrently.", cloud.NotYet},
		{conflict, "ResourceGroupBeingDeleted", "The resource group 'a' is in deprovisioning state.", cloud.NotYet},
		{http.StatusBadRequest, "RoleDefinitionHasAssignments", "There are existing role assignments referencing role.", cloud.NotYet},
		{conflict, "anotherOperationInProgress", "Another operation on this or dependent resource is in progress.", cloud.NotYet},
		{conflict, "Conflict", "Another operation is in progress on the resource.", cloud.NotYet},
		{conflict, "Conflict", "The resource is being updated by another request.", cloud.NotYet},
		{conflict, "Conflict", "Issuer and subject combination already exists for this Managed Identity.", cloud.Refused},
		{conflict, "Conflict", "The operation is not allowed in the resource's current state.", cloud.Refused},
		{conflict, "Conflict", "", cloud.Refused},
		{conflict, "ScopeLocked", "The scope '/subscriptions/1' cannot perform write operation because following scope(s) are locked: '/subscriptions/1'. " +
			"Please remove the lock and try again.", cloud.Refused},
		{http.StatusForbidden, "RequestDisallowedByPolicy", "Resource 'a' was disallowed by policy. Reasons: 'Mandatory tags must be applied.'.", cloud.Refused},
		{http.StatusForbidden, "AuthorizationFailed", "The client '1' does not have authorization to perform action.", cloud.Refused},
		{conflict, "RoleAssignmentExists", "The role assignment already exists.", cloud.Accepted},
	} {
		err := explain("a", runtime.NewResponseError(answered(tt.status, fmt.Sprintf(`{"error":{"code":%q,"message":%q}}`, tt.code, tt.text))))
		if got, _ := Answer(err); got != tt.means {
			t.Errorf("%s: %s: %v, want %v", tt.code, tt.text, got, tt.means)
		}
		if e, is := errors.AsType[*Error](err); (is && e.Problem == Disallowed) != (tt.code == "RequestDisallowedByPolicy") {
			t.Errorf("%s: %v", tt.code, err)
		}
	}
}
