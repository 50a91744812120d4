package fakeazure

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20))
	if err != nil {
		panic(http.ErrAbortHandler) // the client went away, or sent more than any call holds
	}
	rt, vars, known := s.find(r)
	c, fault := s.begin(rt, r, body)
	x := exchange{r: r, body: body, vars: vars, route: rt, known: known, fault: fault}
	leave, err := s.enter(x)
	fakecloud.Sleep(r.Context(), s.options.Latency+fault.Late)
	var a answer
	if err == nil {
		a, err = s.serve(x)
	}
	leave()
	var f *failure
	if err != nil && !errors.As(err, &f) {
		f = &failure{status: http.StatusInternalServerError, code: "InternalServerError", message: err.Error()}
	}
	code := ""
	if f != nil {
		code = f.name()
	}
	s.End(c, code)
	if fault.Lost {
		panic(http.ErrAbortHandler) // net/http's own way to cut a connection
	}
	id := guid("request", time.Now().String())
	w.Header().Set("X-Ms-Request-Id", id)
	w.Header().Set("X-Ms-Correlation-Request-Id", id)
	if f != nil {
		f.header(w.Header())
		a = answer{status: f.status, body: f.body(s.options.Now(), id)}
	}
	s.send(w, a, c.N)
}

// send writes an answer; n decides about the letter case of its IDs.
func (s *Server) send(w http.ResponseWriter, a answer, n int) {
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	b, raw := a.body.([]byte)
	if a.body != nil && !raw {
		var err error
		if b, err = json.Marshal(a.body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		var plain any
		if s.options.VaryCase && json.Unmarshal(b, &plain) == nil {
			b, _ = json.Marshal(varied(plain, n)) // it was JSON
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(b) // a failure here is a client that is gone
}

// Microsoft's own hosts, of every cloud.
var (
	managementHosts = []string{"management.azure.com", "management.usgovcloudapi.net", "management.chinacloudapi.cn"}
	loginHosts      = []string{"login.microsoftonline.com", "login.microsoft.com", "login.microsoftonline.us", "login.chinacloudapi.cn",
		"login.partner.microsoftonline.cn"}
)

// find gives the route of a request. Only the service of one of Microsoft's hosts is there.
func (s *Server) find(r *http.Request) (route, map[string]string, bool) {
	host := fakecloud.Host(r)
	for _, rt := range s.routes {
		if rt.service == fakecloud.Login && slices.Contains(managementHosts, host) || rt.service != fakecloud.Login && slices.Contains(loginHosts, host) {
			continue
		}
		if vars, ok := rt.match(r.Method, strings.TrimSuffix(r.URL.Path, "/")); ok {
			return rt, vars, true
		}
	}
	return route{}, nil, false
}

// begin records a call and asks what is to go wrong with it.
func (s *Server) begin(rt route, r *http.Request, body []byte) (*Call, Fault) {
	c := Call{Service: rt.service, Action: rt.action, Permission: rt.permission, Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(),
		Write: rt.write && r.Method != http.MethodGet}
	if !rt.open {
		c.Body = string(body)
	}
	kept, fault := s.Begin(c)
	if fault.Throttle > 0 {
		fault.Refusal = throttled(rt, s.options.Subscription, fault.Throttle)
	}
	return kept, fault
}

// exchange is one call on its way through the checks that come before any method.
type exchange struct {
	r     *http.Request
	body  []byte
	vars  map[string]string
	route route
	known bool
	fault Fault
}

// enter marks a write of a federated credential as under way until leave is called. Two at a time for one identity cannot be
// (https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations).
func (s *Server) enter(x exchange) (leave func(), err error) {
	leave = func() {}
	if !x.route.write || x.route.limit == "" || x.fault.Refusal != nil {
		return leave, nil
	}
	id := strings.ToLower("/subscriptions/" + x.vars["subscription"] + "/resourcegroups/" + x.vars["group"] +
		"/providers/microsoft.managedidentity/userassignedidentities/" + x.vars["identity"])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing[id] > 0 {
		return leave, conflict("ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity",
			"Too many Federated Identity Credentials are written concurrently for the managed identity '%s'. Concurrent Federated Identity "+
				"Credentials writes under the same managed identity are not supported.", id)
	}
	s.writing[id]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.writing[id]--
	}, nil
}

// serve makes the checks that all calls share and then does what is asked for.
func (s *Server) serve(x exchange) (answer, error) {
	if x.fault.Refusal != nil {
		return answer{}, x.fault.Refusal
	}
	if !x.known {
		return answer{}, notFound("NotFound", "No HTTP resource was found that matches the request URI '%s'.", x.r.URL.Path)
	}
	q := &request{Options: s.options, vars: x.vars, path: x.r.URL.Path, query: x.r.URL.Query(), header: x.r.Header, base: base(x.r),
		body: x.body, now: s.options.Now()}
	if err := s.checkVersion(x.route, q.query); err != nil {
		return answer{}, err
	}
	if !x.route.open {
		var err error
		if q.who, err = s.authenticate(x.r, q.now); err != nil {
			return answer{}, err
		}
		if err := s.admit(x.route, q); err != nil {
			return answer{}, err
		}
	}
	if x.route.slow != nil {
		return x.route.slow(x.r.Context(), s, q)
	}
	return s.transact(x.route, q)
}

// base is where a request was sent to, as its client sees it: Microsoft's hosts are asked by HTTPS, whatever led here.
func base(r *http.Request) string {
	if r.TLS == nil && !fakecloud.Among(Hosts(), fakecloud.Host(r)) {
		return "http://" + r.Host
	}
	return "https://" + r.Host
}

// checkVersion asks for the version of the API, as Resource Manager does.
func (s *Server) checkVersion(rt route, query url.Values) error {
	version := query.Get("api-version")
	if rt.versions == "" {
		return nil
	}
	if version == "" {
		return badRequest("MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	if !slices.Contains(strings.Fields(rt.versions), version) {
		return badRequest("NoRegisteredProviderFound", "No registered resource provider found for location 'global' and API version '%s' for type "+
			"'%s'. The supported api-versions are '%s'.", version, rt.permission, strings.Join(strings.Fields(rt.versions), ", "))
	}
	return nil
}

// admit checks what does not depend on the method: that the subscription is there, its provider registered, the caller
// allowed, and that there were not too many calls.
func (s *Server) admit(rt route, q *request) error {
	subscription := q.subscription()
	if subscription != "" && !q.has(subscription) {
		return notFound("SubscriptionNotFound", "The subscription '%s' could not be found.", subscription)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.present(q.now)
	if err := q.authorize(w, rt); err != nil {
		return err
	}
	if q.unregistered(rt.service) && rt.write {
		return conflict("MissingSubscriptionRegistration", "The subscription is not registered to use namespace '%s'. See "+
			"https://aka.ms/rps-not-found for how to register subscriptions.", rt.service)
	}
	if rt.write && rt.action != "GetOperation" {
		if after, ok := s.bucket("writes of "+strings.ToLower(subscription), fakecloud.Bucket{Rate: q.WritesPerSecond}).Take(q.now); !ok {
			return throttled(rt, subscription, after)
		}
	}
	return s.limit(rt, q)
}

// rates are how many calls of federated credentials a second a tenant, a subscription and an identity take
// (https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations).
var rates = map[string][3]float64{"write": {10, 2, 0.25}, "get": {30, 10, 0.5}, "list": {15, 5, 0.25}, "delete": {10, 2, 0.25}}

func (s *Server) limit(rt route, q *request) error {
	allowed, limited := rates[rt.limit]
	if !limited || q.FederationRate == 0 {
		return nil
	}
	of := [3]string{"", q.vars["subscription"], q.vars["subscription"] + "/" + q.vars["group"] + "/" + q.vars["identity"]}
	for i, name := range slices.Backward(of[:]) { // the narrowest first: what it refuses is not counted by the others
		if after, ok := s.bucket(strings.ToLower(rt.limit+" of "+name), fakecloud.Bucket{Rate: allowed[i] * q.FederationRate}).Take(q.now); !ok {
			return throttled(rt, q.vars["subscription"], after)
		}
	}
	return nil
}

// bucket is the one of a name, which is as b at first.
func (s *Server) bucket(name string, b fakecloud.Bucket) *fakecloud.Bucket {
	if s.buckets[name] == nil {
		s.buckets[name] = &b
	}
	return s.buckets[name]
}

// transact runs a method on the tenant as it may see it, one at a time.
func (s *Server) transact(rt route, q *request) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	q.serial = s.serial
	q.world = s.present(q.now)
	q.seen = s.history.View(q.now, q.AuthorizationDelay)
	a, err := rt.do(q)
	if err == nil && rt.write {
		s.commit(q.world, q.now)
	}
	return a, err
}
