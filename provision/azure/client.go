package azure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"

	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

const (
	parallelCalls = 20 // under way at once, most of them reads
	callTime      = 5 * time.Minute
	attemptTime   = 30 * time.Second
	consistency   = 4 * time.Minute // what ccoctl waits for a new identity to be known everywhere (OCPBUGS-17719)
)

// The rate at which Azure takes writes of federated credentials, of one identity and of a subscription, and lists of them
// (https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations).
const (
	credentialPause   = 4200 * time.Millisecond // and a little more, since requests do not arrive as they are sent
	subscriptionPause = 525 * time.Millisecond
	listPause         = 210 * time.Millisecond
)

// The clouds, by the names that Azure's tools have for them.
const (
	PublicCloud     = "AzurePublicCloud"
	GovernmentCloud = "AzureUSGovernment"
	ChinaCloud      = "AzureChinaCloud"
)

// Endpoint says where Azure is.
type Endpoint struct {
	Cloud     string    // one of the clouds; empty for the first
	Transport Transport // nil for the usual one
	Unpaced   bool      // do not keep to the rate of federated credentials unasked, but as the answers say: for an emulator
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

// wait is a call of Azure, or a change there, that takes long.
type wait = cloud.Wait

// client calls Azure Resource Manager for one subscription.
type client struct {
	subscription string
	plain        *arm.Client
	groups       *armresources.ResourceGroupsClient
	providers    *armresources.ProvidersClient
	resources    *armresources.Client
	identities   *armmsi.UserAssignedIdentitiesClient
	credentials  *armmsi.FederatedIdentityCredentialsClient
	definitions  *armauthorization.RoleDefinitionsClient
	assignments  *armauthorization.RoleAssignmentsClient
	api          cloud.API
	slots        chan struct{} // holds an element for each call that is under way
	pace, lists  *pace

	mu   sync.Mutex
	made map[string]identityState // by name in lower case: as Azure last showed it
	role map[string]string        // by name in lower case: the IDs of roles
	bare map[string]bool          // by kind and name in lower case: identities made by this run, on which nothing hangs yet
}

// open returns a client with the credentials of the SDK's usual chain: AZURE_CLIENT_ID …, workload identity, managed identity,
// az and azd. It makes no call.
func open(o Options, onWait func(wait)) (*client, error) {
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	core := policy.ClientOptions{Cloud: config, Transport: bounded{o.Transport}}
	if o.Transport == nil {
		core.Transport = bounded{usualTransport()}
	}
	credential, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: core, TenantID: o.Tenant})
	if err != nil {
		return nil, problem(NoCredentials, "read Azure's credentials: %w", err)
	}
	// The SDK would register a provider by itself; whatever is changed in a subscription is in the plan.
	options := &arm.ClientOptions{ClientOptions: core, DisableRPRegistration: true}
	c := &client{
		subscription: o.Subscription, slots: make(chan struct{}, parallelCalls), made: map[string]identityState{}, role: map[string]string{}, bare: map[string]bool{},
		api:   cloud.API{Name: "Azure", Consistency: consistency, CallTime: callTime, OnWait: onWait},
		pace:  &pace{each: credentialPause, all: subscriptionPause, next: map[string]time.Time{}},
		lists: &pace{all: listPause, next: map[string]time.Time{}},
	}
	if o.Unpaced {
		c.pace.each, c.pace.all, c.lists.all = 0, 0, 0
	}
	var errs [8]error
	c.plain, errs[0] = arm.NewClient("keypost", "v0.0.0", credential, options)
	c.groups, errs[1] = armresources.NewResourceGroupsClient(o.Subscription, credential, options)
	c.providers, errs[2] = armresources.NewProvidersClient(o.Subscription, credential, options)
	c.resources, errs[3] = armresources.NewClient(o.Subscription, credential, options)
	c.identities, errs[4] = armmsi.NewUserAssignedIdentitiesClient(o.Subscription, credential, options)
	c.credentials, errs[5] = armmsi.NewFederatedIdentityCredentialsClient(o.Subscription, credential, options)
	c.definitions, errs[6] = armauthorization.NewRoleDefinitionsClient(credential, options)
	c.assignments, errs[7] = armauthorization.NewRoleAssignmentsClient(o.Subscription, credential, options)
	return c, errors.Join(errs[:]...)
}

