// Keypostd publishes the discovery documents and JWKS of key sets over HTTPS. It reads one directory and dials nobody but
// an ACME CA, if it is told to; its only secrets are its TLS keys and the account there.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	code, err := run(signalled, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "keypostd:", err)
	}
	os.Exit(code)
}

// signalled returns a context that ends with the first SIGTERM or SIGINT. By then they act as they do by default again,
// so that a second one ends the process at once, whatever hangs. The order matters, which is why this is not
// signal.NotifyContext: a second signal that followed closely would be caught and mean nothing.
func signalled() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer cancel()
		defer signal.Stop(signals)
		select {
		case <-signals:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
