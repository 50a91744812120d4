package iam_test

import (
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
)

// Google's rules are kept before the first call.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(w *iam.Wanted)
		want   string // empty: it is well
	}{
		{"all well", func(*iam.Wanted) {}, ""},
		{"short pool", func(w *iam.Wanted) { w.Pool.ID = "abc" }, `the name of the workload identity pool, "abc", must have 4 to 32`},
		{"capitals", func(w *iam.Wanted) { w.Provider.ID = "Demo" }, `the name of the workload identity provider, "Demo"`},
		{"Google's own", func(w *iam.Wanted) { w.Provider.Pool = "gcp-x" }, "not begin with gcp-"},
		{"no audience", func(w *iam.Wanted) { w.Provider.Audiences = nil }, "0 audiences: a provider has 1 to 10"},
		{"eleven audiences", func(w *iam.Wanted) { w.Provider.Audiences = strings.Split("a b c d e f g h i j k", " ") }, "11 audiences"},
		{"ten audiences and one twice", func(w *iam.Wanted) { w.Provider.Audiences = strings.Split("a b c d e f g h i j j", " ") }, ""},
		{"keys", func(w *iam.Wanted) { w.Provider.JWKS = []byte("x") }, "the JWKS to upload"},
		{"no owner", func(w *iam.Wanted) { w.Accounts.Owner = federation.Owner{} }, "have no owner"},
		{"name with a mark", func(w *iam.Wanted) { w.Accounts.Owner = federation.OwnedBy("demo; installation x") }, "the installation's name"},
		{"no subjects", func(w *iam.Wanted) { w.Accounts.List[0].Subjects = nil }, "no service account of the cluster is named"},
		{"subject of 127 bytes", func(w *iam.Wanted) {
			w.Accounts.List[0].Subjects = []string{"system:serviceaccount:" + strings.Repeat("n", 52) + ":" + strings.Repeat("a", 52)}
		}, ""},
		{"subject of 128 bytes", func(w *iam.Wanted) {
			w.Accounts.List[0].For = "CredentialsRequest a/b (c.yaml)"
			w.Accounts.List[0].Subjects = []string{"system:serviceaccount:" + strings.Repeat("n", 52) + ":" + strings.Repeat("a", 53)}
		}, "has 128 bytes, and Google refuses the tokens of those with more than 127"},
		{"no subject", func(w *iam.Wanted) { w.Accounts.List[0].Subjects = []string{"ns:name"} }, `"ns:name" is not a service account's subject`},
		{"ID", func(w *iam.Wanted) { w.Accounts.List[0].ID = "1abcdef" }, `its ID "1abcdef" must have 6 to 30`},
		{"installation that begins with a digit", func(w *iam.Wanted) { w.Accounts.Owner = federation.OwnedBy("1abc") }, "begin with a letter"},
		{"twice", func(w *iam.Wanted) { w.Accounts.List[1].Request = w.Accounts.List[0].Request }, "come to the same account"},
		{"display names that are cut to one", func(w *iam.Wanted) {
			w.Accounts.List[0].Request, w.Accounts.List[1].Request = strings.Repeat("r", 49)+"-one", strings.Repeat("r", 49)+"-two"
		}, "come to the same display name demo-rrr"},
		{"roles of one name", func(w *iam.Wanted) {
			w.Accounts.List[1].Request, w.Accounts.List[2].Request = "a-bc", "ab-c"
		}, "come to the same custom role abc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := installation("demo")
			tt.change(&w)
			err := w.Check()
			if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
