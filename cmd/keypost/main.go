// Command keypost is the command line of keypost: it writes key sets, rotates their keys and looks at what is
// published as a relying party does. Every command is a few flags, one call, and what it printed; what changes
// relying parties' trust is decided in package keystore.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}
