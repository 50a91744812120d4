package kubestore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want an error with %q", what, err, want)
	}
	if err != nil && strings.Contains(err.Error(), "secret-token") {
		t.Errorf("%s: the error has the credentials in it: %v", what, err)
	}
}

// filled is a fake with n key sets and a store on it.
func filled(t *testing.T, n int) (*fake, *Backend) {
	f := newFake(t)
	st := f.store()
	for i := range n {
		must(t, keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, keystore.Name(fmt.Sprintf("prod-%c", 'a'+i)))))
	}
	return f, st
}

// The contract is held on a real API server too, in test/e2e. The fake takes members that a definition may not know,
// and has no old states of the namespace for a listing in pages or a watch.
func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) keystore.Backend { return newFake(t).store() },
		"a listing is complete while everything changes", "a watch reports changes and ends with its context")
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		namespace string
		o         Options
		want      string
	}{
		{"Keys", Options{}, `"Keys" is not the name of a namespace`},
		{"../keys", Options{}, "is not the name of a namespace"},
		{"keys", Options{Kubeconfig: "/nonexistent/kubeconfig"}, "/nonexistent/kubeconfig: no such file"},
	} {
		_, err := Open(t.Context(), c.namespace, c.o)
		wantError(t, c.namespace, err, c.want)
	}
}

// In a pod a kubeconfig that only the environment names is that of the cluster that is looked after.
func TestPodIsItsServiceAccount(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	t.Setenv("KUBECONFIG", "/nonexistent/kubeconfig")
	_, err := Open(t.Context(), "keys", Options{})
	wantError(t, "Open in a pod without a service account", err, "/var/run/secrets/kubernetes.io/serviceaccount/token")
}

func TestListingGoesOverAllPages(t *testing.T) {
	f, st := filled(t, 5)
	all, err := st.List(t.Context())
	if err != nil || len(all) != 5 || f.sent(http.MethodGet) != 3 {
		t.Errorf("List = %v, %v after %d requests; want 5 names after 3", all, err, f.sent(http.MethodGet))
	}
	if _, rev, err := keystore.NewStore(st).Load(t.Context(), "prod-e"); err != nil || all["prod-e"] != rev {
		t.Errorf("Load = revision %q, %v; List had %q", rev, err, all["prod-e"])
	}
}

// A listing that is not whole must never look like one: what is missing in it would look deleted.
func TestListingIsWholeOrAnError(t *testing.T) {
	for name, c := range map[string]struct {
		second func(w http.ResponseWriter, r *http.Request) // answers the second page
		want   string
	}{
		"the answer is cut": {func(w http.ResponseWriter, _ *http.Request) {
			cut(w, `{"kind": "PartialObjectMetadataList", "items": [`)
		}, "ended early"},
		"half an answer":  {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"kind": "PartialObjectMetadataList"`) }, "is not whole"},
		"an empty object": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) }, "no list of metadata"},
		"a login page":    {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `<html>`) }, "is not whole"},
		"trouble": {func(w http.ResponseWriter, _ *http.Request) {
			failure(500, "InternalError", "", "etcdserver: timeout").write(w)
		}, "etcdserver: timeout"},
		"the state is forgotten": {func(w http.ResponseWriter, _ *http.Request) { failure(410, "Expired", "", "too old").write(w) }, "has forgotten the state"},
		"the state is another":   {page2("999", `{"metadata": {"name": "x", "resourceVersion": "1"}}`), "another state"},
		"an item without name":   {page2("105", `{"metadata": {"resourceVersion": "1"}}`), "without name"},
	} {
		t.Run(name, func(t *testing.T) {
			f, st := filled(t, 5)
			f.when(func(w http.ResponseWriter, r *http.Request, _ func() answer) bool {
				second := r.URL.Query().Get("continue") != ""
				if second {
					c.second(w, r)
				}
				return second
			})
			all, err := st.List(t.Context())
			if all != nil {
				t.Errorf("List = %v", all)
			}
			wantError(t, "List", err, c.want)
			wantError(t, "List", err, "list key sets in namespace keys at 127.0.0.1")
		})
	}
}

func page2(version, item string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": %q}, "items": [%s]}`, version, item)
	}
}

