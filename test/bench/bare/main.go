// Bare serves a recording of keypostd's answers over TLS, with as little work as net/http allows (see floor).
package main

import (
	"fmt"
	"os"

	"github.com/keypost/keypost/test/bench/floor"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: bare ADDRESS CERT KEY RECORDING")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

func serve(address, cert, key, recording string) error {
	r, err := floor.Read(recording)
	if err != nil {
		return err
	}
	return floor.NewServer(address, floor.NewHandler(r)).ListenAndServeTLS(cert, key)
}
