package awscmd

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/install"
)

// The command that makes a provider has every flag that it needs, and no role's name for the installation's.
func TestCreateProviderIsWhole(t *testing.T) {
	for name, tt := range map[string]struct {
		flags flags
		store string
		want  []string // --name, --region, --public-key-file, --store
	}{
		"a role's name": {
			flags: flags{Options: install.Options{Name: "backup"}, forRole: true},
			want:  []string{"NAME", "REGION", "FILE", "STORE"},
		},
		"as it is known": {
			flags: flags{Options: install.Options{Name: "prod-a", Region: "us-east-1", Account: "123456789012", Dev: true}},
			store: "file:///keys",
			want:  []string{"prod-a", "us-east-1", "FILE", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{Factory: &cli.Factory{}, flags: &tt.flags}
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
			if got := []string{value("name"), value("region"), value("public-key-file"), *store}; !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if value("account") != tt.flags.Account || (value("dev") == "true") != tt.flags.Dev {
				t.Errorf("%q lacks --account or --dev", rest)
			}
		})
	}
}