func TestThrottledRequestsAreSentAgain(t *testing.T) {
	f, st := filled(t, 1)
	var times atomic.Int64
	f.when(func(w http.ResponseWriter, _ *http.Request, _ func() answer) bool {
		if times.Add(-1) < 0 {
			return false
		}
		w.Header().Set("Retry-After", "0")
		failure(429, "TooManyRequests", "", "too many requests, please try again later").write(w)
		return true
	})
	times.Store(3)
	if _, err := keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("x")); err != nil {
		t.Error(err)
	}
	times.Store(1000)
	_, err := st.List(t.Context())
	wantError(t, "List", err, "too many requests")
}

func TestSlowServerHoldsNobody(t *testing.T) {
	f, st := filled(t, 1)
	st.timeout = aMoment
	f.when(func(_ http.ResponseWriter, r *http.Request, _ func() answer) bool { <-r.Context().Done(); return true })
	_, err := st.List(t.Context())
	wantError(t, "List", err, "no answer within 50ms")
	_, _, err = keystore.NewStore(st).Load(t.Context(), "prod-a")
	wantError(t, "Load", err, "no answer within 50ms")
	wantError(t, "Watch", st.Watch(t.Context(), func(...keystore.Name) {}), "no answer within 50ms")
}

// Only the API server's word about this one key set means that it does not exist.
func TestAbsenceIsSaidByTheAPI(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		absent bool
		want   string
	}{
		"about the key set": {func(w http.ResponseWriter) { failure(404, "NotFound", "prod-a", "not found").write(w) }, true, "no such key set"},
		"about another":     {func(w http.ResponseWriter) { failure(404, "NotFound", "prod-b", "not found").write(w) }, false, "404"},
		"about the path":    {func(w http.ResponseWriter) { http.NotFound(w, nil) }, false, "install the custom resource definition"},
		"by a proxy":        {func(w http.ResponseWriter) { http.Error(w, "<html>", http.StatusNotFound) }, false, "404"},
		"about a namespace": {func(w http.ResponseWriter) { namespaceMissing().write(w) }, false, `namespaces "keys" not found`},
		"forbidden": {func(w http.ResponseWriter) {
			failure(403, "Forbidden", "prod-a", `User "x" cannot get resource`).write(w)
		}, false, "the role needs get on keysets.keypost.dev in namespace keys"},
		"forbidden by policy": {func(w http.ResponseWriter) { failure(403, "Forbidden", "prod-a", "policy says no").write(w) }, false, "policy says no"},
		"unauthorized":        {func(w http.ResponseWriter) { failure(401, "Unauthorized", "", "Unauthorized").write(w) }, false, "renew them"},
		"a redirect": {func(w http.ResponseWriter) {
			w.Header().Set("Location", "/apis/keypost.dev/v1/namespaces/keys/keysets/prod-b") // which exists
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, false, "307"},
		"control characters": {func(w http.ResponseWriter) { failure(418, "", "prod-a", "a\x1b[31m\nb").write(w) }, false, "418: a?[31m b"},
		"an empty object":    {func(w http.ResponseWriter) { fmt.Fprint(w, `{"metadata": {}}`) }, false, "without name or resourceVersion"},
		"too much":           {func(w http.ResponseWriter) { fmt.Fprint(w, `{"a": "`+strings.Repeat("x", objectLimit)+`"}`) }, false, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			f, st := filled(t, 2)
			f.when(func(w http.ResponseWriter, r *http.Request, _ func() answer) bool {
				about := strings.HasSuffix(r.URL.Path, "/prod-a")
				if about {
					c.answer(w)
				}
				return about
			})
			_, rev, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
			if errors.Is(err, keystore.ErrNotFound) != c.absent || rev != "" {
				t.Errorf("Load = revision %q, %v; absent: want %v", rev, err, c.absent)
			}
			wantError(t, "Load", err, c.want)
		})
	}
}

func namespaceMissing() answer {
	return answer{404, map[string]any{
		"kind": "Status", "reason": "NotFound", "message": `namespaces "keys" not found`,
		"details": map[string]any{"kind": "namespaces", "name": "keys"},
	}}
}

