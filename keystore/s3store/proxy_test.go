package s3store

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// trouble is what happens to one request on its way to the server and to the answer on its way back.
type trouble int

const (
	none    trouble = iota
	busy            // 503 before it reaches the server
	cutOff          // the connection breaks before it reaches the server
	lost            // the connection breaks after it took effect
	half            // the connection breaks in the middle of the answer's body
	shorter         // the answer is shortened, and its length says so
	hang            // no answer ever
	denied          // 403, as when a permission is taken away
)

// proxy stands before a server and makes trouble. Signatures stay good: the host that was signed is passed on.
type proxy struct {
	target string

	mu     sync.Mutex
	decide func(r *http.Request, n int) trouble // n counts the requests since it was set, from 1
	n      int
	seen   []*http.Request
}

func newProxy(t testing.TB, target string) (*proxy, string) {
	p := &proxy{target: target}
	sv := httptest.NewServer(p)
	t.Cleanup(sv.Close)
	return p, sv.URL
}

// trouble makes decide judge every request from now on; nil ends it.
func (p *proxy) trouble(decide func(r *http.Request, n int) trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide, p.n = decide, 0
}

// always is trouble for every request.
func always(tr trouble) func(*http.Request, int) trouble {
	return func(*http.Request, int) trouble { return tr }
}

// atFirst is trouble for the first requests, one after the other, and none afterwards.
func atFirst(all ...trouble) func(*http.Request, int) trouble {
	return func(_ *http.Request, n int) trouble {
		if n > len(all) {
			return none
		}
		return all[n-1]
	}
}

func (p *proxy) verdict(r *http.Request) trouble {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, r)
	if p.decide == nil {
		return none
	}
	p.n++
	return p.decide(r, p.n)
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	tr := p.verdict(r)
	switch tr {
	case busy:
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
		return
	case denied:
		refuse(w, http.StatusForbidden, "AccessDenied")
		return
	case hang:
		<-r.Context().Done()
		return
	case cutOff:
		panic(http.ErrAbortHandler)
	}
	answer, data := p.forward(r, body)
	if answer == nil {
		panic(http.ErrAbortHandler)
	}
	switch tr {
	case lost:
		panic(http.ErrAbortHandler)
	case shorter:
		data = data[:len(data)*3/4]
		answer.Header.Set("Content-Length", fmt.Sprint(len(data)))
	}
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	if tr == half {
		_, _ = w.Write(data[:len(data)/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(data)
}

func (p *proxy) forward(r *http.Request, body []byte) (*http.Response, []byte) {
	out, err := http.NewRequest(r.Method, p.target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, nil
	}
	out.Header, out.Host = r.Header.Clone(), r.Host
	answer, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		return nil, nil
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, nil
	}
	return answer, data
}

func isPut(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, suffix)
}

// writes makes trouble for writes of key sets only.
func writes(decide func(*http.Request, int) trouble) func(*http.Request, int) trouble {
	n := 0
	return func(r *http.Request, _ int) trouble {
		if !isPut(r) {
			return none
		}
		n++
		return decide(r, n)
	}
}
