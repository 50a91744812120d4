package fakeaws

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		return // the client went away, or sent more than any call holds
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		http.Error(w, "not a form", http.StatusBadRequest)
		return
	}
	action := form.Get("Action")
	op, known := operations()[action]
	c, fault := s.Begin(Call{Service: op.service(), Action: action, Params: flat(form), Write: op.write})
	fakecloud.Sleep(r.Context(), s.options.Latency+fault.Late)

	known = known && op.version == form.Get("Version")
	result, err := s.serve(exchange{r: r, body: body, form: form, op: op, known: known, fault: fault})
	var f *failure
	if err != nil && !errors.As(err, &f) {
		f = &failure{http.StatusInternalServerError, "ServiceFailure", err.Error()}
	}
	code := ""
	if f != nil {
		code = f.code
	}
	s.End(c, code)
	if fault.Lost {
		panic(http.ErrAbortHandler) // net/http's own way to cut a connection
	}
	p := reply{status: http.StatusOK, id: fmt.Sprintf("fa4e0000-0000-4000-8000-%012d", c.N)}
	if f != nil {
		p.status = f.status
		p.body, err = refusal(form.Get("Version"), p.id, f)
	} else {
		p.body, err = answer(op, action, p.id, result)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	p.send(w, r)
}

func flat(form url.Values) map[string]string {
	m := map[string]string{}
	for k := range maps.Keys(form) {
		m[k] = form.Get(k)
	}
	delete(m, "WebIdentityToken")
	return m
}

// exchange is one call on its way through the checks that come before any operation.
type exchange struct {
	r     *http.Request
	body  []byte
	form  url.Values
	op    operation
	known bool
	fault Fault
}

// serve makes the checks that all operations share and then calls the operation.
func (s *Server) serve(x exchange) (any, error) {
	if x.fault.Refusal != nil {
		return nil, x.fault.Refusal
	}
	if !x.known {
		return nil, fail(http.StatusBadRequest, "InvalidAction", "Could not find operation %s for version %s",
			x.form.Get("Action"), x.form.Get("Version"))
	}
	now := s.options.Now()
	who, err := s.authenticate(x, now)
	if err != nil {
		return nil, err
	}
	if x.op.write && !s.spend(now) {
		return nil, Throttle().Refusal
	}
	in, err := readParams(x.op, x.form)
	if err != nil {
		return nil, err
	}
	if err := s.authorize(who, x.form.Get("Action"), in); err != nil {
		return nil, err
	}
	if x.op.slow != nil {
		return x.op.slow(x.r.Context(), s, in, now)
	}
	return s.transact(x.op, &request{Options: s.options, in: in, now: now, who: who})
}

func (s *Server) spend(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.tokens.Take(now)
	return ok
}

// transact runs an operation on the account as it may see it, one at a time.
func (s *Server) transact(op operation, q *request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	q.serial = s.serial
	if !op.write {
		q.world = s.view(q.now)
		return op.do(q)
	}
	q.world = s.present()
	result, err := op.do(q)
	if err == nil {
		s.commit(q.world, q.now)
	}
	return result, err
}
