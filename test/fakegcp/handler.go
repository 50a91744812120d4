package fakegcp

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
		return // the client went away, or sent more than any call holds
	}
	rt, vars, known := s.find(r)
	c, fault := s.begin(rt, r, body)
	fakecloud.Sleep(r.Context(), fault.Late)

	result, err := s.serve(exchange{r: r, body: body, vars: vars, route: rt, known: known, fault: fault})
	var f *failure
	if err != nil && !errors.As(err, &f) {
		f = &failure{status: http.StatusInternalServerError, code: "INTERNAL", message: err.Error()}
	}
	code := ""
	if f != nil {
		code = f.code
	}
	s.End(c, code)
	if fault.Lost {
		panic(http.ErrAbortHandler) // net/http's own way to cut a connection
	}
	if f != nil {
		send(w, f.status, f.body())
		return
	}
	send(w, http.StatusOK, result)
}

func send(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a failure here is a client that is gone
}

// find gives the route of a request. Only the service of one of Google's hosts is there.
func (s *Server) find(r *http.Request) (route, map[string]string, bool) {
	service, google := strings.CutSuffix(fakecloud.Host(r), ".googleapis.com")
	for _, rt := range s.routes {
		if google && rt.service != service {
			continue
		}
		if vars, ok := rt.match(r.Method, r.URL.EscapedPath()); ok {
			return rt, vars, true
		}
	}
	return route{}, nil, false
}

// begin records a call and asks what is to go wrong with it.
func (s *Server) begin(rt route, r *http.Request, body []byte) (*Call, Fault) {
	c := Call{Service: rt.service, Action: rt.action, Permission: rt.permission, Method: r.Method, Path: r.URL.Path,
		Query: r.URL.Query(), Write: rt.write && r.Method != http.MethodGet}
	if !rt.open {
		c.Body = string(body)
	}
	return s.Begin(c)
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

// serve makes the checks that all calls share and then does what is asked for.
func (s *Server) serve(x exchange) (any, error) {
	if x.fault.Refusal != nil {
		return nil, x.fault.Refusal
	}
	if !x.known {
		return nil, notFound("The requested URL %s was not found on this server.", x.r.URL.Path)
	}
	q := &request{Options: s.options, path: x.r.URL.Path, vars: x.vars, query: x.r.URL.Query(), body: x.body, now: s.options.Now()}
	if err := checkQuery(x.route, q.query); err != nil {
		return nil, err
	}
	if !x.route.open {
		var err error
		if q.who, err = s.authenticate(x.r, q.now); err != nil {
			return nil, err
		}
		if err := q.authorize(x.route); err != nil {
			return nil, err
		}
	}
	if x.route.write && x.r.Method != http.MethodGet {
		if err := s.spend(x.route, q.now); err != nil {
			return nil, err
		}
	}
	if x.route.slow != nil {
		return x.route.slow(x.r.Context(), s, q)
	}
	return s.transact(x.route, q)
}

// checkQuery refuses what a method does not take, but for what all of them do.
func checkQuery(rt route, query url.Values) error {
	for name := range query {
		if !slices.Contains(append(strings.Fields(rt.query), "alt", "prettyPrint", "fields", "key", "$alt"), name) {
			return invalid("Invalid JSON payload received. Unknown name %q: Cannot bind query parameter. Field '%s' could not be found in request message.", name, name)
		}
	}
	return nil
}

func (s *Server) spend(rt route, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after, ok := s.writes.Take(now); !ok {
		return s.options.quota(rt.service, after)
	}
	if !strings.HasPrefix(rt.permission, "iam.workloadIdentityPool") {
		return nil
	}
	if after, ok := s.federation.Take(now); !ok {
		return s.options.quota(rt.service, after)
	}
	return nil
}

// transact runs a method on the project as it may see it, one at a time.
func (s *Server) transact(rt route, q *request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	q.serial = s.serial
	if !rt.write {
		q.world = s.view(q.now)
		return rt.do(q)
	}
	q.world = s.present(q.now)
	result, err := rt.do(q)
	if err == nil {
		s.commit(q.world, q.now)
	}
	return result, err
}
