package kubestore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
)

// fake is as much of a kube-apiserver as the store uses, and fails on demand in ways that a real one cannot be brought
// to: answers that are cut, conflicts about one's own write, listings whose state is forgotten between two pages.
// What it cannot show is that a real one behaves like it: test/e2e runs the contract, the rules of the definition, rights
// and outages on a real kube-apiserver and etcd.
type fake struct {
	*httptest.Server
	t  *testing.T
	mu sync.Mutex // guards the rest

	objects  map[string]map[string]any
	order    []string
	version  int
	requests []string
	// meddle may answer a request itself, or replace the answer after apply has taken effect.
	meddle func(w http.ResponseWriter, r *http.Request, apply func() answer) (answered bool)
}

type answer struct {
	code int
	body any
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, objects: map[string]map[string]any{}, version: 100}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.EnableHTTP2, f.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	f.StartTLS() // client-go sends no token without it
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

// store opens a store on the fake as any program does, with a kubeconfig.
func (f *fake) store() *Backend { return f.open(Open) }

func (f *fake) open(open func(context.Context, string, Options) (*Backend, error)) *Backend {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	if err := os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: secret-token}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`, f.URL, base64.StdEncoding.EncodeToString(ca)), 0o600); err != nil {
		f.t.Fatal(err)
	}
	st, err := open(f.t.Context(), "keys", Options{Kubeconfig: file})
	if err != nil {
		f.t.Fatal(err)
	}
	return st
}

// when has every request meddled with from now on; nil ends it.
func (f *fake) when(meddle func(w http.ResponseWriter, r *http.Request, apply func() answer) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.meddle = meddle
}

// sent counts the requests of a method.
func (f *fake) sent(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, m := range f.requests {
		if m == method {
			n++
		}
	}
	return n
}

const collection = "/apis/keypost.dev/v1/namespaces/keys/keysets"

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method)
	meddle := f.meddle
	f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer secret-token" {
		f.t.Errorf("%s %s without the credentials", r.Method, r.URL)
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body)) // for meddle
	apply := func() answer {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.apply(r, body)
	}
	if meddle == nil || !meddle(w, r, apply) {
		apply().write(w)
	}
}

func (a answer) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.code)
	_ = json.NewEncoder(w).Encode(a.body)
}

func failure(code int, reason, name, message string) answer {
	return answer{code, map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code,
		"details": map[string]any{"group": group, "kind": "keysets", "name": name},
	}}
}

func (f *fake) apply(r *http.Request, body []byte) answer {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, collection), "/")
	switch stored, exists := f.objects[name]; {
	case !strings.HasPrefix(r.URL.Path, collection):
		return answer{404, "404 page not found"}
	case r.Method == http.MethodGet && name == "":
		return f.list(r)
	case r.Method == http.MethodPost:
		return f.put(body, true)
	case !exists:
		return failure(404, "NotFound", name, fmt.Sprintf("keysets.keypost.dev %q not found", name))
	case r.Method == http.MethodGet:
		return answer{200, stored}
	}
	return f.put(body, false)
}

func (f *fake) put(body []byte, create bool) answer {
	var o map[string]any
	if err := json.Unmarshal(body, &o); err != nil {
		return failure(400, "BadRequest", "", err.Error())
	}
	m := o["metadata"].(map[string]any) //nolint:forcetypeassert // what the store sends
	name := m["name"].(string)          //nolint:forcetypeassert // what the store sends
	stored, exists := f.objects[name]
	switch {
	case create && exists:
		return failure(409, "AlreadyExists", name, "already exists")
	case !create && stored["metadata"].(map[string]any)["resourceVersion"] != m["resourceVersion"]: //nolint:forcetypeassert // the fake wrote it
		return failure(409, "Conflict", name, "the object has been modified")
	}
	if !exists {
		f.order = append(f.order, name)
	}
	f.version++
	m["resourceVersion"], m["uid"], m["namespace"] = strconv.Itoa(f.version), "uid-of-"+name, "keys"
	f.objects[name] = o
	return answer{200, o}
}

// list pages by two, whatever the limit.
func (f *fake) list(r *http.Request) answer {
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	to := min(from+2, len(f.order))
	next := ""
	if to < len(f.order) {
		next = strconv.Itoa(to)
	}
	items := []any{}
	for _, n := range f.order[from:to] {
		items = append(items, map[string]any{"metadata": f.objects[n]["metadata"]})
	}
	return answer{200, map[string]any{
		"kind": "PartialObjectMetadataList", "metadata": map[string]any{"resourceVersion": strconv.Itoa(f.version), "continue": next}, "items": items,
	}}
}

// edit changes a stored object behind everybody's back.
func (f *fake) edit(n keystore.Name, change func(o map[string]any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	o := f.objects[string(n)]
	o["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(f.version) //nolint:forcetypeassert // the fake wrote it
	change(o)
}

// cut ends the connection in the middle of an answer.
func cut(w http.ResponseWriter, part string) {
	w.Header().Set("Content-Length", "100000")
	_, _ = io.WriteString(w, part)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// stream writes lines of a watch and keeps it open until the client goes, or ends it.
func stream(w http.ResponseWriter, r *http.Request, open bool, lines ...string) {
	w.WriteHeader(200)
	for _, l := range lines {
		_, _ = io.WriteString(w, l+"\n")
	}
	_ = http.NewResponseController(w).Flush()
	if open {
		<-r.Context().Done()
	}
}

const aMoment = 50 * time.Millisecond
