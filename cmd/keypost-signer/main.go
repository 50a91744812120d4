// Keypost-signer signs service account tokens for the kube-apiserver beside it, with the key that the cluster's key set says. It
// dials nobody but the service that holds its keys.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may end before this process does
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "keypost-signer:", err)
	}
	os.Exit(code)
}
