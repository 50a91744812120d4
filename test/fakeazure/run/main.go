// Run serves test/fakeazure on one address, for clients that are not Go tests. It prints its URL and then, a line each, the
// environment that the caller needs, and keeps everything in memory until it is ended. Clients that insist on Microsoft's own
// host names find it through its HTTPS proxy, when it is given a directory for the certificate that they must trust.
package main

import (
	"flag"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/devca"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/fakecloud"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("fakeazure: ", err)
	}
}

func run() error {
	var o fakeazure.Options
	common := fakecloud.NewFlags()
	proxy := flag.String("proxy", "", "`directory` for the certificate of Microsoft's hosts, with an HTTPS proxy that leads them here; empty: none")
	permissions := flag.String("permissions", "", "what the caller may do, `actions` with commas between; empty: everything")
	flag.StringVar(&o.Tenant, "tenant", "", "tenant `ID`")
	flag.StringVar(&o.Subscription, "subscription", "", "subscription `ID`")
	flag.BoolVar(&o.VaryCase, "vary-case", false, "give IDs in varying letter case")
	flag.DurationVar(&o.IdentityDelay, "identity-delay", 0, "`time` after which a new identity can have federated credentials")
	flag.DurationVar(&o.PrincipalDelay, "principal-delay", 0, "`time` after which a new identity is found in the directory")
	flag.DurationVar(&o.AuthorizationDelay, "authorization-delay", 0, "`time` after which reads of roles and assignments see a change")
	flag.DurationVar(&o.Latency, "latency", 0, "`time` added to every call")
	flag.Float64Var(&o.WritesPerSecond, "writes-per-second", 0, "throttle writes beyond this `rate`; 0: never")
	flag.Float64Var(&o.FederationRate, "federation-rate", 0, "so many `times` the documented rates of federated credentials; 0: no limit")
	flag.Parse()

	if *permissions != "" {
		o.Permissions = strings.Split(*permissions, ",")
	}
	var err error
	if o.Dial, o.Roots, err = common.Issuers(); err != nil {
		return err
	}
	return serve(o, common.Listen, *proxy)
}

func serve(o fakeazure.Options, address, proxy string) error {
	s := fakeazure.New(o)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s.URL = "http://" + l.Addr().String()
	environment := s.Env()
	failed := make(chan error, 3)
	if proxy != "" {
		more, err := tunnel(s, proxy, failed)
		if err != nil {
			return err
		}
		environment = append(environment, more...)
	}
	fakecloud.Announce(s.URL, environment)
	go func() { failed <- s.Serve(l) }()
	return <-failed
}

// tunnel serves over HTTPS, and a proxy to there.
func tunnel(s *fakeazure.Server, dir string, failed chan<- error) ([]string, error) {
	certificate, key, err := devca.Ensure(dir, fakeazure.Hosts(), time.Now())
	if err != nil {
		return nil, err
	}
	behind, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() { failed <- s.ServeTLS(behind, certificate, key) }()
	go func() {
		failed <- fakecloud.Serve(front, &http.Server{Handler: fakeazure.Tunnel(behind.Addr().String())}) //nolint:gosec // Serve sets the limit
	}()
	ca := filepath.Join(dir, "ca.pem")
	return []string{"HTTPS_PROXY=http://" + front.Addr().String(), "SSL_CERT_FILE=" + ca, "NODE_EXTRA_CA_CERTS=" + ca}, nil
}
