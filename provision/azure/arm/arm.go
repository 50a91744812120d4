// Package arm calls Azure Resource Manager for one subscription, with the clients of Azure's SDK. It promises that every call ends,
// that a call which Azure throttles, or which fails on the way, is made again as Azure asks, and that an error is one sentence that
// names the call by the permission that it needs. What the calls are made for is not known here.
package arm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azarm "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"

	"github.com/keypost/keypost/provision/cloud"
)

// Parallel is how many calls are under way at once, most of them reads.
const Parallel = 20

const (
	callTime    = 5 * time.Minute
	attemptTime = 30 * time.Second
	// attempts are more than callTime allows: federated credentials are throttled for seconds at a time.
	attempts = 100
	// longestPause is between two attempts; where Azure asks for a longer one, the call ends.
	longestPause = time.Minute
	consistency  = 4 * time.Minute // what ccoctl waits for a new identity to be known everywhere (OCPBUGS-17719)
)

// The clouds, by the names that Azure's tools have for them.
const (
	PublicCloud     = "AzurePublicCloud"
	GovernmentCloud = "AzureUSGovernment"
	ChinaCloud      = "AzureChinaCloud"
)

// Endpoint says where Azure is.
type Endpoint struct {
	Cloud      string                 // one of the clouds; empty for the first
	Transport  policy.Transporter     // nil for the SDK's own
	Credential azcore.TokenCredential // nil for that of the SDK's usual chain
}

// config returns the endpoints of a cloud.
func (e Endpoint) config() (azcloud.Configuration, error) {
	switch e.Cloud {
	case "", PublicCloud:
		return azcloud.AzurePublic, nil
	case GovernmentCloud:
		return azcloud.AzureGovernment, nil
	case ChinaCloud:
		return azcloud.AzureChina, nil
	}
	return azcloud.Configuration{}, fmt.Errorf("the cloud %q is none of %s, %s and %s", e.Cloud, PublicCloud, GovernmentCloud, ChinaCloud)
}

// Client calls Azure Resource Manager. Its fields are the SDK's clients, which [Send] and [All] call; any goroutine may.
type Client struct {
	Subscription string // ID
	Groups       *armresources.ResourceGroupsClient
	Resources    *armresources.Client
	Tags         *armresources.TagsClient
	Identities   *armmsi.UserAssignedIdentitiesClient
	Credentials  *armmsi.FederatedIdentityCredentialsClient
	Definitions  *armauthorization.RoleDefinitionsClient
	Assignments  *armauthorization.RoleAssignmentsClient

	API cloud.API // what it tells of waits, and how long changes may take to show
}

// Account says as whom and for which subscription calls are made.
type Account struct {
	Endpoint
	Subscription string // ID
	Tenant       string // ID of the tenant of the credentials; empty for their own
}

// Open returns a client with the credentials of the SDK's usual chain: AZURE_CLIENT_ID …, workload identity, managed identity,
// az and azd. It makes no call.
func Open(o Account, onWait func(cloud.Wait)) (*Client, error) {
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	core := policy.ClientOptions{Cloud: config, Transport: o.Transport}
	credential := o.Credential
	if credential == nil {
		if err := checkFiles(os.Getenv); err != nil {
			return nil, Refuse(NoCredentials, "read Azure's credentials: %w", err)
		}
		credential, err = azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: core, TenantID: o.Tenant})
		if err != nil {
			return nil, Refuse(NoCredentials, "read Azure's credentials: %w", err)
		}
	}
	// The SDK would register a provider by itself; whatever is changed in a subscription is in the plan.
	options := &azarm.ClientOptions{ClientOptions: core, DisableRPRegistration: true}
	resources, err := armresources.NewClientFactory(o.Subscription, credential, options)
	if err != nil {
		return nil, err
	}
	msi, err := armmsi.NewClientFactory(o.Subscription, credential, options)
	if err != nil {
		return nil, err
	}
	roles, err := armauthorization.NewClientFactory(o.Subscription, credential, options)
	if err != nil {
		return nil, err
	}
	return &Client{
		Subscription: o.Subscription,
		Groups:       resources.NewResourceGroupsClient(), Resources: resources.NewClient(), Tags: resources.NewTagsClient(),
		Identities: msi.NewUserAssignedIdentitiesClient(), Credentials: msi.NewFederatedIdentityCredentialsClient(),
		Definitions: roles.NewRoleDefinitionsClient(), Assignments: roles.NewRoleAssignmentsClient(),
		API: cloud.API{Name: "Azure", Replaces: true, Consistency: consistency, CallTime: callTime, OnWait: onWait},
	}, nil
}

