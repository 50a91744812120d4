package aws_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakeaws"
	"github.com/keypost/keypost/test/scene"
)

// What was just made needs no second look, and what was planned before the publication no second plan. IAM throttles anyone who
// calls too often, and each call takes a while.
func TestCreateMakesFewCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.WriteKeys(t)
	const requests, slack = 20, 10 // the SDK sends a request again now and then; a second look would be 20 or more
	var names []string
	for i := range requests {
		names = append(names, fmt.Sprintf("c%d", i))
	}
	o := w.create(t, names...)
	_, err := aws.Create(t.Context(), o)
	must(t, err)
	if n, most := len(w.Calls()), 5+4*requests+slack; n > most { // the plan is made again after the wait
		t.Errorf("%d calls to make all, want at most %d", n, most)
	}
	w.ResetCalls()
	_, err = aws.Create(t.Context(), o)
	must(t, err)
	if n, most := len(w.Calls()), 3+4*requests+slack; n > most || w.writes() > 0 { // the provider is read before the wait and after it
		t.Errorf("%d calls to find nothing to do, want at most %d, none of which writes", n, most)
	}
}

// createUntil creates an installation until it reports a text, and returns what it reported.
func (w *world) createUntil(t *testing.T, o aws.CreateOptions, text string) (string, error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o.Report = func(e install.Event) {
		if w.Report(e); strings.Contains(e.Text, text) {
			stop()
		}
	}
	_, err := aws.Create(ctx, o)
	return w.Reported(), err
}

const waits = "for answers from before to run out"

// A run is stopped while nobody serves the store, and is made again when somebody does: that the key lay in the store for long
// says nothing about caches, and the wait is whole. A run that finds all of it does not wait again; one that makes something does.
func TestCreateAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.WriteKeys(t)
	var behind atomic.Bool // what serves the store has not read it
	behind.Store(true)
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if behind.Load() {
			http.NotFound(rw, r)
			return
		}
		w.Publish(rw, r)
	}))
	t.Cleanup(server.Close)
	w.Site.Connect = server.Listener.Addr().String()
	o := w.create(t, "a")
	o.Site = w.Site
	o.Store.Change = func() keystore.Change { return keystore.Change{At: time.Now().Add(-time.Hour), By: "me"} }
	if text, err := w.createUntil(t, o, "answers 404"); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v; nobody serves it:\n%s", err, text)
	}
	behind.Store(false)
	if text, err := w.createUntil(t, o, waits); !errors.Is(err, context.Canceled) || w.writes() > 0 {
		t.Fatalf("%v; want a wait, and no call that writes:\n%s", err, text)
	}
	made, err := aws.Create(t.Context(), o)
	must(t, err)
	scene.Held(t, w.Reported(), waits, "is served with key", "Made for prod-a")
	_, err = aws.Create(t.Context(), o)
	must(t, err)
	if text := w.Reported(); strings.Contains(text, "to run out") || !strings.Contains(text, "Already there for prod-a") {
		t.Errorf("all of it is there, and it waits:\n%s", text)
	}
	again := w.create(t, "a", "b") // a later release has another role
	again.Site = w.Site
	w.Disown(made.ProviderARN)
	again.Name, again.Adopt = "prod-b", true // to which the provider does not belong
	again.Dir = o.Dir
	_, err = aws.Create(t.Context(), again)
	must(t, err)
	scene.Held(t, w.Reported(), waits, "Made for prod-b")
}

// The provider was there before the key: relying parties may have been told of another.
func TestCreateWithAnOlderProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.WriteKeys(t)
	o := w.create(t, "a")
	_, err := aws.Create(t.Context(), o)
	must(t, err)
	w.Reported()
	backend, err := filestore.Create(t.TempDir())
	must(t, err)
	w.Store = keystore.NewStore(backend) // it is published anew
	o.Store = w.KeyStore()
	o.Store.Change = func() keystore.Change { return keystore.Change{At: time.Now().Add(time.Second), By: "me"} }
	_, err = aws.Create(t.Context(), o)
	must(t, err)
	scene.Held(t, w.Reported(), "Key set prod-a stored", waits, "Made for prod-a")
}

// world is all that an installation needs: an account and a scene.
type world struct {
	*fakeaws.Server
	*scene.Scene
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{fakeaws.Start(t, fakeaws.Options{}), scene.New(t)}
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// requests writes CredentialsRequests with these names.
func (w *world) requests(t *testing.T, names ...string) *aws.RequestedRoles {
	t.Helper()
	dir := filepath.Join(w.Dir, "requests")
	must(t, os.MkdirAll(dir, 0o700))
	for _, n := range names {
		text := strings.ReplaceAll(`apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: NAME, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: NAME-creds, namespace: ns-NAME}
  serviceAccountNames: [NAME]
  providerSpec:
    apiVersion: cloudcredential.openshift.io/v1
    kind: AWSProviderSpec
    statementEntries: [{effect: Allow, action: ["s3:GetObject"], resource: "*"}]
`, "NAME", n)
		must(t, os.WriteFile(filepath.Join(dir, n+".yaml"), []byte(text), 0o600))
	}
	return &aws.RequestedRoles{Dir: dir}
}

func (w *world) create(t *testing.T, names ...string) aws.CreateOptions {
	t.Helper()
	return aws.CreateOptions{
		Options: aws.Options{
			Options: w.Options("aws"), Config: w.Config(), Region: "us-east-1", ClientIDs: []string{"openshift", "sts.amazonaws.com"}, Usual: true,
		},
		Roles: w.requests(t, names...),
	}
}

// writes returns how many calls wrote since the last time.
func (w *world) writes() int {
	n := 0
	for _, c := range w.Calls() {
		if c.Write {
			n++
		}
	}
	w.ResetCalls()
	return n
}
