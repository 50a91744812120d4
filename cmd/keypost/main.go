// Command keypost is the command line of keypost: it writes key sets, rotates their keys and looks at what is
// published as a relying party does. Every command is a few flags, one call, and what it printed; what changes
// relying parties' trust is decided in package keystore.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

func main() { begin("") }

// begin runs the program. Where connect is not empty, issuers are looked for there: stand-ins of tests, which no DNS leads to.
func begin(connect string) {
	// Nothing that may hang runs on the main thread: the kernel gives that thread each signal, and a thread that waits for a file
	// system does not take it.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process, whatever hangs
	code := make(chan int)
	go func() {
		code <- run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, connect: connect})
	}()
	os.Exit(<-code)
}