// checkFiles returns an error for a variable of Azure's that is to name a file and names none. The SDK's error would quote it, and
// who mistook the variable has a private key or a token in it.
func checkFiles(getenv func(string) string) error {
	for _, name := range []string{"AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE"} {
		path := getenv(name)
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s names no file that is there; it takes the path of a file, not its content, and is not shown here as it may be a secret", name)
		}
	}
	return nil
}

// Send makes one call, by the name of the permission that it needs. Its time, with all retries, is bounded.
func Send[T any](ctx context.Context, c *Client, name string, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	pending := c.API.Await(name)
	defer pending.Stop()
	out, err := call(policy.WithRetryOptions(ctx, retries(pending)))
	return out, explain(name, err)
}

// retries are those of one call: as Azure asks with Retry-After, else later and later.
func retries(pending *cloud.Pending) policy.RetryOptions {
	return policy.RetryOptions{
		MaxRetries: attempts, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: longestPause, TryTimeout: attemptTime,
		ShouldRetry: func(r *http.Response, err error) bool {
			_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
			if untrusted || err == nil && !transient(r.StatusCode) {
				return false
			}
			if err == nil {
				err = fmt.Errorf("HTTP status %s", r.Status)
			}
			pending.Because(errors.New(brief(err)))
			_, end := pending.Delay(0, err)
			return end == nil
		},
	}
}

// transient reports whether a status may be another one the next time.
func transient(status int) bool {
	return slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout}, status)
}

// Pages are those of a list.
type Pages[P any] struct {
	client *Client
	name   string // as in Send
	pager  *runtime.Pager[P]
}

// PagesOf returns the pages of a list, by the name of the permission that it needs.
func PagesOf[P any](c *Client, name string, pager *runtime.Pager[P]) Pages[P] {
	return Pages[P]{c, name, pager}
}

// All returns the items of all pages, as state makes them.
func All[P, V, T any](ctx context.Context, p Pages[P], items func(P) []*V, state func(V) T) ([]T, error) {
	var list []T
	for p.pager.More() {
		page, err := Send(ctx, p.client, p.name, p.pager.NextPage)
		if err != nil {
			return nil, err
		}
		for _, v := range items(page) {
			list = append(list, state(Deref(v)))
		}
	}
	return list, nil
}

// Tenant returns the ID of the subscription's tenant; empty if the caller may not read the subscription.
func (c *Client) Tenant(ctx context.Context) (string, error) {
	var answer *http.Response
	_, err := Send(ctx, c, "Microsoft.Resources/subscriptions/read", func(ctx context.Context) (armresources.ClientGetByIDResponse, error) {
		return c.Resources.GetByID(policy.WithCaptureResponse(ctx, &answer), "subscriptions/"+c.Subscription, "2022-12-01", nil)
	})
	switch {
	case IsDenied(err):
		return "", nil
	case HasCode(err, "SubscriptionNotFound", "InvalidSubscriptionId"):
		return "", &Error{Problem: NoSubscription, Err: err}
	case err != nil:
		return "", err
	}
	var found struct {
		TenantID string `json:"tenantId"`
	}
	err = runtime.UnmarshalAsJSON(answer, &found)
	return found.TenantID, err
}

var guidForm = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

// IsGUID reports whether s has the form of the IDs of subscriptions, tenants, clients and principals.
func IsGUID(s string) bool { return guidForm.MatchString(s) }

// Deref returns what a pointer of the SDK's points to.
func Deref[T any](p *T) T {
	var none T
	if p == nil {
		return none
	}
	return *p
}

// Values returns what pointers of the SDK's point to.
func Values(list []*string) []string {
	var out []string
	for _, p := range list {
		out = append(out, Deref(p))
	}
	return out
}

// Tags returns tags as the SDK has them.
func Tags(tags map[string]*string) map[string]string {
	out := map[string]string{}
	for k, v := range tags {
		out[k] = Deref(v)
	}
	return out
}

// Pointers returns tags as the SDK takes them.
func Pointers(tags map[string]string) map[string]*string {
	out := map[string]*string{}
	for k, v := range tags {
		out[k] = &v
	}
	return out
}
