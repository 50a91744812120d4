package azure_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/iam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakeazure"
)

// least returns what the README tells people to allow. The first only finds a mistake early.
func least(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	must(t, err)
	_, rest, _ := strings.Cut(string(text), "```json\n")
	block, _, _ := strings.Cut(rest, "```")
	var list []string
	must(t, json.Unmarshal([]byte(block), &list))
	return list
}

// These permissions are enough for everything, and each is needed for something.
func TestLeastPermissions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		everything := func(permissions []string) map[string]bool {
			w := newWorld(t, fakeazure.Options{Permissions: permissions})
			o := w.identities(t, usual()...)
			o.IssuerURL = "https://prod-a.blob.core.windows.net/prod-a"
			o.Tags = map[string]string{"a": "b", iam.MovedAtTag("prod-a", o.IssuerURL): "2020-01-01T00:00:00Z"} // as an earlier move leaves it
			_, err := azure.CreateIdentities(t.Context(), o)
			must(t, err)
			key, err := keystore.NewPublic(clusterKey().Public())
			must(t, err)
			_, err = azure.Migrate(t.Context(), azure.MigrateOptions{Options: w.options(), Move: install.Move{Old: o.IssuerURL,
				OldKeys: func(context.Context) ([]keystore.VerificationKey, error) { return []keystore.VerificationKey{key}, nil }}})
			must(t, err)
			less := w.identities(t, request{"storage", "op", "permissions: [Microsoft.Compute/disks/read]"})
			less.Prune, less.Tags = true, map[string]string{"a": "c"}
			_, err = azure.CreateIdentities(t.Context(), less)
			must(t, err)
			_, err = azure.Delete(t.Context(), azure.DeleteOptions{Options: w.options(), Group: true})
			must(t, err)
			used := map[string]bool{}
			for _, c := range w.Calls() {
				used[c.Permission] = true
			}
			return used
		}
		list := least(t)
		used := everything(list)
		for _, p := range list {
			if !used[p] {
				t.Errorf("%s is not needed", p)
			}
		}
		everything(list[1:])
	})
}