func TestBrokenDocumentsHaveARevision(t *testing.T) {
	f, st := filled(t, 1)
	f.edit("prod-a", func(o map[string]any) { delete(o["spec"].(map[string]any), "keys") }) //nolint:forcetypeassert // the test wrote it
	all, err := st.List(t.Context())
	must(t, err)
	var broken *keystore.BrokenError
	_, rev, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
	if !errors.As(err, &broken) || rev != all["prod-a"] || rev == "" {
		t.Fatalf("Load = revision %q, %v; want a BrokenError at %q", rev, err, all["prod-a"])
	}
	// Who repairs it has seen its revision.
	if _, err := keystore.NewStore(st).Replace(t.Context(), rev, storetest.KeySet(t, "prod-a")); err != nil {
		t.Error(err)
	}
}

// The API's own bookkeeping is not part of the document; what a newer version of keypost wrote is.
func TestObjectIsTheDocument(t *testing.T) {
	f, st := filled(t, 1)
	want, _, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
	must(t, err)
	f.edit("prod-a", func(o map[string]any) {
		o["status"] = map[string]any{"phase": "x"}
		m := o["metadata"].(map[string]any) //nolint:forcetypeassert // the test wrote it
		m["managedFields"], m["finalizers"], m["generation"] = []any{map[string]any{"manager": "x"}}, []any{"example.com/x"}, 7
		m["annotations"] = map[string]any{lastApplied: `{"spec": {}}`}
	})
	got, _, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
	must(t, err)
	if a, b := storetest.Text(t, got), storetest.Text(t, want); a != b {
		t.Errorf("loaded\n%s\nwant\n%s", a, b)
	}
	f.edit("prod-a", func(o map[string]any) { o["spec"].(map[string]any)["fromTheFuture"] = "x" }) //nolint:forcetypeassert // the test wrote it
	newer, rev, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
	must(t, err)
	doc, _, err := st.Get(t.Context(), "prod-a")
	must(t, err)
	if text := string(doc); len(newer.Unknown()) != 1 || !strings.HasPrefix(text, "apiVersion: keypost.dev/v1\nkind: KeySet\n") ||
		!strings.Contains(text, "  fromTheFuture: x\n") {
		t.Errorf("unknown: %v, in\n%s", newer.Unknown(), text)
	}
	_, err = keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("x"))
	wantError(t, "Update", err, "written by a newer version")
	if _, is, _ := keystore.NewStore(st).Load(t.Context(), "prod-a"); is != rev {
		t.Errorf("it was written to: revision %q, want %q", is, rev)
	}
}

func isWrite(r *http.Request) bool { return r.Method != http.MethodGet }

// A write whose answer is lost may have happened. Anyone who reports it as failed, or writes it twice, is wrong.
func TestWritesWhoseAnswerIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		meddle func(w http.ResponseWriter, r *http.Request, apply func() answer)
		want   error // of Update
		text   string
		stored int64
	}{
		"persisted, then the connection is cut": {func(w http.ResponseWriter, _ *http.Request, apply func() answer) { apply(); cut(w, "") }, nil, "", 2},
		"persisted, then half an answer":        {func(w http.ResponseWriter, _ *http.Request, apply func() answer) { apply(); fmt.Fprint(w, `{"meta`) }, nil, "", 2},
		"persisted, then etcd's timeout": {func(w http.ResponseWriter, _ *http.Request, apply func() answer) {
			apply()
			failure(500, "InternalError", "", "etcdserver: request timed out").write(w)
		}, nil, "", 2},
		"persisted, and sent again by a proxy": {func(w http.ResponseWriter, _ *http.Request, apply func() answer) { apply(); apply().write(w) }, nil, "", 2},
		"not persisted: cut before":            {func(w http.ResponseWriter, _ *http.Request, _ func() answer) { cut(w, "") }, nil, "replace key set", 1},
		"not persisted: refused by a rule": {func(w http.ResponseWriter, _ *http.Request, _ func() answer) {
			failure(422, "Invalid", "prod-a", "a key may leave only with a line in gone").write(w)
		}, nil, "a key may leave only", 1},
		"not persisted: no permission": {func(w http.ResponseWriter, _ *http.Request, _ func() answer) {
			failure(403, "Forbidden", "prod-a", `User "x" cannot update resource`).write(w)
		}, keystore.ErrReadOnly, "the role needs get and update on keysets.keypost.dev in namespace keys", 1},
	} {
		t.Run(name, func(t *testing.T) {
			f, st := filled(t, 1)
			calls := 0
			f.when(func(w http.ResponseWriter, r *http.Request, apply func() answer) bool {
				if isWrite(r) {
					c.meddle(w, r, apply)
				}
				return isWrite(r)
			})
			_, err := keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
				calls++
				return storetest.Mark("x")(s)
			})
			if c.text == "" && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("Update = %v", err)
			}
			if c.text != "" {
				wantError(t, "Update", err, c.text)
			}
			if calls != 1 {
				t.Errorf("the change was made %d times", calls)
			}
			f.when(nil)
			if s, _, err := keystore.NewStore(st).Load(t.Context(), "prod-a"); err != nil || s.Generation() != c.stored {
				t.Errorf("stored is generation %d, %v; want %d", s.Generation(), err, c.stored)
			}
		})
	}
}

