package fakegcp

import (
	"crypto/x509"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
	"github.com/keypost/keypost/test/fakecloud/issuerkeys"
)

// Options say what sort of project the server plays. The zero value is a friendly one: nothing lags, operations are done
// at once, nothing is throttled, the caller may do everything.
type Options struct {
	Project string // its ID; default my-project
	Number  string // default 123456789012

	// Permissions are what the caller may do, as "iam.roles.create". nil: everything.
	Permissions []string
	// AllowedIssuers is the organisation policy constraints/iam.workloadIdentityPoolProviders. nil: there is none.
	AllowedIssuers []string

	// ReviveProviders lets the undeletion of a pool bring back the providers that were deleted with it. Google does not
	// say whether it does.
	ReviveProviders bool

	OperationPolls   int           // an operation is done only when it was asked for so often
	OperationDelay   time.Duration // and not before this time has passed
	AccountDelay     time.Duration // a new service account is not known for this time, to reads and to policies
	PoolDelay        time.Duration // a new pool is not known to policies for this time
	ConsistencyDelay time.Duration // reads, and exchanges, see a change this much later; a write sees everything at once
	WritesPerSecond  float64       // more writes than this are throttled, after a burst of as many; 0: no limit
	// FederationWritesPerMinute throttles the writes of pools and providers: Google's quota is 60 a minute. 0: no limit.
	FederationWritesPerMinute float64
	AccountLimit              int // service accounts that the project may have; default 100
	PageSize                  int // the longest page of a list, whatever is asked for; 0: Google's

	// Dial reaches issuers; its address is that of the URL, host:443. nil: issuers cannot be reached.
	Dial fakecloud.Dial
	// Roots are the CAs that Google trusts. nil: none.
	Roots *x509.CertPool
	// Now is the clock of everything. Default time.Now.
	Now func() time.Time
}

// Server is IAM, Resource Manager, STS, IAM Credentials, the token endpoint on one port. It
// is an http.Handler. A request for one of Google's hosts finds only that service; any other host finds all of them.
type Server struct {
	URL string // where it listens, once it does

	options Options
	routes  []route
	keys    *issuerkeys.Cache
	signer  func() caller

	fakecloud.Record

	mu         sync.Mutex
	history    fakecloud.History[world]
	serial     int
	writes     fakecloud.Bucket
	federation fakecloud.Bucket
	tokens     map[string]identity // by access token
}

// New makes a server that does not listen yet.
func New(o Options) *Server {
	o = withDefaults(o)
	return &Server{
		options:    o,
		routes:     routes(),
		keys:       issuerkeys.New(o.Dial, o.Roots, o.Now),
		signer:     sync.OnceValue(newCaller),
		history:    fakecloud.NewHistory(world{}),
		writes:     fakecloud.Bucket{Rate: o.WritesPerSecond},
		federation: fakecloud.Bucket{Rate: o.FederationWritesPerMinute / 60},
		tokens:     map[string]identity{AccessToken: {email: callerEmail(o)}},
	}
}

func withDefaults(o Options) Options {
	if o.Project == "" {
		o.Project = "my-project"
	}
	if o.Number == "" {
		o.Number = "123456789012"
	}
	if o.AccountLimit == 0 {
		o.AccountLimit = 100
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Start listens on a free port of 127.0.0.1 until the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := New(o)
	s.URL = fakecloud.Start(t, "fakegcp", s.Serve)
	return s
}

// Serve answers on l until l is closed.
func (s *Server) Serve(l net.Listener) error { return fakecloud.Serve(l, &http.Server{Handler: s}) } //nolint:gosec // Serve sets the limit

// ServeTLS is Serve over HTTPS, with HTTP/2 too, as Google's hosts are. The files are PEM.
func (s *Server) ServeTLS(l net.Listener, certificate, key string) error {
	return fakecloud.ServeTLS(l, &http.Server{Handler: s}, certificate, key) //nolint:gosec // ServeTLS sets the limit
}

// Env is what the caller's process needs in its environment to be the caller. The server's URL is not in it: Google's clients
// have no variable for that.
func (s *Server) Env() ([]string, error) {
	credentials, err := s.Credentials()
	return []string{"GOOGLE_CREDENTIALS=" + credentials}, err
}

// Client is an HTTP client that finds the server at every host, so that a client with Google's own URLs, as a Secret
// has them, needs no other name resolution and no TLS. It follows no proxy and adds no credentials.
func (s *Server) Client() *http.Client { return fakecloud.Client(s.URL, nil) }

// CallerClient is Client with the caller's access token on every request.
func (s *Server) CallerClient() *http.Client {
	return fakecloud.Client(s.URL, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+AccessToken) })
}

// State is what the project holds now, whatever reads may see of it yet.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.options.Now()
	return s.present(now).state()
}

// present is the project as writes see it. Operations whose time has come are done first.
func (s *Server) present(now time.Time) world {
	w := s.history.Present()
	due := slices.ContainsFunc(w.operations, func(op operation) bool { return !op.done && op.polls == 0 && !now.Before(op.ready) })
	if due {
		w = w.settled(now)
		s.commit(w, now)
	}
	return w.purged(now)
}

// view is the project as reads see it at this time.
func (s *Server) view(now time.Time) world {
	s.present(now)
	return s.history.View(now, s.options.ConsistencyDelay).purged(now)
}

// commit makes w the present.
func (s *Server) commit(w world, now time.Time) { s.history.Commit(w, now, s.options.ConsistencyDelay) }
