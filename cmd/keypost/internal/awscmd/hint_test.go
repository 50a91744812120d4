package awscmd

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/shell"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/install"
)

// What is to be done about an audience, which a provider or somebody's token has, pastes whatever it is.
func TestHintsQuoteAudiences(t *testing.T) {
	for _, hostile := range []string{"$(touch x)", "`touch x`", "a;touch x;", "it's", "-x;y", "a b"} {
		lost := &install.Error{Problem: install.LostAudience, Audience: hostile, Provider: "arn:aws:iam::123456789012:oidc-provider/x"}
		r := &run{}
		said := hintOf(t, r.hint(lost))
		first, second, _ := strings.Cut(strings.TrimPrefix(said, "add "), "; or, if no pod needs it, take it away first: ")
		unknown := *lost
		unknown.Problem = install.UnknownAudience
		third := hintOf(t, r.hint(&unknown))
		provider := []string{"--open-id-connect-provider-arn", lost.Provider}
		id := []string{"--client-id", hostile}
		joined := id
		if strings.HasPrefix(hostile, "-") {
			joined = []string{"--client-id=" + hostile}
		}
		for line, want := range map[string][]string{
			first:  id,
			second: slices.Concat([]string{"aws", "iam", "remove-client-id-from-open-id-connect-provider"}, provider, joined),
			third:  slices.Concat([]string{"aws", "iam", "add-client-id-to-open-id-connect-provider"}, provider, joined),
		} {
			if got, err := shell.Fields(line, nil); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s is %q, %v; want %q", line, got, err, want)
			}
		}
	}
}

// hintOf returns the hint of an error as it is printed.
func hintOf(t *testing.T, err error) string {
	t.Helper()
	hinted, is := errors.AsType[*cli.HintedError](err)
	if !is {
		t.Fatalf("no hint: %v", err)
	}
	return hinted.Hint(&cli.Factory{})
}
