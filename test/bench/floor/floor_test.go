package floor

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/listen"
)

func header(etag string) http.Header {
	return http.Header{"Etag": {etag}, "Content-Length": {"1"}, "Content-Type": {"text/plain"}, "Date": {etag}, "X-Shared": {"a"}}
}

func recorded(t *testing.T) *Recording {
	t.Helper()
	r := new(Recording)
	for path, body := range map[string]string{"/a": "A", "/b": "B"} {
		if err := r.Add(path, header(`"`+body+`"`), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestAnswersAsRecorded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "recording")
	if err := recorded(t).Write(file); err != nil {
		t.Fatal(err)
	}
	r, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHandler(r)
	for path, body := range map[string]string{"/a": "A", "/b": "B"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		want := header(`"` + body + `"`)
		want.Del("Date")
		if w.Body.String() != body || len(w.Header()) != len(want) || sameHeader(want, w.Header()) != nil {
			t.Errorf("%s: %q with %v; want %q with %v", path, w.Body, w.Header(), body, want)
		}
		if h, b := r.Answer(path); string(b) != body || len(h) != len(want) || sameHeader(want, h) != nil {
			t.Errorf("%s: recorded is %q with %v", path, b, h)
		}
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/c", nil)); w.Code != http.StatusNotFound {
		t.Errorf("an unknown path: %d", w.Code)
	}
}

func TestRecordingRefusesUnequalWork(t *testing.T) {
	for name, tc := range map[string]struct {
		path, etag, want string
		edit             func(http.Header)
	}{
		"same ETag":      {"/c", `"A"`, "it has the ETag of /a", func(http.Header) {}},
		"same path":      {"/a", `"C"`, "recorded already", func(http.Header) {}},
		"other value":    {"/c", `"C"`, "its Content-Length is", func(h http.Header) { h.Set("Content-Length", "2") }},
		"another header": {"/c", `"C"`, "only this answer has X-More", func(h http.Header) { h.Set("X-More", "") }},
		"missing header": {"/c", `"C"`, "its X-Shared is []", func(h http.Header) { h.Del("X-Shared") }},
	} {
		h := header(tc.etag)
		tc.edit(h)
		if err := recorded(t).Add(tc.path, h, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v; want %q", name, err, tc.want)
		}
	}
}

func TestReadRefusesWhatIsNoRecording(t *testing.T) {
	if _, err := Read("floor_test.go"); err == nil {
		t.Error("it reads anything")
	}
}

// timeouts are what net/http sets timers for.
type timeouts struct {
	readHeader, read, write, idle time.Duration
	header                        int
}

func timeoutsOf(s *http.Server) timeouts {
	return timeouts{s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout, s.MaxHeaderBytes}
}

// A floor without keypostd's timeouts would be too cheap, one with longer ones is another server.
func TestTimeoutsAreThoseOfKeypostd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address, servers, served := make(chan net.Addr, 1), make(chan *http.Server, 1), make(chan error, 1)
	go func() {
		served <- listen.Serve(ctx, listen.Config{
			Address: "127.0.0.1:0", MaxConnections: 10, Listening: func(a net.Addr) { address <- a },
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				servers <- r.Context().Value(http.ServerContextKey).(*http.Server)
			}),
		})
	}()
	select {
	case a := <-address:
		r, err := http.Get("http://" + a.String())
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close() // nothing of it is wanted
	case err := <-served:
		t.Fatal(err)
	}
	if own, floors := timeoutsOf(<-servers), timeoutsOf(NewServer("", nil)); own != floors {
		t.Errorf("keypostd has %+v, the floor %+v", own, floors)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
