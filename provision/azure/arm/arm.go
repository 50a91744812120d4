// Package arm calls Azure Resource Manager for one subscription, with the clients of Azure's SDK. It promises that every call and every
// list ends, that one that may go well later is made again as Azure asks, that Azure's rates for federated credentials are kept, and
// that an error is one sentence that names the call by the permission that it needs. What the calls are made for is not known here.
package arm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
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
	Transport  Transport              // nil for the usual one
	Credential azcore.TokenCredential // nil for that of the SDK's usual chain
	Unpaced    bool                   // do not keep to the rate of federated credentials unasked, but as the answers say: for an emulator
}

// Transport sends requests, as an [http.Client] does.
type Transport interface {
	Do(*http.Request) (*http.Response, error)
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

	API           cloud.API // what it tells of waits, and how long changes may take to show
	Writes, Lists *Pace     // of federated credentials

	plain     *azarm.Client
	providers *armresources.ProvidersClient
	slots     chan struct{} // holds an element for each call that is under way
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
	endpoint, err := url.Parse(config.Services[azcloud.ResourceManager].Endpoint)
	if err != nil {
		return nil, err
	}
	core := policy.ClientOptions{Cloud: config, Transport: bounded{o.Transport}}
	if o.Transport == nil {
		core.Transport = bounded{usualTransport()}
	}
	credential := o.Credential
	if credential == nil {
		if err := checkFiles(os.Getenv); err != nil {
			return nil, problem(NoCredentials, "read Azure's credentials: %w", err)
		}
		credential, err = azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: core, TenantID: o.Tenant})
		if err != nil {
			return nil, problem(NoCredentials, "read Azure's credentials: %w", err)
		}
	}
	// The SDK would register a provider by itself; whatever is changed in a subscription is in the plan.
	options := &azarm.ClientOptions{ClientOptions: core, DisableRPRegistration: true}
	options.Transport = guarded{core.Transport, endpoint.Hostname()} // credentials have Authorization of their own, as Azure Arc's
	c := &Client{
		Subscription: o.Subscription, slots: make(chan struct{}, Parallel),
		API:    cloud.API{Name: "Azure", Consistency: consistency, CallTime: callTime, OnWait: onWait},
		Writes: newPace(credentialPause, subscriptionPause), Lists: newPace(0, listPause),
	}
	if o.Unpaced {
		c.Writes, c.Lists = newPace(0, 0), newPace(0, 0)
	}
	var errs [9]error
	c.plain, errs[0] = azarm.NewClient("keypost", "v0.0.0", credential, options)
	c.Groups, errs[1] = armresources.NewResourceGroupsClient(o.Subscription, credential, options)
	c.providers, errs[2] = armresources.NewProvidersClient(o.Subscription, credential, options)
	c.Resources, errs[3] = armresources.NewClient(o.Subscription, credential, options)
	c.Identities, errs[4] = armmsi.NewUserAssignedIdentitiesClient(o.Subscription, credential, options)
	c.Credentials, errs[5] = armmsi.NewFederatedIdentityCredentialsClient(o.Subscription, credential, options)
	c.Definitions, errs[6] = armauthorization.NewRoleDefinitionsClient(credential, options)
	c.Assignments, errs[7] = armauthorization.NewRoleAssignmentsClient(o.Subscription, credential, options)
	c.Tags, errs[8] = armresources.NewTagsClient(o.Subscription, credential, options)
	return c, errors.Join(errs[:]...)
}

