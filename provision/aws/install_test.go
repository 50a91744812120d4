package aws_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/scene"
)

func shown(t *testing.T, v *plan.Preview) string {
	t.Helper()
	if v == nil {
		t.Fatal("there is no preview")
	}
	var b bytes.Buffer
	must(t, v.Write(&b))
	return b.String()
}

// A preview changes nothing and shows all; the run makes all of it; a second run finds nothing to do.
func TestCreate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.WriteKeys(t)
	o := w.create(t, "a", "b")
	o.Mode = install.Preview
	made, err := aws.Create(t.Context(), o)
	must(t, err)
	scene.Held(t, shown(t, made.Preview), "+ create key set prod-a\n", "+ create IAM OIDC identity provider", "+ create IAM role prod-a-ns-a-a-creds")
	if n := w.writes(); n != 0 || w.published(t) != 0 {
		t.Fatalf("a preview made %d calls that write, and the store has %d key sets", n, w.published(t))
	}
	w.Reported()

	o.Mode = install.Apply
	made, err = aws.Create(t.Context(), o)
	must(t, err)
	scene.Held(t, w.Reported(), "line Account ", "store the store, issuer "+issuerURL, "line "+ccoctl.KeyPairFound(filepath.Join(w.Out(), ccoctl.PrivateKeyName)),
		"line Key set prod-a stored in the store", "line Issuer "+issuerURL+" is served with key "+string(key.ID()),
		"line "+ccoctl.ProviderCreated(made.ProviderARN), "progress 3 of 3 changes made", "line "+ccoctl.InstallingKey, "line Made for prod-a in account ", "2 roles, 2 Secrets")
	if made.Roles != 2 || made.Secrets != 2 || made.KeySet.Name() != "prod-a" || made.PrivateKey != filepath.Join(w.Out(), ccoctl.PrivateKeyName) {
		t.Errorf("made %+v", made)
	}
	for _, name := range []string{"manifests/ns-a-a-creds-credentials.yaml", "manifests/cluster-authentication-02-config.yaml", ccoctl.SigningKeyName} {
		if _, err := os.Stat(filepath.Join(w.Out(), name)); err != nil {
			t.Error(err)
		}
	}
	w.writes()
	again, err := aws.Create(t.Context(), o)
	must(t, err)
	if n := w.writes(); n != 0 || again.ProviderARN != made.ProviderARN {
		t.Errorf("the second run made %d calls that write: %+v", n, again)
	}
	scene.Held(t, w.Reported(), "line "+ccoctl.ProviderFound(made.ProviderARN), "line Existing role", "line Already there for prod-a in account ")
}

func (w *world) published(t *testing.T) int {
	t.Helper()
	list, err := w.Store.List(t.Context())
	must(t, err)
	return len(list)
}

// A dry run calls nobody, publishes nothing, and leaves the account's ID to be filled in.
func TestDryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.WriteKeys(t)
	o := w.create(t, "a")
	o.Mode, o.Store = install.DryRun, install.KeyStore{}
	_, err := aws.Create(t.Context(), o)
	must(t, err)
	if len(w.Calls()) > 0 || w.published(t) > 0 {
		t.Errorf("it made the calls %v", w.Calls())
	}
	for _, name := range []string{"02-openid-configuration", "03-keys.json", "04-iam-identity-provider.json", "05-0-prod-a-ns-a-a-creds-role.json",
		"06-0-prod-a-ns-a-a-creds-policy.json"} {
		data, err := os.ReadFile(filepath.Join(w.Out(), name))
		must(t, err)
		if strings.HasPrefix(name, "05") && !bytes.Contains(data, []byte("arn:aws:iam::"+aws.UnknownAccount)) {
			t.Errorf("%s is %s", name, data)
		}
	}
}

// What is wrong is found before anything is changed, and the error's type says what the caller can offer.
func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(t *testing.T, w *world, o *aws.CreateOptions)
		is     func(error) bool
	}{
		"another account": {func(_ *testing.T, _ *world, o *aws.CreateOptions) { o.Account = "999999999999" }, is(install.WrongAccount)},
		"half a key pair": {func(t *testing.T, w *world, _ *aws.CreateOptions) {
			must(t, os.Remove(filepath.Join(w.Out(), ccoctl.PrivateKeyName)))
		}, is(install.HalfKeyPair)},
		"two keys": {func(t *testing.T, w *world, _ *aws.CreateOptions) {
			private := filepath.Join(w.Out(), ccoctl.PrivateKeyName)
			data, err := os.ReadFile(private)
			must(t, err)
			must(t, os.RemoveAll(w.Out()))
			w.WriteKeys(t)
			must(t, os.WriteFile(private, data, 0o600))
		}, is(install.KeyPairMismatch)},
		"another signing key in its place": {func(t *testing.T, w *world, _ *aws.CreateOptions) {
			data, err := os.ReadFile(filepath.Join(w.Out(), ccoctl.PrivateKeyName))
			must(t, err)
			must(t, os.RemoveAll(w.Out()))
			w.WriteKeys(t)
			must(t, os.Mkdir(filepath.Join(w.Out(), ccoctl.TLSDir), 0o700))
			must(t, os.WriteFile(filepath.Join(w.Out(), ccoctl.SigningKeyName), data, 0o600))
		}, is(install.OtherSigningKey)},
		"no requests": {func(t *testing.T, _ *world, o *aws.CreateOptions) { o.Roles.Dir = t.TempDir() }, is(install.NoRequests)},
		"a name":      {func(_ *testing.T, _ *world, o *aws.CreateOptions) { o.Name = "Prod_A" }, is(install.BadName)},
		"a taken name": {func(t *testing.T, w *world, _ *aws.CreateOptions) {
			w.store1(t, "prod-a", "https://oidc.example.com/x")
		}, is(install.Taken)},
		"another key": {func(t *testing.T, w *world, _ *aws.CreateOptions) { w.store1(t, "theirs", issuerURL) }, func(err error) bool {
			e, _ := errors.AsType[*install.Error](err)
			return is(install.KeyNotPublished)(err) && e.KeySet == "theirs"
		}},
		"a key pair still to be made": {func(t *testing.T, w *world, o *aws.CreateOptions) {
			w.store1(t, "theirs", issuerURL)
			o.Dir = filepath.Join(w.Dir, "empty")
		}, is(install.KeyNeeded)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.WriteKeys(t)
			o := w.create(t, "a")
			tt.change(t, w, &o)
			before := w.published(t)
			if _, err := aws.Create(t.Context(), o); !tt.is(err) {
				t.Errorf("%T %v", err, err)
			}
			if n := w.writes(); n > 0 || w.published(t) != before {
				t.Errorf("%d calls wrote, and the store has %d key sets instead of %d", n, w.published(t), before)
			}
		})
	}
}

