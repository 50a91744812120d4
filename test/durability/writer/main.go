// Command writer changes the key set prod-a of a directory until its work is done or it is killed, and prints the
// generation after every change that is durable. Tests start it, trace it and kill it. It is a program of its own so
// that it runs without the race detector, whose runtime would be most of what is traced and killed.
//
//	writer DIR endless     numbered changes, for ever
//	writer DIR WORD COUNT  changes that leave the marks WORD-0, WORD-1 …
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "writer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("want DIR and what to do, not %q", args)
	}
	st, err := filestore.Open(args[0])
	if err != nil {
		return err
	}
	if args[1] == "endless" {
		for {
			if err := report(keystore.Update(context.Background(), keystore.NewStore(st), "prod-a", storetest.Numbered)); err != nil {
				return err
			}
		}
	}
	n, err := strconv.Atoi(args[len(args)-1])
	if err != nil {
		return err
	}
	for i := range n {
		mark := storetest.Mark(args[1] + "-" + strconv.Itoa(i))
		if err := report(keystore.Update(context.Background(), keystore.NewStore(st), "prod-a", mark)); err != nil {
			return err
		}
	}
	return nil
}

// report prints in one write, so that a kill cannot leave half a number.
func report(s keystore.KeySet, err error) error {
	if err == nil {
		_, err = os.Stdout.WriteString(strconv.FormatInt(s.Generation(), 10) + "\n")
	}
	return err
}
