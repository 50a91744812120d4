// Keypostd publishes the discovery documents and JWKS of key sets over HTTPS. It reads one directory and dials
// nobody; its only secret is its TLS key.
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

// signalled returns a context that ends with the first SIGTERM or SIGINT. After that they act as they do by default, so
// that a second one ends the process at once, whatever hangs.
func signalled() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