func bookmark(version string) string {
	return fmt.Sprintf(`{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": %q}}}`, version)
}

func modified(name, version string) string {
	return fmt.Sprintf(`{"type": "MODIFIED", "object": {"metadata": {"name": %q, "resourceVersion": %q}}}`, name, version)
}

// watches has each watch answered in turn; the last answer repeats.
func (f *fake) watches(answers ...func(w http.ResponseWriter, r *http.Request)) (from func() []string) {
	var seen []string
	f.when(func(w http.ResponseWriter, r *http.Request, _ func() answer) bool {
		if r.URL.Query().Get("watch") == "" {
			return false
		}
		f.mu.Lock()
		i := min(len(seen), len(answers)-1)
		seen = append(seen, r.URL.Query().Get("resourceVersion"))
		f.mu.Unlock()
		answers[i](w, r)
		return true
	})
	return func() []string {
		f.mu.Lock()
		defer f.mu.Unlock()
		return append([]string(nil), seen...)
	}
}

func TestLostWatchIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		cut   bool
		want  string
	}{
		"cut between events": {[]string{modified("prod-a", "200")}, true, "was cut"},
		"cut in an event":    {[]string{`{"type": "MODIFIED", "obj`}, true, "was cut"},
		"forgotten":          {[]string{`{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version: 1 (2)"}}`}, false, "410: too old resource version"},
		"no event":           {[]string{`<html>`}, false, "was cut"},
		"about nothing":      {[]string{`{"type": "MODIFIED", "object": {}}`}, false, "about nothing"},
		"ended at once":      {nil, false, "at once"},
	} {
		t.Run(name, func(t *testing.T) {
			f, st := filled(t, 1)
			f.watches(func(w http.ResponseWriter, r *http.Request) {
				stream(w, r, false, c.lines...)
				if c.cut {
					panic(http.ErrAbortHandler)
				}
			})
			wantError(t, "Watch", st.Watch(t.Context(), func(...keystore.Name) {}), c.want)
		})
	}
}

// A watch that the API server ends as agreed goes on from the last bookmark, and nobody hears of it.
func TestWatchGoesOn(t *testing.T) {
	f, st := filled(t, 1)
	st.shortest = 0
	from := f.watches(
		func(w http.ResponseWriter, r *http.Request) {
			stream(w, r, false, modified("prod-a", "200"), bookmark("300"))
		},
		func(w http.ResponseWriter, r *http.Request) { stream(w, r, false) },
		func(w http.ResponseWriter, r *http.Request) { stream(w, r, true, modified("prod-b", "400")) },
	)
	ctx, cancel := context.WithCancel(t.Context())
	reports := make(chan string, 100)
	done := make(chan error, 1)
	go func() {
		done <- st.Watch(ctx, func(names ...keystore.Name) { reports <- fmt.Sprint(names) })
	}()
	for _, want := range []string{"[]", "[prod-a]", "[prod-b]"} {
		select {
		case got := <-reports:
			if got != want {
				t.Errorf("reported %s, want %s", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s was not reported", want)
		}
	}
	if got := fmt.Sprint(from()); got != "[101 300 300]" {
		t.Errorf("the watches began at %s", got)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch = %v after its context was done", err)
	}
}

// An API server that never answers.
func TestHanging(t *testing.T) {
	storetest.RunHanging(t, func(t *testing.T) keystore.Backend {
		f := newFake(t)
		f.when(func(_ http.ResponseWriter, r *http.Request, _ func() answer) bool { <-r.Context().Done(); return true })
		return f.store()
	})
}