// checkFiles returns an error for a variable of Azure's that is to name a file and names none that can be opened. The SDK's error would
// quote it, and who mistook the variable has a private key or a token in it.
func checkFiles(getenv func(string) string) error {
	for _, name := range []string{"AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE"} {
		path := getenv(name)
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s names no file that is there; it takes the path of a file and not what is in it, and is not shown here as it may be a secret", name)
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Send makes one call, by the name of the permission that it needs. Its time, with all retries, is bounded.
func Send[T any](ctx context.Context, c *Client, name string, call func(context.Context) (T, error)) (T, error) {
	var none T
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	defer func() { <-c.slots }()
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
		MaxRetries: 10, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: longestPause, TryTimeout: attemptTime,
		ShouldRetry: func(r *http.Response, err error) bool {
			_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
			if untrusted || errors.Is(err, errTooLong) || errors.Is(err, errListTooLong) || errors.Is(err, errElsewhere) || err == nil && !transient(r.StatusCode) {
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
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
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

// All returns the items of all pages, as state makes them. A page without a list, or with an item that is null, is an error: what
// stands between here and Azure may answer {}, and who took that for an empty list would delete or write over what is there. So is a
// list that does not end in pages, bytes or time.
func All[P, V, T any](ctx context.Context, p Pages[P], items func(P) []*V, state func(V) T) ([]T, error) {
	var list []T
	bounded, cancel := context.WithTimeout(context.WithValue(ctx, listKey{}, &listBytes{listLimit}), listTime)
	defer cancel()
	for n := 0; p.pager.More(); n++ {
		if n == pageLimit {
			return nil, fmt.Errorf("%s: the list has more than %d pages, so it does not end", p.name, pageLimit)
		}
		page, err := Send(bounded, p.client, p.name, p.pager.NextPage)
		if err != nil && bounded.Err() != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("%s: the list has not ended after %v, on page %d: see what is between here and Azure", p.name, listTime, n+1)
		}
		if err != nil {
			return nil, err
		}
		values := items(page)
		if values == nil || slices.Contains(values, nil) {
			return nil, fmt.Errorf("%s: the answer is not a list of Azure's: see what is between here and Azure", p.name)
		}
		for _, v := range values {
			list = append(list, state(*v))
		}
	}
	return list, nil
}

// Tenant returns the ID of the subscription's tenant; empty if the caller may not read the subscription.
func (c *Client) Tenant(ctx context.Context) (string, error) {
	id, err := Send(ctx, c, "Microsoft.Resources/subscriptions/read", func(ctx context.Context) (string, error) {
		req, err := runtime.NewRequest(ctx, http.MethodGet, runtime.JoinPaths(c.plain.Endpoint(), "/subscriptions/", url.PathEscape(c.Subscription)))
		if err != nil {
			return "", err
		}
		req.Raw().URL.RawQuery = "api-version=2022-12-01"
		r, err := c.plain.Pipeline().Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = r.Body.Close() }()
		if !runtime.HasStatusCode(r, http.StatusOK) {
			return "", runtime.NewResponseError(r)
		}
		var found struct {
			TenantID string `json:"tenantId"`
		}
		if err = runtime.UnmarshalAsJSON(r, &found); err == nil && !IsGUID(found.TenantID) {
			err = fmt.Errorf("the answer names the tenant %q, which is no tenant's ID: see what is between here and Azure", found.TenantID)
		}
		return found.TenantID, err
	})
	switch {
	case IsDenied(err):
		return "", nil
	case HasCode(err, "SubscriptionNotFound", "InvalidSubscriptionId"):
		return "", &Error{Problem: NoSubscription, Err: err}
	}
	return id, err
}

// CheckRegistered returns an error unless the subscription has registered the provider of managed identities. Who may not ask is
// told when the first one is made.
func (c *Client) CheckRegistered(ctx context.Context) error {
	const namespace = "Microsoft.ManagedIdentity"
	p, err := Send(ctx, c, "Microsoft.Resources/subscriptions/providers/read", func(ctx context.Context) (armresources.ProvidersClientGetResponse, error) {
		return c.providers.Get(ctx, namespace, nil)
	})
	if err != nil {
		if IsDenied(err) {
			return nil
		}
		return err
	}
	if state := Deref(p.RegistrationState); strings.EqualFold(state, "NotRegistered") || strings.EqualFold(state, "Unregistered") {
		return problem(Unregistered, "subscription %s has not registered %s, without which it has no managed identities", c.Subscription, namespace)
	}
	return nil
}
