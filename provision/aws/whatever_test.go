package aws_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/test/fakeaws"
)

// Whatever runs an installation had, killed at any call or throttled, its deletion leaves nothing of it, and all that a stranger has.
// Every test takes other sequences; KEYPOST_SEED takes the one that failed.
func TestWhateverRanADeletionFinds(t *testing.T) {
	seeds := []uint64{rand.Uint64(), rand.Uint64()}
	if text := os.Getenv("KEYPOST_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		must(t, err)
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("KEYPOST_SEED=", seed), func(t *testing.T) {
			h := newHistory(t, rand.New(rand.NewPCG(seed, 0)))
			for range 2 + h.IntN(4) {
				h.any(t)
			}
			h.delete(t)
			if left := fmt.Sprintf("%+v", h.w.State()); left != h.strangers {
				t.Errorf("there is\n%s\nwant\n%s", left, h.strangers)
			}
			if t.Failed() {
				t.Logf("after these runs:\n%s", strings.Join(h.runs, "\n"))
			}
		})
	}
}

// history is a random sequence of runs of one installation, beside strangers.
type history struct {
	*rand.Rand
	w         *world
	strangers string // what is to be there at the end
	move      aws.MigrateOptions
	runs      []string // with what became of them
}

func newHistory(t *testing.T, r *rand.Rand) *history {
	t.Helper()
	h := &history{Rand: r, w: newWorld(t)}
	key := h.w.WriteKeys(t)
	client, err := awsiam.Open(t.Context(), awsiam.Options{})
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
	kind, fault := []string{"create", "create", "roles", "migrate", "delete", "delete an issuer"}[h.IntN(6)], h.fault()
	var err error
	switch kind {
	case "create":
		_, err = aws.Create(t.Context(), o)
		if err != nil && fault == "" {
			t.Errorf("%s: %v", kind, err)
		}
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
	h.w.Fault(nil)
	h.runs = append(h.runs, fmt.Sprintf("%s %q, issuer %s, tighten %t, prune %t, %s: %v", kind, names, from, o.Tighten, o.Roles.Prune, fault, err))
}

// fault has something go wrong with the next run, and says what.
func (h *history) fault() string {
	h.w.ResetCalls()
	n := 1 + h.IntN(25)
	switch h.IntN(4) {
	case 0:
		return ""
	case 1:
		var done atomic.Bool
		h.w.Fault(func(c fakeaws.Call) fakeaws.Fault {
			if c.N >= n && done.CompareAndSwap(false, true) {
				return fakeaws.Throttle()
			}
			return fakeaws.Fault{}
		})
		return fmt.Sprint("throttled at call ", n)
	}
	h.w.Fault(func(c fakeaws.Call) fakeaws.Fault {
		switch {
		case c.N < n:
			return fakeaws.Fault{}
		case c.N == n && c.Write:
			return fakeaws.Fault{Lost: true}
		}
		return fakeaws.Fail(400, "Killed", "here")
	})
	return fmt.Sprint("killed at call ", n)
}

// delete deletes the installation: at first with a fault.
func (h *history) delete(t *testing.T) {
	t.Helper()
	o := aws.DeleteOptions{Options: h.w.create(t, "a").Options}
	o.IssuerURL = ""
	fault := h.fault()
	_, err := aws.Delete(t.Context(), o)
	h.w.Fault(nil)
	h.runs = append(h.runs, fmt.Sprintf("delete, %s: %v", fault, err))
	_, err = aws.Delete(t.Context(), o)
	must(t, err)
}
