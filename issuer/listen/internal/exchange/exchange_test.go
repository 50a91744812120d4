package exchange

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// What the CA writes goes to the log and to terminals: one line, not too long, and nothing that a terminal obeys.
func TestReasonsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for name, tt := range map[string]struct{ kind, detail, want string }{
		"a long reason": {"http-01", long, "http-01: " + long[:500] + "…"},
		"a long type":   {long, "why", long[:50] + "…: why"},
		"an escape":     {"\x1b[2J", "a\x1b]0;b\x07c", "?[2J: a?]0;b?c"},
		"lines":         {"http\n01", "a\r\nb", "http 01: a  b"},
	} {
		r := &Transport{}
		body, err := json.Marshal(map[string]any{"challenges": []any{map[string]any{"type": tt.kind, "error": map[string]any{"detail": tt.detail}}}})
		if err != nil {
			t.Fatal(err)
		}
		r.note(body)
		if got, want := r.Explain(errors.New("no")).Error(), "no; the CA says: "+tt.want; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		for has, want := range map[*Transport]string{{}: "a b?" + long[:996] + "…", r: "a b?" + long[:996] + "…; the CA says: " + tt.want} {
			if got := has.Explain(errors.New("a\nb\x1b" + long)).Error(); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
}

// endless is an answer whose end never comes.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	if e.read > 8<<20 {
		return 0, errors.New("8 MiB were read")
	}
	for i := range p {
		p[i] = ' '
	}
	e.read += len(p)
	return len(p), nil
}

func (e *endless) Close() error { return nil }

type answering func(*http.Request) (*http.Response, error)

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// A CA that goes on writing takes 1 MiB of memory at most, whatever it calls what it writes.
func TestReasonsOfAnEndlessAnswer(t *testing.T) {
	for _, kind := range []string{"application/json", "application/problem+json", "text/html", "application/pem-certificate-chain", ""} {
		body := &endless{}
		r := &Transport{Until: time.Now().Add(time.Hour), Next: answering(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 404, Header: http.Header{"Content-Type": {kind}}, Body: body}, nil
		})}
		res, err := r.RoundTrip(httptest.NewRequest(http.MethodPost, "https://ca.example.com/", http.NoBody))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || len(text) != 1<<20 || body.read > 2<<20 {
			t.Errorf("%q: %d bytes, %d were read: %v", kind, len(text), body.read, err)
		}
	}
}

func TestReasons(t *testing.T) {
	r := &Transport{}
	plain := errors.New("no viable challenge type found")
	if got := r.Explain(plain).Error(); got != plain.Error() {
		t.Errorf("without a reason: %s", got)
	}
	for range 2 {
		r.note([]byte(`{"status":"invalid","challenges":[{"type":"tls-alpn-01","error":{"detail":"Connection\nrefused"}},{"type":"dns-01"}]}`))
	}
	r.note([]byte(`no JSON`))
	want := "no viable challenge type found; the CA says: tls-alpn-01: Connection refused"
	if got := r.Explain(plain); got.Error() != want || !errors.Is(got, ErrNotValidated) {
		t.Errorf("%q, want %q", got, want)
	}
	r = &Transport{}
	if got := r.Explain(plain); errors.Is(got, ErrNotValidated) {
		t.Errorf("nothing was validated: %v", got)
	}
	r.note([]byte(`{"status":"invalid","challenges":[{"type":"http-01","status":"invalid"},{"type":"dns-01","status":"pending"}]}`))
	if got, want := r.Explain(plain).Error(), "no viable challenge type found; the CA says: http-01: failed, and the CA gives no reason"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// An order sees the challenge that it is to answer, and whatever there is where the CA does not offer that one.
func TestOneChallenge(t *testing.T) {
	const both = `{"status":"pending","identifier":{"type":"dns","value":"a.example.com"},"challenges":[{"type":"tls-alpn-01","token":"1"},{"type":"dns-01","token":"2"},{"type":"http-01","token":"3"}]}`
	for name, tt := range map[string]struct{ challenge, body, want string }{
		"the first":      {"tls-alpn-01", both, `{"challenges":[{"type":"tls-alpn-01","token":"1"}],"identifier":{"type":"dns","value":"a.example.com"},"status":"pending"}`},
		"the last":       {"http-01", both, `{"challenges":[{"type":"http-01","token":"3"}],"identifier":{"type":"dns","value":"a.example.com"},"status":"pending"}`},
		"not offered":    {"dns-account-01", both, both},
		"no choice":      {"", both, both},
		"an order":       {"http-01", `{"status":"ready","authorizations":["https://ca.example/a"]}`, `{"status":"ready","authorizations":["https://ca.example/a"]}`},
		"no JSON":        {"http-01", `<html>`, `<html>`},
		"a list":         {"http-01", `[1]`, `[1]`},
		"none":           {"http-01", `{"challenges":[]}`, `{"challenges":[]}`},
		"no challenges":  {"http-01", `{"challenges":{"type":"http-01"}}`, `{"challenges":{"type":"http-01"}}`},
		"other elements": {"http-01", `{"challenges":[1,null,{"type":"http-01"}]}`, `{"challenges":[{"type":"http-01"}]}`},
	} {
		r := &Transport{Challenge: tt.challenge, Until: time.Now().Add(time.Hour), Next: answering(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(tt.body))}, nil
		})}
		res, err := r.RoundTrip(httptest.NewRequest(http.MethodPost, "https://ca.example.com/", http.NoBody))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, want %s: %v", name, got, tt.want, err)
		}
	}
}

// Where the CA's directory cannot be read for a reason of configuration, nothing was ordered, and the setting is named.
func TestDirectoryThatCannotBeRead(t *testing.T) {
	ca := httptest.NewTLSServer(http.NotFoundHandler())
	defer ca.Close()
	ca.Config.ErrorLog = log.New(io.Discard, "", 0)
	for name, tt := range map[string]struct {
		next   http.RoundTripper
		method string
		want   []string // nil: it is not about the directory
	}{
		"another root":      {&http.Transport{}, http.MethodGet, []string{"nothing was ordered: ", "listen.tls.acme.caFile", ca.URL}},
		"another path":      {ca.Client().Transport, http.MethodGet, []string{"nothing was ordered: ", ca.URL + "/dir answers 404", "listen.tls.acme.directory"}},
		"a refused request": {ca.Client().Transport, http.MethodPost, nil},
		"a CA that is busy": {answering(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody}, nil
		}), http.MethodGet, nil},
		"a CA that is away": {answering(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }), http.MethodGet, nil},
	} {
		r := &Transport{Next: tt.next, Until: time.Now().Add(time.Hour)}
		req := httptest.NewRequest(tt.method, ca.URL+"/dir", http.NoBody)
		req.RequestURI = ""
		resp, err := r.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		got := r.Explain(errors.New("no"))
		if errors.Is(got, ErrNoDirectory) != (tt.want != nil) || tt.want != nil && err == nil {
			t.Errorf("%s: %v", name, got)
		}
		for _, want := range tt.want {
			if !strings.Contains(got.Error(), want) {
				t.Errorf("%s: %v lacks %s", name, got, want)
			}
		}
	}
}
