// Command keypost is the command line of keypost: it writes key sets, rotates their keys and looks at what is
// published as a relying party does. Every command is a few flags, one call, and what it printed; what changes
// relying parties' trust is decided in package keystore.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
)

func main() {
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
		// Whatever hangs, such as a read from a file server that is gone: nothing that is left to do is waited for.
		os.Exit(first.Code())
	}()
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	os.Exit(code)
}
