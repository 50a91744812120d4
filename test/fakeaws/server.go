package fakeaws

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/keypost/keypost/test/fakecloud"
)

// Options say what sort of account the server plays. The zero value is a friendly one: nothing lags, nothing is
// throttled, the caller may do everything.
type Options struct {
	Partition string // default aws

	// Policy is the caller's identity policy, a JSON document: what it does not allow is denied. Empty allows everything.
	Policy string
	// AllowPorts lets issuer URLs carry a port, which AWS advises against and this server otherwise refuses.
	AllowPorts bool

	WritesPerSecond  float64       // more IAM writes than this are throttled, after a burst of as many; 0: no limit
	ConsistencyDelay time.Duration // reads, and STS, see a change this much later; a write sees everything at once
	Latency          time.Duration // added to every call, in real time
	TrustLimit       int           // characters that a trust policy may have; default 2048
	PageSize         int           // the longest page of a list, whatever MaxItems asks for; default 100

	// Dial reaches issuers; its address is that of the URL, host:443. nil: issuers cannot be reached, a provider made
	// without a thumbprint is given one, and no web identity token is accepted.
	Dial fakecloud.Dial
	// Roots are what AWS trusts without a thumbprint. nil: nothing, so that every issuer needs a thumbprint.
	Roots *x509.CertPool
	// Now is the clock of everything but Latency. default time.Now.
	Now func() time.Time
}

// Server is IAM and STS on one port. It is an http.Handler, but only Serve sends each reply in one write.
type Server struct {
	URL string // where it listens, once it does

	options Options
	memory  *fakecloud.Memory // nil where it listens
	caller  identity
	allowed *document // nil allows everything
	keys    *keyCache

	fakecloud.Record

	mu       sync.Mutex
	history  fakecloud.History[world]
	serial   int
	tokens   fakecloud.Bucket
	sessions map[string]session // by access key ID
}

// New makes a server that does not listen yet.
func New(o Options) (*Server, error) {
	o = withDefaults(o)
	s := &Server{
		options:  o,
		keys:     newKeyCache(o),
		history:  fakecloud.NewHistory(world{}),
		tokens:   fakecloud.Bucket{Rate: o.WritesPerSecond},
		sessions: map[string]session{},
	}
	s.caller = identity{arn: s.arn("iam", "user/provisioner"), id: "AIDAFAKEAWSUSER00001", user: true}
	if o.Policy != "" {
		d, err := parseDocument(o.Policy)
		if err != nil {
			return nil, fmt.Errorf("the caller's policy: %w", err)
		}
		s.allowed = &d
	}
	return s, nil
}

func withDefaults(o Options) Options {
	if o.Partition == "" {
		o.Partition = "aws"
	}
	if o.TrustLimit == 0 {
		o.TrustLimit = trustLimit
	}
	if o.PageSize == 0 {
		o.PageSize = 100
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Start listens on a free port of 127.0.0.1 until the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.URL = fakecloud.Start(t, "fakeaws", s.Serve)
	return s
}

// StartMemory is Start without a network: nobody but the clients of its Config finds the server.
func StartMemory(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	l := fakecloud.StartMemory(t, s.Serve)
	s.URL, s.memory = "http://fakeaws.test", &l
	return s
}

// Serve answers on l until l is closed. Every reply leaves in one write: the SDK now and then reports a lost connection
// when headers and body come apart, and a test should not fail for that.
func (s *Server) Serve(l net.Listener) error {
	return fakecloud.Serve(holdingListener{l}, &http.Server{Handler: s, ConnContext: withConn}) //nolint:gosec // Serve sets the limit
}

// Env is what a process needs in its environment to talk to the server and to nothing else.
func (s *Server) Env() []string {
	region := regionOf(s.options.Partition)
	return []string{
		"AWS_ENDPOINT_URL=" + s.URL,
		"AWS_ACCESS_KEY_ID=" + AccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + secretAccessKey,
		"AWS_SESSION_TOKEN=",
		"AWS_REGION=" + region,
		"AWS_DEFAULT_REGION=" + region,
		"AWS_CA_BUNDLE=",
		"AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=" + os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
	}
}

// Config is Env for the SDK, without an environment.
func (s *Server) Config() []func(*config.LoadOptions) error {
	options := []func(*config.LoadOptions) error{
		config.WithBaseEndpoint(s.URL),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(AccessKeyID, secretAccessKey, "")),
		config.WithRegion(regionOf(s.options.Partition)),
		config.WithSharedConfigFiles([]string{os.DevNull}),
		config.WithSharedCredentialsFiles([]string{os.DevNull}),
	}
	if s.memory != nil {
		options = append(options, config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.Proxy = nil
			t.DialContext = s.memory.DialContext
		})))
	}
	return options
}

func regionOf(partition string) string {
	switch partition {
	case "aws-us-gov":
		return "us-gov-west-1"
	case "aws-cn":
		return "cn-north-1"
	case "aws-iso":
		return "us-iso-east-1"
	case "aws-iso-b":
		return "us-isob-east-1"
	case "aws-iso-e":
		return "eu-isoe-west-1"
	case "aws-iso-f":
		return "us-isof-south-1"
	case "aws-eusc":
		return "eusc-de-east-1"
	}
	return "us-east-1"
}

// arn names something in the account: service iam or sts, resource with its kind, "role/x".
func (o Options) arn(service, resource string) string {
	return "arn:" + o.Partition + ":" + service + "::" + account + ":" + resource
}

func (s *Server) arn(service, resource string) string { return s.options.arn(service, resource) }

// State is what the account holds now, whatever reads may see of it yet.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present().state()
}

func (s *Server) present() world { return s.history.Present() }

// view is the account as reads see it at this time.
func (s *Server) view(now time.Time) world { return s.history.View(now, s.options.ConsistencyDelay) }

// commit makes w the present.
func (s *Server) commit(w world, now time.Time) { s.history.Commit(w, now, s.options.ConsistencyDelay) }