// send makes one call, by the name of the permission that it needs. Its time, with all retries, is bounded.
func send[T any](ctx context.Context, c *client, name string, call func(context.Context) (T, error)) (T, error) {
	var none T
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	defer func() { <-c.slots }()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	pending := c.api.Await(name)
	defer pending.Stop()
	out, err := call(policy.WithRetryOptions(ctx, retries(pending)))
	return out, explain(name, err)
}

// retries are those of one call: as Azure asks with Retry-After, else later and later.
func retries(pending *cloud.Pending) policy.RetryOptions {
	return policy.RetryOptions{
		MaxRetries: 10, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: time.Minute, TryTimeout: attemptTime,
		ShouldRetry: func(r *http.Response, err error) bool {
			_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
			if untrusted || errors.Is(err, errTooLong) || err == nil && !transient(r.StatusCode) {
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

// pages are those of a list.
type pages[P any] struct {
	client *client
	name   string // as in send
	pager  *runtime.Pager[P]
}

// all returns the items of all pages.
func all[P, T any](ctx context.Context, p pages[P], items func(P) []T) ([]T, error) {
	var list []T
	for n := 0; p.pager.More(); n++ {
		if n == pageLimit {
			return nil, fmt.Errorf("%s: the list has more than %d pages, so it does not end", p.name, pageLimit)
		}
		page, err := send(ctx, p.client, p.name, p.pager.NextPage)
		if err != nil {
			return nil, err
		}
		list = append(list, items(page)...)
	}
	return list, nil
}

// tenant returns the ID of the subscription's tenant; empty if the caller may not read the subscription.
func (c *client) tenant(ctx context.Context) (string, error) {
	id, err := send(ctx, c, "Microsoft.Resources/subscriptions/read", func(ctx context.Context) (string, error) {
		req, err := runtime.NewRequest(ctx, http.MethodGet, runtime.JoinPaths(c.plain.Endpoint(), "/subscriptions/", url.PathEscape(c.subscription)))
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
		err = runtime.UnmarshalAsJSON(r, &found)
		return found.TenantID, err
	})
	switch {
	case isDenied(err):
		return "", nil
	case hasCode(err, "SubscriptionNotFound", "InvalidSubscriptionId"):
		return "", &Error{Problem: WrongTenant, Err: err}
	}
	return id, err
}

// registered returns an error unless the subscription has registered the provider of managed identities. Who may not ask is
// told when the first one is made.
func (c *client) registered(ctx context.Context) error {
	const namespace = "Microsoft.ManagedIdentity"
	p, err := send(ctx, c, "Microsoft.Resources/subscriptions/providers/read", func(ctx context.Context) (armresources.ProvidersClientGetResponse, error) {
		return c.providers.Get(ctx, namespace, nil)
	})
	if err != nil {
		if isDenied(err) {
			return nil
		}
		return err
	}
	if state := deref(p.RegistrationState); strings.EqualFold(state, "NotRegistered") || strings.EqualFold(state, "Unregistered") {
		return problem(Unregistered, "subscription %s has not registered %s, without which it has no managed identities", c.subscription, namespace)
	}
	return nil
}

// stage returns the action that makes a change, as [cloud.API.Stage] does. A PUT replaces what is there without a word, so that
// whatever is new is read before it is made, too. What the answers to all steps confirm is not read again.
func (c *client) stage(change plan.Change, steps []cloud.Step, read cloud.Remaining) plan.Stage {
	return stage(c.api, change, steps, read)
}

func stage(api cloud.API, change plan.Change, steps []cloud.Step, read cloud.Remaining) plan.Stage {
	verb := change.Verb
	change.Verb = plan.Update
	s := api.Stage(change, steps, confirmed(read))
	for i := range s {
		s[i].Verb = verb
	}
	return s
}

// confirmed returns the steps that read returns, and then none as soon as each of these was accepted.
func confirmed(read cloud.Remaining) cloud.Remaining {
	left := -1 // of the steps that were returned last; less than 0 for none yet
	return func(ctx context.Context) ([]cloud.Step, error) {
		if left == 0 {
			return nil, nil
		}
		steps, err := read(ctx)
		if err != nil {
			return nil, err
		}
		left = len(steps)
		for i, s := range steps {
			steps[i].Call = func(ctx context.Context) (cloud.Answer, error) {
				a, err := s.Call(ctx)
				if a == cloud.Accepted {
					left--
				}
				return a, err
			}
		}
		return steps, nil
	}
}

// pace keeps calls about federated credentials to a rate. The writes of one identity are made one after another by its caller.
type pace struct {
	each, all time.Duration // between two of one identity, and of the subscription

	mu   sync.Mutex
	free time.Time            // when the subscription's next may be made
	next map[string]time.Time // when an identity's may
}

// take waits until a call about an identity may be made.
func (p *pace) take(ctx context.Context, identity string) error {
	p.mu.Lock()
	own := p.next[identity]
	p.mu.Unlock()
	if err := until(ctx, own); err != nil {
		return err
	}
	p.mu.Lock()
	at := time.Now()
	if p.free.After(at) {
		at = p.free
	}
	p.free, p.next[identity] = at.Add(p.all), at.Add(p.each)
	p.mu.Unlock()
	return until(ctx, at)
}

func until(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(at)):
		return nil
	}
}

// known returns an identity as Azure last showed it; nil if it did not.
func (c *client) known(name string) *identityState {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, is := c.made[strings.ToLower(name)]; is {
		return &s
	}
	return nil
}

func (c *client) learn(s identityState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[strings.ToLower(s.name)] = s
}

// The kinds of what hangs on an identity.
const (
	hangsAssigned  = "assignments"
	hangsFederated = "credentials"
)

// learnNew records an identity that this run has just made, where a moment ago was none: what hangs on it need not be read,
// which for federated credentials Azure allows seldom.
func (c *client) learnNew(s identityState) {
	c.learn(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range []string{hangsAssigned, hangsFederated} {
		c.bare[kind+" "+strings.ToLower(s.name)] = true
	}
}

// isBare reports whether nothing of a kind hangs on an identity, as is known without reading; once, since then there is.
func (c *client) isBare(kind, identity string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := kind + " " + strings.ToLower(identity)
	bare := c.bare[key]
	delete(c.bare, key)
	return bare
}

// roleID returns the ID of a role by its name; empty if it is not known.
func (c *client) roleID(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.role[strings.ToLower(name)]
}

func (c *client) learnRole(name, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.role[strings.ToLower(name)] = id
}

// deref returns what a pointer of the SDK's points to.
func deref[T any](p *T) T {
	var none T
	if p == nil {
		return none
	}
	return *p
}

// values returns what pointers of the SDK's point to.
func values(list []*string) []string {
	var out []string
	for _, p := range list {
		out = append(out, deref(p))
	}
	return out
}

func tagMap(tags map[string]*string) map[string]string {
	out := map[string]string{}
	for k, v := range tags {
		out[k] = deref(v)
	}
	return out
}

func pointers(tags map[string]string) map[string]*string {
	out := map[string]*string{}
	for k, v := range tags {
		out[k] = &v
	}
	return out
}

// each calls f for every element of a list at once, as far as calls may be under way, and joins the errors.
func each[T, R any](list []T, f func(T) (R, error)) ([]R, error) {
	return cloud.Each(parallelCalls, list, f)
}
