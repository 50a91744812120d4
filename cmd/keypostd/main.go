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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "keypostd:", err)
	}
	os.Exit(code)
}
