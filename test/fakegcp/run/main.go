// Run serves test/fakegcp on one address, for clients that are not Go tests. It prints its URL and then, a line each, the
// environment that the caller needs, and keeps everything in memory until it is ended. Clients that insist on Google's own
// host names find it under HTTPS, when it is given a certificate for them and the names lead here.
package main

import (
	"flag"
	"log"
	"net"
	"strings"

	"github.com/keypost/keypost/test/fakecloud"
	"github.com/keypost/keypost/test/fakegcp"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("fakegcp: ", err)
	}
}

// place is where the server listens.
type place struct{ address, certificate, key string }

func run() error {
	var o fakegcp.Options
	common := fakecloud.NewFlags()
	var at place
	flag.StringVar(&at.certificate, "cert-file", "", "PEM `file` of a certificate, for HTTPS; empty: plain HTTP")
	flag.StringVar(&at.key, "key-file", "", "PEM `file` of its key")
	permissions := flag.String("permissions", "", "what the caller may do, `names` with commas between; empty: everything")
	flag.StringVar(&o.Project, "project", "", "project `ID`")
	flag.StringVar(&o.Number, "number", "", "project `number`")
	flag.IntVar(&o.OperationPolls, "operation-polls", 0, "an operation is done when it was asked for so `often`")
	flag.DurationVar(&o.OperationDelay, "operation-delay", 0, "an operation is done after this `time`")
	flag.DurationVar(&o.AccountDelay, "account-delay", 0, "`time` after which a new service account is known")
	flag.DurationVar(&o.ConsistencyDelay, "consistency-delay", 0, "`time` after which reads see a change")
	flag.DurationVar(&o.Latency, "latency", 0, "`time` added to every call")
	flag.Float64Var(&o.WritesPerSecond, "writes-per-second", 0, "throttle writes beyond this `rate`; 0: never")
	flag.Parse()

	if *permissions != "" {
		o.Permissions = strings.Split(*permissions, ",")
	}
	var err error
	if o.Dial, o.Roots, err = common.Issuers(); err != nil {
		return err
	}
	at.address = common.Listen
	return serve(o, at)
}

func serve(o fakegcp.Options, at place) error {
	s := fakegcp.New(o)
	l, err := net.Listen("tcp", at.address)
	if err != nil {
		return err
	}
	s.URL = "http://" + l.Addr().String()
	if at.certificate != "" {
		s.URL = "https://" + l.Addr().String()
	}
	environment, err := s.Env()
	if err != nil {
		return err
	}
	fakecloud.Announce(s.URL, environment)
	if at.certificate != "" {
		return s.ServeTLS(l, at.certificate, at.key)
	}
	return s.Serve(l)
}
