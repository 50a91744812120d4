package cloudcmd

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakeaws"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/fakegcp"
	"github.com/keypost/keypost/test/scene"
)

const (
	mostSilence = 15 * time.Second
	issuerURL   = "https://oidc.example.com/prod-a"
	oldURL      = "https://old.example.com/prod-a"
)

// slowWorld is where everything is slow that a command asks: every call of a cloud, every look at the issuer. Time passes only when
// everybody waits.
type slowWorld struct {
	dir    string
	store  *keystore.Store
	site   install.Site
	key    signingkey.Private
	report func(install.Event)

	cloud, fast http.RoundTripper // to the cloud; by the second a call takes no time

	lag  time.Duration // of each call of the cloud
	mute bool          // nothing is said of what is under way
	said listener
}

// listener measures the longest silence.
type listener struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
	text    strings.Builder
}

// begin forgets what it heard.
func (l *listener) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.longest = time.Now(), 0
	l.text.Reset()
}

// Write implements io.Writer.
func (l *listener) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest, l.last = max(l.longest, time.Since(l.last)), time.Now()
	return l.text.Write(p)
}

// silence runs a command and returns the longest time in which it said nothing.
func (w *slowWorld) silence(t *testing.T, lag time.Duration, command func(*testing.T, *slowWorld) error) time.Duration {
	t.Helper()
	w.lag = lag
	w.said.begin()
	factory := &cli.Factory{Err: &w.said}
	run := &Run{Factory: factory, flags: &Flags{}, journal: newJournal(factory.Live())}
	w.report = func(e install.Event) {
		if !w.mute || !e.Still {
			run.report(e)
		}
	}
	check(t, command(t, w))
	_, _ = w.said.Write(nil)
	return w.said.longest
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inSlowWorld runs f where fake answers for a cloud.
func inSlowWorld(t *testing.T, key signingkey.Private, fake http.Handler, f func(t *testing.T, w *slowWorld)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &slowWorld{dir: dir, key: key}
		w.cloud, w.fast = late(fake, &w.lag), late(fake, new(time.Duration))
		backend, err := filestore.Create(filepath.Join(dir, "store"))
		check(t, err)
		w.store = keystore.NewStore(backend)
		check(t, os.MkdirAll(w.out(), 0o700))
		check(t, key.Write(signingkey.Paths{Private: filepath.Join(w.out(), ccoctl.PrivateKeyName), Public: filepath.Join(w.out(), ccoctl.PublicKeyName)}))
		pipe := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
		_ = server.Listener.Close()
		server.Listener = pipe
		server.Config.SetKeepAlivesEnabled(false)
		server.StartTLS() // its certificate names *.example.com
		defer server.Close()
		w.site = install.Site{Network: fetch.Network{RootCAs: x509.NewCertPool(), Connect: "192.0.2.1:443", Dial: pipe.dial}}
		w.site.RootCAs.AddCert(server.Certificate())
		f(t, w)
	})
}

// late is a transport to a handler without a network, through which every call takes a while.
func late(h http.Handler, lag *time.Duration) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		took := *lag
		if strings.HasPrefix(r.URL.Host, "login.") {
			took = min(took, 9*time.Second) // Microsoft's library waits no longer for a token
		}
		select {
		case <-time.After(took):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		r = r.Clone(r.Context())
		if r.Body == nil {
			r.Body = http.NoBody
		}
		r.Host = r.URL.Host
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		res := answer.Result()
		res.Request = r
		return res, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// pipes is a listener without a network.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443} }

// serve answers as a keypostd that reads the store for every request, and takes nearly as long as anyone who looks waits.
func (w *slowWorld) serve(rw http.ResponseWriter, r *http.Request) {
	time.Sleep(min(w.lag, 4*time.Second))
	(&scene.Scene{Store: w.store}).Publish(rw, r)
}

func (w *slowWorld) out() string { return filepath.Join(w.dir, "out") }

// options are what the commands of all clouds have in common.
func (w *slowWorld) options() install.Options {
	return install.Options{
		Store: (&scene.Scene{Store: w.store}).KeyStore(),
		Name:  "prod-a", Dir: w.out(), IssuerURL: issuerURL, Dev: true, Site: w.site, Report: w.report,
		Policy: keystore.Policy{MaxAge: keystore.DurationPtr(time.Minute)},
	}
}

// move is from an old issuer whose keys take a while to read, too.
func (w *slowWorld) move() install.Move {
	return install.Move{Old: oldURL, OldKeys: func(context.Context) ([]keystore.VerificationKey, error) {
		time.Sleep(2 * w.lag)
		return []keystore.VerificationKey{w.key.Public()}, nil
	}}
}

// requests writes three CredentialsRequests, with the provider's part, and returns their directory.
func (w *slowWorld) requests(t *testing.T, provider string) string {
	t.Helper()
	dir := filepath.Join(w.dir, "requests")
	check(t, os.MkdirAll(dir, 0o700))
	for i := range 3 {
		text := fmt.Sprintf(`apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: openshift-request-%[1]d, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: creds, namespace: ns-%[1]d}
  serviceAccountNames: [a-operator, a-driver, a-node]
  providerSpec: {apiVersion: cloudcredential.openshift.io/v1, %[2]s}
`, i, provider)
		check(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), []byte(text), 0o600))
	}
	return dir
}

