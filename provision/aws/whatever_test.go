package aws_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/test/fakeaws"
	"github.com/keypost/keypost/test/scene"
)

// Whatever runs an installation had, killed at any call or throttled, its deletion leaves nothing of it, and all that a stranger has.
func TestWhateverRanADeletionFinds(t *testing.T) {
	t.Parallel()
	scene.Histories(t, 2, func(t *testing.T, r *scene.History) {
		h := newHistory(t, r)
		for range 2 + h.IntN(4) {
			h.any(t)
		}
		h.delete(t)
		if left := fmt.Sprintf("%+v", h.w.State()); left != h.strangers {
			t.Errorf("there is\n%s\nwant\n%s", left, h.strangers)
		}
	})
}

// history is one of an installation, beside strangers.
type history struct {
	*scene.History
	w         *world
	strangers string // what is to be there at the end
	move      aws.MigrateOptions
}

func newHistory(t *testing.T, r *scene.History) *history {
	t.Helper()
	h := &history{History: r, w: newWorld(t)}
	r.Cloud, r.Throttle, r.Dead = &h.w.Record, fakeaws.Throttle(), fakeaws.Fail(400, "Killed", "here")
	key := h.w.WriteKeys(t)
	client, err := awsiam.Open(t.Context(), awsiam.Options{Config: h.w.Config()})
	must(t, err)
	account, err := client.Account(t.Context())
	must(t, err)
	name := []string{"prod", "prod-a-2"}[r.IntN(2)]
	url, owner, audiences := "https://oidc.example.com/"+name, awsiam.OwnedBy(name), []string{"openshift"}
	provider, err := client.PlanProvider(t.Context(), account, awsiam.Provider{URL: url, ClientIDs: audiences, Owner: owner})
	must(t, err)
	must(t, provider.Apply(t.Context(), 1, nop))
	for _, role := range []awsiam.Role{ // a workload's of our own cluster would be moved with it
		{Name: "prod-a-2-ns-x", Subjects: []string{"system:serviceaccount:ns:x"}, Owner: owner},
		{Name: "prod-a-loki", Subjects: []string{"system:serviceaccount:logging:loki"}, Owner: awsiam.OwnedByKeypost()},
	} {
		made, err := client.PlanRoles(t.Context(), awsiam.Trust{ProviderARN: account.ProviderARN(url), Issuer: url, Audiences: audiences}, []awsiam.Role{role})
		must(t, err)
		must(t, made.Apply(t.Context(), 1, nop))
	}
	h.w.Trust("https://elsewhere.example.com", "openshift")
	h.strangers = fmt.Sprintf("%+v", h.w.State())

	_, h.move = h.w.migration(t)
	h.move.Cluster = cluster.Access{}
	h.move.OldKeys = func(context.Context) ([]keystore.VerificationKey, error) { return []keystore.VerificationKey{key}, nil }
	return h
}

// any makes one run, in which anything may go wrong.
func (h *history) any(t *testing.T) {
	t.Helper()
	must(t, os.RemoveAll(filepath.Join(h.w.Dir, "requests")))
	names := []string{"a", "b", "c", "d"}
	h.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:1+h.IntN(len(names))]
	o := h.w.create(t, names...)
	o.Tighten, o.Roles.Prune = h.IntN(2) == 0, h.IntN(2) == 0
	from := []string{issuerURL, oldURL}[h.IntN(2)]
	kind := []string{"create", "create", "roles", "migrate", "delete", "delete an issuer"}[h.IntN(6)]
	what := fmt.Sprintf("%s %q, issuer %s, tighten %t, prune %t", kind, names, from, o.Tighten, o.Roles.Prune)
	fault, err := h.Run(what, 25, func() (err error) {
		switch kind {
		case "create":
			_, err = aws.Create(t.Context(), o)
		case "roles":
			_, err = aws.CreateRoles(t.Context(), aws.RolesOptions{Options: o.Options, Roles: *o.Roles,
				ProviderARN: "arn:aws:iam::123456789012:oidc-provider/" + strings.TrimPrefix(from, "https://")})
		case "migrate":
			_, err = aws.Migrate(t.Context(), h.move)
		default:
			gone := aws.DeleteOptions{Options: o.Options, Strand: h.IntN(2) == 0}
			if gone.IssuerURL = ""; kind == "delete an issuer" {
				gone.IssuerURL = from
			}
			_, err = aws.Delete(t.Context(), gone)
		}
		return err
	})
	if kind == "create" && err != nil && fault == "" {
		t.Errorf("%s: %v", kind, err)
	}
}

// delete deletes the installation: at first with a fault.
func (h *history) delete(t *testing.T) {
	t.Helper()
	o := aws.DeleteOptions{Options: h.w.create(t, "a").Options}
	o.IssuerURL = ""
	remove := func() error {
		_, err := aws.Delete(t.Context(), o)
		return err
	}
	_, _ = h.Run("delete", 25, remove)
	must(t, remove())
}
