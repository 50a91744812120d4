package awscmd

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/shell"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/install"
)

// The command that makes a provider has every flag that it needs, and no role's name for the installation's.
func TestCreateProviderIsWhole(t *testing.T) {
	for name, tt := range map[string]struct {
		flags flags
		store string
		want  []string // --name, --region, --store
	}{
		"a role's name": {
			flags: flags{Options: aws.Options{Options: install.Options{Name: "backup"}}, forRole: true},
			want:  []string{"NAME", "REGION", "STORE"},
		},
		"as it is known": {
			flags: flags{Options: aws.Options{Options: install.Options{Name: "prod-a", Dev: true}, Region: "us-east-1", Account: "123456789012"}},
			store: "file:///keys",
			want:  []string{"prod-a", "us-east-1", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{Run: &cloudcmd.Run{Factory: &cli.Factory{}}, flags: &tt.flags}
			r.Store = tt.store
			root := &cobra.Command{Use: "keypost"}
			store := root.PersistentFlags().String("store", "", "")
			root.AddCommand(NewCmdAWS(&cli.Factory{}))
			c, rest, err := root.Find(r.createProvider("https://oidc.example.com/prod-a"))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.ParseFlags(rest); err != nil {
				t.Fatal(err)
			}
			if err := c.ValidateRequiredFlags(); err != nil || c.Name() != "create-identity-provider" || c.Flags().NArg() > 0 {
				t.Errorf("%s %q: %v", c.Name(), rest, err)
			}
			value := func(flag string) string { return c.Flags().Lookup(flag).Value.String() }
			if got := []string{value("name"), value("region"), *store}; !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if value("account") != tt.flags.Account || (value("dev") == "true") != tt.flags.Dev {
				t.Errorf("%q does not have --account or --dev", rest)
			}
		})
	}
}

// What is to be done about an audience, which a provider or somebody's token has, pastes whatever it is.
func TestHintsQuoteAudiences(t *testing.T) {
	for _, hostile := range []string{"$(touch x)", "`touch x`", "a;touch x;", "it's", "-x;y", "a b"} {
		lost := &install.Error{Problem: install.LostAudience, Audience: hostile, Provider: "arn:aws:iam::123456789012:oidc-provider/x"}
		r := &run{Run: &cloudcmd.Run{Factory: &cli.Factory{}}, flags: &flags{}}
		said := hintOf(t, (&migrateFlags{}).hinted(r, lost))
		first, second, _ := strings.Cut(strings.TrimPrefix(said, "add "), "; or, if no pod needs it, take it away first: ")
		unknown := *lost
		unknown.Problem = install.UnknownAudience
		third := hintOf(t, r.hinted(&unknown))
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
