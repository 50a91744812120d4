package fakeazure

import (
	"crypto/x509"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
	"github.com/keypost/keypost/test/fakecloud/issuerkeys"
)

// Options say what sort of tenant the server plays. The zero value is a friendly one: nothing lags, operations are done when
// they are first asked for, nothing is throttled, the caller may do everything.
type Options struct {
	Tenant       string // default 99999999-8888-7777-6666-555555555555
	Subscription string // default 11111111-2222-3333-4444-555555555555

	// Permissions are the actions that the caller may do, as "Microsoft.Authorization/*/read". nil: all.
	Permissions []string
	// Unregistered are the resource providers that the subscriptions have not registered, as "Microsoft.ManagedIdentity".
	Unregistered []string
	// VaryCase gives IDs back in varying letter case.
	VaryCase bool

	OperationPolls     int           // an operation is done only when it was asked for so often
	OperationDelay     time.Duration // and not before this time has passed
	IdentityDelay      time.Duration // a new identity cannot have federated credentials for this time, nor get tokens
	PrincipalDelay     time.Duration // nor be assigned a role, unless the assignment says that it is a service principal
	AuthorizationDelay time.Duration // reads of roles and of assignments see a change this much later; the use of a role too
	Latency            time.Duration // added to every call, in real time

	WritesPerSecond float64 // more writes of a subscription than this are throttled, after a burst of as many; 0: no limit
	// FederationRate times the documented rates of federated credentials are allowed; 0: no limit. 1 is as documented.
	FederationRate float64
	PageSize       int // the longest page of a list; default 100

	// Dial reaches issuers; its address is that of the URL, host:443. nil: issuers cannot be reached.
	Dial fakecloud.Dial
	// Roots are the CAs that Microsoft trusts. nil: none.
	Roots *x509.CertPool
	// Now is the clock of everything but Latency. default time.Now.
	Now func() time.Time
}

// Server is Resource Manager, Entra's token endpoint on one port. It is an http.Handler. A request
// for one of Microsoft's hosts finds only that service; any other host finds Resource Manager and the token endpoint.
type Server struct {
	URL string // where it listens, once it does

	options Options
	routes  []route
	keys    *issuerkeys.Cache
	to      http.RoundTripper // how Client reaches it

	fakecloud.Record

	mu      sync.Mutex
	history fakecloud.History[world]
	serial  int
	buckets map[string]*fakecloud.Bucket
	writing map[string]int     // writes of federated credentials under way, by identity
	tokens  map[string]session // by access token
}

// New makes a server that does not listen yet.
func New(o Options) *Server {
	o = withDefaults(o)
	keys := issuerkeys.New(o.Dial, o.Roots, o.Now)
	keys.Check = checkDiscovery
	return &Server{options: o, routes: routes(), keys: keys, to: http.DefaultTransport, history: fakecloud.NewHistory(world{definitions: builtIn()}),
		buckets: map[string]*fakecloud.Bucket{}, writing: map[string]int{},
		tokens: map[string]session{AccessToken: {principal: callerPrincipal(o), resource: managementResource}}}
}

func withDefaults(o Options) Options {
	if o.Tenant == "" {
		o.Tenant = "99999999-8888-7777-6666-555555555555"
	}
	if o.Subscription == "" {
		o.Subscription = "11111111-2222-3333-4444-555555555555"
	}
	if o.PageSize == 0 {
		o.PageSize = 100
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Start listens on a free port of 127.0.0.1 until the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := New(o)
	s.URL = fakecloud.Start(t, "fakeazure", s.Serve)
	return s
}

// StartMemory is Start without a network: nobody but its Client finds the server.
func StartMemory(t testing.TB, o Options) *Server {
	t.Helper()
	s := New(o)
	l := fakecloud.StartMemory(t, s.Serve)
	s.URL = "http://fakeazure.test"
	s.to = &http.Transport{DialContext: l.DialContext}
	return s
}

// Serve answers on l until l is closed.
func (s *Server) Serve(l net.Listener) error {
	return fakecloud.Serve(l, &http.Server{Handler: s}) //nolint:gosec // Serve sets the limit
}

// ServeTLS is Serve over HTTPS. The files are PEM.
func (s *Server) ServeTLS(l net.Listener, certificate, key string) error {
	return fakecloud.ServeTLS(l, &http.Server{Handler: s}, certificate, key) //nolint:gosec // ServeTLS sets the limit
}

// Client is an HTTP client that finds the server at every host, so that Microsoft's clients (policy.ClientOptions.Transport)
// need no other name resolution and no TLS. It follows no proxy and adds no credentials.
func (s *Server) Client() *http.Client { return fakecloud.ClientBy(s.to, s.URL, nil) }

// State is what the tenant holds now, whatever reads may see of it yet.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.present(s.options.Now())
	custom := map[string]Definition{}
	for name, d := range w.definitions {
		if !d.builtIn {
			custom[name] = d
		}
	}
	w.definitions = custom
	return w.state()
}

// Place puts a resource of any kind into a group that is there, as another program would; it returns its ID. It passes over
// what Resource Manager checks.
func (s *Server) Place(group, kind, name string) string {
	id := s.options.groupID(group) + "/providers/" + kind + "/" + name
	s.alter(func(w *world) {
		w.others = fakecloud.With(w.others, strings.ToLower(id), Other{ID: id, Name: name, Type: kind})
	})
	return id
}

// Join makes a principal a member of a group of Entra's, which is named by its own principal. Roles that are assigned to the
// group are the member's too.
func (s *Server) Join(group, member string) {
	s.alter(func(w *world) {
		w.members = fakecloud.With(w.members, group, append(w.members[group][:len(w.members[group]):len(w.members[group])], member))
	})
}

// Trust makes an identity with one federated credential, another one for other arguments. It passes over what Resource Manager
// checks: it is for tests that are only about tokens. It returns the client ID.
func (s *Server) Trust(issuer, subject, audience string) string {
	o := s.options
	home, name := o.groupID("trusted"), "trusted-"+guid(issuer, subject, audience)
	i := o.newIdentity(home, name, time.Time{})
	c := Credential{ID: i.ID + "/federatedIdentityCredentials/trusted", Name: "trusted", Identity: i.ID, Issuer: issuer, Subject: subject, Audiences: []string{audience}}
	s.alter(func(w *world) {
		w.groups = fakecloud.With(w.groups, strings.ToLower(home), Group{ID: home, Name: "trusted", Location: "centralus"})
		w.identities = fakecloud.With(w.identities, strings.ToLower(i.ID), i)
		w.credentials = fakecloud.With(w.credentials, strings.ToLower(c.ID), c)
	})
	return i.ClientID
}

func (s *Server) alter(f func(*world)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.options.Now()
	w := s.present(now)
	f(&w)
	s.commit(w, now)
}

// present is the tenant as writes see it. Operations whose time has come are done first.
func (s *Server) present(now time.Time) world {
	w := s.history.Present()
	if settled, changed := w.settled(now); changed {
		s.commit(settled, now)
		return settled
	}
	return w
}

func (s *Server) commit(w world, now time.Time) {
	s.history.Commit(w, now, s.options.AuthorizationDelay)
}

func (o Options) groupID(name string) string {
	return "/subscriptions/" + o.Subscription + "/resourceGroups/" + name
}
