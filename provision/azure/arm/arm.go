// Package arm calls Azure Resource Manager for one subscription, with the pipeline of Azure's SDK. It promises that every call ends,
// that a call which Azure throttles, or which fails on the way, is made again as Azure asks, and that an error is one sentence that
// names the call by the permission that it needs. What the calls are made for is not known here.
package arm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azarm "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

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
	pollEvery    = 5 * time.Second // how often is asked what Azure does in its own time, where it does not say
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

// Client calls Azure Resource Manager. Its methods may be called concurrently.
type Client struct {
	Subscription string    // ID
	API          cloud.API // what it tells of waits, and how long changes may take to show

	to *azarm.Client
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
	to, err := azarm.NewClient("keypost", "v1.0.0", credential, options)
	if err != nil {
		return nil, err
	}
	return &Client{Subscription: o.Subscription, to: to,
		API: cloud.API{Name: "Azure", Replaces: true, Consistency: consistency, CallTime: callTime, OnWait: onWait}}, nil
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

// Kind is a kind of things: how the permissions begin that calls about it need, and after "@" the version of its API, such as
// "Microsoft.Resources/subscriptions/resourceGroups/@2021-04-01".
type Kind string

func (k Kind) split() (permissions, version string) {
	permissions, version, _ = strings.Cut(string(k), "@")
	return permissions, version
}

// At returns the place of a thing of the kind, by its ID, or of a list of them.
func (k Kind) At(id string) Place { return Place{Kind: k, ID: id} }

// Place is where a thing is, or a list.
type Place struct {
	Kind
	ID     string
	Filter string // of a list; empty for all
}

// Get reads a thing; nil if it is not there.
func Get[T any](ctx context.Context, c *Client, at Place) (*T, error) {
	var out T
	err := c.send(ctx, call{method: http.MethodGet, at: at, verb: "read"}, &out)
	if IsMissing(err) {
		return nil, nil
	}
	return &out, err
}

// List reads all pages of a list.
func List[T any](ctx context.Context, c *Client, at Place) (all []T, err error) {
	for k := (call{method: http.MethodGet, at: at, verb: "read"}); ; {
		var page struct {
			Value    []T
			NextLink string
		}
		if err := c.send(ctx, k, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Value...)
		if page.NextLink == "" {
			return all, nil
		}
		if k.next, err = runtime.EncodeQueryParams(page.NextLink); err != nil {
			return nil, err
		}
	}
}

// Put returns the call of a step that makes a thing, or replaces it. The answer is decoded into out, which may be nil.
func (c *Client) Put(at Place, body, out any) func(context.Context) (cloud.Answer, error) {
	return c.writing(call{method: http.MethodPut, at: at, verb: "write", body: body}, out)
}

// Patch returns the call of a step that changes a thing.
func (c *Client) Patch(at Place, body any) func(context.Context) (cloud.Answer, error) {
	return c.writing(call{method: http.MethodPatch, at: at, verb: "write", body: body}, nil)
}

// Delete returns the call of a step that deletes a thing: what is not there is deleted.
func (c *Client) Delete(at Place) func(context.Context) (cloud.Answer, error) {
	return c.writing(call{method: http.MethodDelete, at: at, verb: "delete"}, nil)
}

// call is one call of Azure's.
type call struct {
	method string
	at     Place
	verb   string // how the permission ends that it needs
	next   string // URL of a list's next page; empty for the first
	body   any    // nil for none
}

func (c *Client) writing(k call, out any) func(context.Context) (cloud.Answer, error) {
	return func(ctx context.Context) (cloud.Answer, error) {
		err := c.send(ctx, k, out)
		if k.method == http.MethodDelete && IsMissing(err) {
			return cloud.Accepted, nil
		}
		return Answer(err)
	}
}

// url returns where a call goes.
func (k call) url(endpoint string) string {
	if k.next != "" {
		return k.next
	}
	parts := strings.Split(k.at.ID, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	_, version := k.at.split()
	query := url.Values{"api-version": {version}}
	if k.at.Filter != "" {
		query.Set("$filter", k.at.Filter)
	}
	return endpoint + strings.Join(parts, "/") + "?" + strings.ReplaceAll(query.Encode(), "+", "%20")
}

// send makes a call, and decodes its answer into out, which may be nil. Its time, with all retries, is bounded.
func (c *Client) send(ctx context.Context, k call, out any) error {
	permissions, _ := k.at.split()
	name := permissions + k.verb
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	pending := c.API.Await(name)
	defer pending.Stop()
	return explain(name, c.try(policy.WithRetryOptions(ctx, retries(pending)), k, out))
}

func (c *Client) try(ctx context.Context, k call, out any) error {
	request, err := runtime.NewRequest(ctx, k.method, k.url(c.to.Endpoint()))
	if err != nil {
		return err
	}
	request.Raw().Header.Set("Accept", "application/json")
	if k.body != nil {
		if err := runtime.MarshalAsJSON(request, k.body); err != nil {
			return err
		}
	}
	answer, err := c.to.Pipeline().Do(request) //nolint:bodyclose // azcore has read and closed it (its policy for bodies)
	switch {
	case err != nil:
		return err
	case answer.StatusCode == http.StatusAccepted: // Azure does it in its own time
		poller, err := runtime.NewPoller[any](answer, c.to.Pipeline(), nil)
		if err != nil {
			return err
		}
		_, err = poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: pollEvery})
		return err
	case !runtime.HasStatusCode(answer, http.StatusOK, http.StatusCreated, http.StatusNoContent):
		return runtime.NewResponseError(answer)
	case out == nil:
		return nil
	}
	return runtime.UnmarshalAsJSON(answer, out)
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

// Tenant returns the ID of the subscription's tenant; empty if the caller may not read the subscription.
func (c *Client) Tenant(ctx context.Context) (string, error) {
	const subscriptions Kind = "Microsoft.Resources/subscriptions/@2022-12-01"
	found, err := Get[struct{ TenantID string }](ctx, c, subscriptions.At("/subscriptions/"+c.Subscription))
	switch {
	case IsDenied(err):
		return "", nil
	case HasCode(err, "SubscriptionNotFound", "InvalidSubscriptionId"):
		return "", &Error{Problem: NoSubscription, Err: err}
	case err != nil || found == nil:
		return "", err
	}
	return found.TenantID, nil
}

var guidForm = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

// IsGUID reports whether s has the form of the IDs of subscriptions, tenants, clients and principals.
func IsGUID(s string) bool { return guidForm.MatchString(s) }