// lags are how long a call may take: most of them one after another before any is slow by itself, and all of them slow.
func lags() []time.Duration {
	return []time.Duration{3 * time.Second, 9 * time.Second, 25 * time.Second}
}

// heard fails if any of the commands, run one after another, is silent for too long; nobody is heard who says nothing of what is
// under way, so that the test would notice.
func heard(t *testing.T, world func(f func(t *testing.T, w *slowWorld)), commands map[string]func(t *testing.T, w *slowWorld) error, order ...string) {
	t.Helper()
	for _, lag := range lags() {
		world(func(t *testing.T, w *slowWorld) {
			for _, name := range order {
				if longest := w.silence(t, lag, commands[name]); longest > mostSilence {
					t.Errorf("%s, each call %v: silent for %v; it said\n%s", name, lag, longest, &w.said.text)
				}
			}
		})
	}
	world(func(t *testing.T, w *slowWorld) {
		w.mute = true
		for _, name := range order {
			if longest := w.silence(t, 9*time.Second, commands[name]); longest <= mostSilence {
				t.Errorf("%s is silent for %v at most even if it says nothing of what is under way: the test shows nothing", name, longest)
			}
		}
	})
}

// through has the SDK make its calls through a transport.
func through(to http.RoundTripper) []func(*config.LoadOptions) error {
	return []func(*config.LoadOptions) error{config.WithHTTPClient(&http.Client{Transport: to})}
}

// No command of AWS is silent for long, however slow AWS and the issuer are.
func TestAWSIsNeverSilentForLong(t *testing.T) {
	key := newKey(t)
	options := func(w *slowWorld, to http.RoundTripper) aws.Options {
		return aws.Options{Options: w.options(), Config: through(to), Region: "us-east-1", ClientIDs: []string{"openshift", "sts.amazonaws.com"}, Usual: true}
	}
	heard(t, func(f func(t *testing.T, w *slowWorld)) {
		s, err := fakeaws.New(fakeaws.Options{ConsistencyDelay: 20 * time.Second})
		check(t, err)
		s.URL = "http://aws.test"
		setenv(t, s.Env())
		inSlowWorld(t, key, s, f)
	}, map[string]func(t *testing.T, w *slowWorld) error{
		"create-all": func(t *testing.T, w *slowWorld) error {
			dir := w.requests(t, `kind: AWSProviderSpec, statementEntries: [{effect: Allow, action: ["s3:GetObject"], resource: "*"}]`)
			_, err := aws.Create(t.Context(), aws.CreateOptions{Options: options(w, w.cloud), Roles: &aws.RequestedRoles{Dir: dir}})
			return err
		},
		"delete": func(t *testing.T, w *slowWorld) error {
			o := options(w, w.cloud)
			o.IssuerURL = "" // all of it
			_, err := aws.Delete(t.Context(), aws.DeleteOptions{Options: o})
			return err
		},
		"migrate": func(t *testing.T, w *slowWorld) error {
			c, err := awsiam.Open(t.Context(), awsiam.Options{Config: through(w.fast)})
			check(t, err)
			account, err := c.Account(t.Context())
			check(t, err)
			owner, trust := awsiam.OwnedBy("prod-a"), awsiam.Trust{ProviderARN: account.ProviderARN(oldURL), Issuer: oldURL, Audiences: []string{"openshift", "sts.amazonaws.com"}}
			made, err := c.PlanProvider(t.Context(), account, awsiam.Provider{URL: oldURL, ClientIDs: trust.Audiences, Owner: owner})
			check(t, err)
			roles, err := c.PlanRoles(t.Context(), trust, []awsiam.Role{{Name: "prod-a-ns-a", Subjects: []string{"system:serviceaccount:ns:a"}, Owner: owner}})
			check(t, err)
			check(t, made.Then(roles).Apply(t.Context(), 1, func(plan.Action, []string, error) {}))
			time.Sleep(time.Minute) // until it shows
			w.said.begin()
			_, err = aws.Migrate(t.Context(), aws.MigrateOptions{Options: options(w, w.cloud), Move: w.move()})
			return err
		},
	}, "create-all", "delete", "migrate")
}

