// Run serves test/fakeaws on one address, for clients that are not Go tests. It prints the environment that a client
// needs, its URL first, and keeps everything in memory until it is ended.
package main

import (
	"flag"
	"log"
	"net"
	"os"

	"github.com/keypost/keypost/test/fakeaws"
	"github.com/keypost/keypost/test/fakecloud"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("fakeaws: ", err)
	}
}

func run() error {
	var o fakeaws.Options
	common := fakecloud.NewFlags()
	policy := flag.String("policy-file", "", "the caller's identity policy, a JSON `file`; empty: everything is allowed")
	flag.StringVar(&o.Account, "account", "", "account `ID`")
	flag.StringVar(&o.Partition, "partition", "aws", "`partition`")
	flag.BoolVar(&o.AllowPorts, "allow-ports", false, "let issuer URLs have a port")
	flag.Float64Var(&o.WritesPerSecond, "writes-per-second", 0, "throttle IAM writes beyond this `rate`; 0: never")
	flag.DurationVar(&o.ConsistencyDelay, "consistency-delay", 0, "`time` after which reads see a change")
	flag.DurationVar(&o.Latency, "latency", 0, "`time` added to every call")
	flag.Parse()

	var err error
	if o.Dial, o.Roots, err = common.Issuers(); err != nil {
		return err
	}
	if *policy != "" {
		text, err := os.ReadFile(*policy)
		if err != nil {
			return err
		}
		o.Policy = string(text)
	}
	return serve(o, common.Listen)
}

func serve(o fakeaws.Options, address string) error {
	s, err := fakeaws.New(o)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s.URL = "http://" + l.Addr().String()
	fakecloud.Announce(s.URL, s.Env())
	return s.Serve(l)
}
