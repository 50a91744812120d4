package azure_test

import (
	"context"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/keys"
)

// A cluster moves: identities take tokens of both issuers; another run has nothing left to do.
func TestMigrate(t *testing.T) {
	const old = "https://prod-a.blob.core.windows.net/prod-a"
	w := newWorld(t, fakeazure.Options{VaryCase: true})
	before := w.identities(t, usual()...)
	before.IssuerURL = old
	_, err := azure.CreateIdentities(t.Context(), before)
	must(t, err)
	key, err := keystore.NewPublic(keys.NewRSA()().Public())
	must(t, err)
	o := azure.MigrateOptions{Options: w.options(), Move: install.Move{Old: old, OldKeys: func(context.Context) ([]keystore.VerificationKey, error) {
		return []keystore.VerificationKey{key}, nil
	}}}
	w.writes()
	o.Mode = install.Preview
	shown, err := azure.Migrate(t.Context(), o)
	must(t, err)
	if wrote := w.writes(); len(shown.Preview.Changes) != 4 || len(wrote) > 0 {
		t.Errorf("shown %+v, and written %q", shown.Preview.Changes, wrote)
	}
	o.Mode = install.Apply
	for range 2 {
		_, err = azure.Migrate(t.Context(), o)
		must(t, err)
	}
	if wrote := w.writes(); len(wrote) != 5 {
		t.Errorf("it wrote %q", wrote)
	}
	subjects := map[string]string{}
	for _, c := range w.State().Credentials {
		subjects[c.Subject] += c.Issuer + " "
	}
	for subject, issuers := range subjects {
		if !strings.Contains(issuers, old+" ") || !strings.Contains(issuers, issuerURL+" ") {
			t.Errorf("%s: %s", subject, issuers)
		}
	}
	// What a release asks for under the new issuer is there by now, and the old one stays.
	_, err = azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
	must(t, err)
	if wrote := w.writes(); len(wrote) > 0 {
		t.Errorf("then it wrote %q", wrote)
	}
	held(t, w.reported(), "takes tokens of "+old+" too, which stays")
}
