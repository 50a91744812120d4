package main

import (
	"testing"

	"github.com/keypost/keypost/test/commands"
)

// Every keypost-signer command that the documentation and the unit have is one that it takes.
func TestDocumentedCommandsParse(t *testing.T) {
	all, err := commands.All("../..")
	if err != nil {
		t.Fatal(err)
	}
	mine := commands.For(all, "keypost-signer")
	if len(mine) < 3 {
		t.Fatalf("only %d commands were found", len(mine))
	}
	for _, c := range mine {
		if c.Mention && len(c.Words) == 1 {
			continue // the program as such
		}
		if _, err := parseFlags(c.Words[1:]); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
}
