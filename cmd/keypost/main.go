// Command keypost is the command line of keypost: it writes key sets, rotates their keys and looks at what is
// published as a relying party does. Every command is a few flags, one call, and what it printed; what changes
// relying parties' trust is decided in package keystore.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
)

func main() { begin("") }

// begin runs the program. Where connect is not empty, issuers are looked for there: stand-ins of tests, which no DNS leads to.
func begin(connect string) {
	// Nothing that may hang runs on the main thread: the kernel gives that thread each signal, and a thread that waits for a file
	// system does not take it.
	runtime.LockOSThread()
	if cli.Completing(os.Args[1:]) {
		cli.Quiet()
	}
	ctx, code := interruptible(), make(chan int)
	go func() {
		code <- run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, connect: connect})
	}()
	os.Exit(<-code)
}

// interruptible returns a context that ends with the first SIGINT or SIGTERM. The second ends the process, whatever hangs, such as a
// read from a file server that is gone: nothing that is left to do is waited for.
func interruptible() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		first := cli.Interruption{Signal: <-signals}
		cancel(first)
		select {
		case <-signals:
		case <-time.After(time.Second):
			_, _ = fmt.Fprintln(os.Stderr, "keypost: stopping; interrupt it once more to end it at once")
			<-signals
		}
		os.Exit(first.Code())
	}()
	return ctx
}
