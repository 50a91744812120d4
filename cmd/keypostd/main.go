// Keypostd publishes the discovery documents and JWKS of key sets over HTTPS. It reads one directory and dials nobody but
// an ACME CA, if it is told to; its only secrets are its TLS keys and the account there.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

func main() {
	// No goroutine but this one, which only waits, is to run on the main thread. The kernel gives that thread each SIGTERM, and a
	// thread that waits for a file system that hangs does not take it before the file system answers.
	runtime.LockOSThread()
	code, err := run(signalled, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "keypostd:", err)
	}
	os.Exit(code)
}

// signalled returns a context that ends with the first SIGTERM, SIGINT or SIGHUP. Anyone who sends SIGHUP to have the configuration read
// again gets a drain: files are read again by themselves, and a configuration needs a restart. A child of nohup ignores it, as ever.
//
// By then the signals act as they do by default again, so that a second one ends the process at once, whatever hangs. The order
// matters, which is why this is not signal.NotifyContext: a second signal that followed closely would be caught and mean nothing.
func signalled() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
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
