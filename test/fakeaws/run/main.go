// Run serves test/fakeaws on one address, for clients that are not Go tests. It prints the environment that a client
// needs, its URL first, and keeps everything in memory until it is ended.
package main

import (
	"flag"
	"fmt"
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
	listen := flag.String("listen", "127.0.0.1:0", "`address` to listen on")
	roots := flag.String("ca-file", "", "PEM `file` of the CAs that need no thumbprint")
	issuers := flag.String("issuers", "", "`address` at which every issuer is reached, or direct; empty: none is")
	policy := flag.String("policy-file", "", "the caller's identity policy, a JSON `file`; empty: everything is allowed")
	flag.StringVar(&o.Account, "account", "", "account `ID`")
	flag.StringVar(&o.Partition, "partition", "aws", "`partition`")
	flag.BoolVar(&o.AllowPorts, "allow-ports", false, "let issuer URLs have a port")
	flag.Float64Var(&o.WritesPerSecond, "writes-per-second", 0, "throttle IAM writes beyond this `rate`; 0: never")
	flag.DurationVar(&o.ConsistencyDelay, "consistency-delay", 0, "`time` after which reads see a change")
	flag.DurationVar(&o.Latency, "latency", 0, "`time` added to every call")
	flag.Parse()

	var err error
	if o.Roots, err = fakecloud.Pool(*roots); err != nil {
		return err
	}
	if *policy != "" {
		text, err := os.ReadFile(*policy)
		if err != nil {
			return err
		}
		o.Policy = string(text)
	}
	o.Dial = fakecloud.Dialer(*issuers)
	return serve(o, *listen)
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
	fmt.Println(s.URL)
	for _, line := range s.Env() {
		fmt.Println(line)
	}
	return s.Serve(l)
}