func is(p install.Problem) func(error) bool {
	return func(err error) bool {
		e, is := errors.AsType[*install.Error](err)
		return is && e.Problem == p
	}
}

// store1 stores a key set with a key of its own.
func (w *world) store1(t *testing.T, name keystore.Name, url string) {
	t.Helper()
	s, err := keystore.New(storetest.Change(0), keystore.Spec{Name: name, Issuers: storetest.URLs(t, url),
		Keys: []keystore.VerificationKey{storetest.SyntheticRSA(t, 7)}})
	must(t, err)
	must(t, keystore.Create(t.Context(), w.Store, s))
}

// Roles of an upgrade and of workloads need the provider; it is deleted with the roles, and the key set stays.
func TestRolesAndDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.WriteKeys(t)
	all := w.create(t, "a")
	made, err := aws.Create(t.Context(), all)
	must(t, err)
	roles := aws.RolesOptions{Options: all.Options, ProviderARN: made.ProviderARN, Roles: *w.requests(t, "a", "b")}
	upgraded, err := aws.CreateRoles(t.Context(), roles)
	must(t, err)
	if len(upgraded.Secrets) != 2 || !upgraded.Secrets[0].Same || upgraded.Secrets[1] != (install.Secret{Namespace: "ns-b", File: filepath.Join(w.Out(), "manifests/ns-b-b-creds-credentials.yaml")}) {
		t.Errorf("Secrets %+v", upgraded.Secrets)
	}
	roles.Usual, roles.ClientIDs = false, []string{"vault"}
	if _, err := aws.CreateRoles(t.Context(), roles); !is(install.UnknownAudience)(err) {
		t.Errorf("an audience that the provider does not take: %v", err)
	}
	role := aws.RoleOptions{Options: all.Options, ServiceAccounts: []install.ServiceAccount{{Namespace: "ns", Name: "app"}}}
	role.Name, role.ClientIDs, role.Usual = "app", []string{"sts.amazonaws.com"}, false
	app, err := aws.CreateRole(t.Context(), role)
	must(t, err)
	if !strings.HasSuffix(app.ARN, ":role/app") {
		t.Errorf("role %+v", app)
	}
	role.IssuerURL = "https://oidc.example.com/nowhere"
	if _, err := aws.CreateRole(t.Context(), role); !is(install.ProviderUnread)(err) {
		t.Errorf("a provider that is not there: %v", err)
	}
	w.delete(t, all, "app")
}

func (w *world) delete(t *testing.T, all aws.CreateOptions, stays string) {
	t.Helper()
	o := aws.DeleteOptions{Options: all.Options}
	_, err := aws.Delete(t.Context(), o)
	if e, is := errors.AsType[*awsiam.Error](err); !is || e.Problem != awsiam.Stranded {
		t.Errorf("roles would trust nobody: %v", err)
	}
	o.IssuerURL, o.Mode = "", install.Preview
	deleted, err := aws.Delete(t.Context(), o)
	must(t, err)
	scene.Held(t, shown(t, deleted.Preview), "- delete IAM role prod-a-ns-a-a-creds", "- delete IAM role prod-a-ns-b-b-creds", "- delete IAM OIDC identity provider")
	o.Mode = install.Apply
	deleted, err = aws.Delete(t.Context(), o)
	must(t, err)
	if want := (install.StillPublished{URL: issuerURL, KeySet: "prod-a", Signs: true, Asked: true}); len(deleted.Issuers) != 1 || deleted.Issuers[0] != want {
		t.Errorf("issuers %+v", deleted.Issuers)
	}
	if s := w.State(); len(s.Providers) != 0 || len(s.Roles) != 1 || s.Roles[0].Name != stays {
		t.Errorf("left %+v", s)
	}
	w.Reported()
	o.Store = install.KeyStore{}
	_, err = aws.Delete(t.Context(), o)
	must(t, err)
	scene.Held(t, w.Reported(), "line Nothing in account ")
}

// makeProvider makes a provider that another installation owns.
func (w *world) makeProvider(t *testing.T, url, owner string) {
	client, err := awsiam.Open(t.Context(), awsiam.Options{Config: w.Config()})
	must(t, err)
	account, err := client.Account(t.Context())
	must(t, err)
	p, err := client.PlanProvider(t.Context(), account, awsiam.Provider{URL: url, ClientIDs: []string{"x"}, Owner: awsiam.OwnedBy(owner)})
	must(t, err)
	must(t, p.Apply(t.Context(), 1, nop))
}

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
