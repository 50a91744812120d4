package main

import (
	"strings"
	"testing"

	"github.com/keypost/keypost/test/commands"
)

// Every keypostd command that the documentation and the systemd unit have is one that keypostd takes.
func TestDocumentedCommandsParse(t *testing.T) {
	all, err := commands.All("../..")
	if err != nil {
		t.Fatal(err)
	}
	mine := commands.For(all, "keypostd")
	if len(mine) < 3 {
		t.Fatalf("only %d commands were found", len(mine))
	}
	for _, c := range mine {
		if c.Mention && len(c.Words) == 2 && new(options).flags().Lookup(strings.TrimLeft(c.Words[1], "-")) != nil {
			continue // "keypostd --dev" as such
		}
		if _, err := parseFlags(c.Words[1:]); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
}