// No command of Google Cloud is silent for long, however slow Google and the issuer are.
func TestGCPIsNeverSilentForLong(t *testing.T) {
	key := newKey(t)
	options := func(w *slowWorld) gcp.Options {
		return gcp.Options{Options: w.options(), Transport: w.cloud, Project: "my-project", Audiences: []string{"openshift"}, KeepAudiences: true}
	}
	accounts := func(t *testing.T, w *slowWorld) *gcp.RequestedAccounts {
		return &gcp.RequestedAccounts{Dir: w.requests(t, "kind: GCPProviderSpec, permissions: [compute.zones.list], skipServiceCheck: true")}
	}
	heard(t, func(f func(t *testing.T, w *slowWorld)) {
		s := fakegcp.New(fakegcp.Options{OperationDelay: 20 * time.Second, AccountDelay: 20 * time.Second})
		s.URL = "https://oauth2.googleapis.com"
		env, err := s.Env()
		check(t, err)
		setenv(t, env)
		inSlowWorld(t, key, s, f)
	}, map[string]func(t *testing.T, w *slowWorld) error{
		"create-all": func(t *testing.T, w *slowWorld) error {
			_, err := gcp.Create(t.Context(), gcp.CreateOptions{Options: options(w), Accounts: accounts(t, w)})
			return err
		},
		"migrate": func(t *testing.T, w *slowWorld) error { // what create-all made, to an issuer of another store
			backend, err := filestore.Create(filepath.Join(w.dir, "another store"))
			check(t, err)
			w.store = keystore.NewStore(backend)
			o := gcp.MigrateOptions{Options: options(w), Move: w.move(), Accounts: *accounts(t, w)}
			o.IssuerURL, o.Old = "https://new.example.com/prod-a", issuerURL
			_, err = gcp.Migrate(t.Context(), o)
			return err
		},
		"delete": func(t *testing.T, w *slowWorld) error {
			_, err := gcp.Delete(t.Context(), gcp.DeleteOptions{Options: options(w)})
			return err
		},
	}, "create-all", "migrate", "delete")
}

// No command of Azure is silent for long, however slow Azure and the issuer are, and while credentials wait for their turn.
func TestAzureIsNeverSilentForLong(t *testing.T) {
	const tenant, subscription = "99999999-8888-7777-6666-555555555555", "11111111-2222-3333-4444-555555555555"
	key := newKey(t)
	options := func(w *slowWorld, to http.RoundTripper) azure.Options {
		return azure.Options{Options: w.options(), Endpoint: arm.Endpoint{Transport: &http.Client{Transport: to}}, Subscription: subscription, Tenant: tenant,
			Region: "centralus", OIDCGroup: "prod-a-oidc", InstallGroup: "prod-a", Audience: azure.DefaultAudience}
	}
	identities := func(t *testing.T, w *slowWorld) azure.RequestedIdentities {
		return azure.RequestedIdentities{Dir: w.requests(t, "kind: AzureProviderSpec, permissions: [Microsoft.Compute/disks/read]")}
	}
	heard(t, func(f func(t *testing.T, w *slowWorld)) {
		s := fakeazure.New(fakeazure.Options{Tenant: tenant, Subscription: subscription, OperationDelay: 20 * time.Second, IdentityDelay: 20 * time.Second,
			FederationRate: 1})
		setenv(t, s.Env())
		inSlowWorld(t, key, s, f)
	}, map[string]func(t *testing.T, w *slowWorld) error{
		"create-all": func(t *testing.T, w *slowWorld) error {
			wanted := identities(t, w)
			_, err := azure.Create(t.Context(), azure.CreateOptions{Options: options(w, w.cloud), Identities: &wanted})
			return err
		},
		"delete": func(t *testing.T, w *slowWorld) error {
			_, err := azure.Delete(t.Context(), azure.DeleteOptions{Options: options(w, w.cloud), Group: true})
			return err
		},
		"migrate": func(t *testing.T, w *slowWorld) error {
			before := options(w, w.fast)
			before.IssuerURL, before.Report, before.Store = oldURL, nil, install.KeyStore{}
			before.Dir = t.TempDir()
			_, err := azure.CreateIdentities(t.Context(), azure.IdentitiesOptions{Options: before, Identities: identities(t, w)})
			check(t, err)
			w.said.begin()
			_, err = azure.Migrate(t.Context(), azure.MigrateOptions{Options: options(w, w.cloud), Move: w.move()})
			return err
		},
	}, "create-all", "delete", "migrate")
}

func newKey(t *testing.T) signingkey.Private {
	t.Helper()
	key, err := signingkey.Generate(signingkey.RSA2048)
	check(t, err)
	return key
}

func setenv(t *testing.T, list []string) {
	t.Helper()
	for _, v := range list {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}
