package fakegcp

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Direct is a Server and the way to it of a client in the same process, an http.RoundTripper: without a network, so that a test's time
// (package testing/synctest) passes while the client waits. Its methods may be called side by side.
type Direct struct {
	*Server
	cut atomic.Bool
}

// NewDirect returns a Direct with a new server.
func NewDirect(o Options) *Direct { return &Direct{Server: New(o)} }

// Cut ends the way to the server for anyone who is on it, as the death of the client's process does. Mend opens it again.
func (d *Direct) Cut() { d.cut.Store(true) }

// Mend opens a way that was cut.
func (d *Direct) Mend() { d.cut.Store(false) }

// RoundTrip answers a request for any of Google's hosts. An answer that the server breaks off is io.ErrUnexpectedEOF.
func (d *Direct) RoundTrip(r *http.Request) (res *http.Response, err error) {
	if d.cut.Load() {
		return nil, errors.New("the way to the server is cut")
	}
	defer func() {
		v := recover()
		broken, is := v.(error)
		switch {
		case is && errors.Is(broken, http.ErrAbortHandler):
			res, err = nil, io.ErrUnexpectedEOF
		case v != nil:
			panic(v)
		case d.cut.Load():
			res, err = nil, errors.New("the way to the server was cut before the answer")
		}
	}()
	r = r.Clone(r.Context())
	if r.Body == nil {
		r.Body = http.NoBody
	}
	r.Host = r.URL.Host
	rec := httptest.NewRecorder()
	d.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// Do makes a call of IAM or Resource Manager as somebody else with the caller's rights, and returns what came of it once that is done.
// path begins with the project's ID.
func (d *Direct) Do(t testing.TB, method, path string, body any) map[string]any {
	t.Helper()
	host := "iam"
	if !strings.Contains(path, "/") || strings.HasPrefix(path, d.options.Project+":") {
		host = "cloudresourcemanager"
	}
	b, err := json.Marshal(body)
	check(t, err)
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+host+".googleapis.com/v1/projects/"+path, strings.NewReader(string(b)))
	check(t, err)
	r.Header.Set("Authorization", "Bearer "+AccessToken)
	res, err := (&http.Client{Transport: d}).Do(r)
	check(t, err)
	data, err := io.ReadAll(res.Body)
	_ = res.Body.Close() // it is in memory
	check(t, err)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s: %s", method, path, res.Status, data)
	}
	out := map[string]any{}
	check(t, json.Unmarshal(data, &out))
	if name, _ := out["name"].(string); strings.Contains(name, "/operations/") && out["done"] != true {
		time.Sleep(time.Second)
		return d.Do(t, http.MethodGet, strings.TrimPrefix(name, "projects/"), nil)
	}
	return out
}

// ChangePolicy changes an allow policy as somebody else does: the project's, of the project's ID, or an account's.
func (d *Direct) ChangePolicy(t testing.TB, of string, change func(p *Policy)) {
	t.Helper()
	get := of + ":getIamPolicy"
	body := any(map[string]any{"options": map[string]int{"requestedPolicyVersion": 3}})
	if of != d.options.Project {
		get, body = get+"?options.requestedPolicyVersion=3", struct{}{}
	}
	b, err := json.Marshal(d.Do(t, http.MethodPost, get, body))
	check(t, err)
	var p Policy
	check(t, json.Unmarshal(b, &p))
	change(&p)
	p.Version = 3
	d.Do(t, http.MethodPost, of+":setIamPolicy", map[string]any{"policy": p})
}

// Writes returns how many of the calls since ResetCalls were to write.
func (d *Direct) Writes() int {
	n := 0
	for _, c := range d.Calls() {
		if c.Write {
			n++
		}
	}
	return n
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
