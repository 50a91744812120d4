package webidentity

import (
	"slices"
	"testing"

	"mvdan.cc/sh/v3/shell"
)

// A command that is printed pastes, whatever an account or a token has in it.
func TestCommandQuotes(t *testing.T) {
	for _, hostile := range []string{"$(touch x)", "`touch x`", "a;b", "it's", "a b", `a"b`, "~", "*"} {
		got, err := shell.Fields(Command("add-it", "--client-id", hostile, "--name", "-"+hostile), nil)
		if want := []string{"aws", "iam", "add-it", "--client-id", hostile, "--name=-" + hostile}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}
