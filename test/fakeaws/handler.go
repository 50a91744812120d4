package fakeaws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"
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
	c, fault := s.begin(op, action, form)
	sleep(r.Context(), s.options.Latency+fault.delay)

	known = known && op.version == form.Get("Version")
	result, err := s.serve(exchange{r: r, body: body, form: form, op: op, known: known, fault: fault})
	var f *failure
	if err != nil && !errors.As(err, &f) {
		f = &failure{http.StatusInternalServerError, "ServiceFailure", err.Error()}
	}
	s.end(c, f)
	if fault.loseReply {
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

// begin records a call and asks what is to go wrong with it.
func (s *Server) begin(op operation, action string, form url.Values) (*Call, Fault) {
	s.mu.Lock()
	s.inFlight++
	s.serial++
	c := &Call{N: len(s.calls) + 1, Service: op.service(), Action: action, Params: flat(form), Write: op.write,
		Start: time.Now(), InFlight: s.inFlight}
	s.calls = append(s.calls, c)
	ask := s.fault
	s.mu.Unlock()
	if ask == nil {
		return c, Fault{}
	}
	return c, ask(*c)
}

func flat(form url.Values) map[string]string {
	m := map[string]string{}
	for k := range maps.Keys(form) {
		m[k] = form.Get(k)
	}
	delete(m, "WebIdentityToken")
	return m
}

// end records how a call went.
func (s *Server) end(c *Call, f *failure) {
	s.mu.Lock()
	s.inFlight--
	c.Took = max(time.Since(c.Start), 1)
	if f != nil {
		c.Code = f.code
	}
	tell, said := s.onCall, *c
	s.mu.Unlock()
	if tell != nil {
		tell(said.N, said)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
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
	if x.fault.refusal != nil {
		return nil, x.fault.refusal
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
		return nil, Throttle().refusal
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
	return s.tokens.take(now)
}

// transact runs an operation on the account as it may see it, one at a time.
func (s *Server) transact(op operation, q *request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
