package azure_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/scene"
)

// Whatever runs an installation had, killed at any call or throttled, its deletion leaves nothing of it, and all that a stranger has.
func TestWhateverRanADeletionFinds(t *testing.T) {
	t.Parallel()
	scene.Histories(t, 4, func(t *testing.T, r *scene.History) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h := newHistory(t, r)
			before := h.w.State()
			for range 2 + h.IntN(4) {
				h.any(t)
			}
			h.delete(t)
			h.compare(t, before, h.w.State())
		})
	})
}

// history is one of an installation, beside strangers.
type history struct {
	*scene.History
	w      *world
	shared bool // strangers have things in the group of its identities
	move   azure.MigrateOptions
}

func newHistory(t *testing.T, r *scene.History) *history {
	h := &history{History: r, shared: r.IntN(2) == 0}
	h.w = newWorld(t, fakeazure.Options{VaryCase: r.IntN(2) == 0, PageSize: []int{1, 2, 100}[r.IntN(3)]})
	r.Cloud, r.Throttle, r.Dead = &h.w.Record, fakeazure.Throttle(time.Second), dead()
	h.move = h.w.move(t, "https://prod-a.blob.core.windows.net/prod-a")
	h.strangers(t)
	return h
}

// strangers makes what is to be there at the end: of another cluster, a workload, and people.
func (h *history) strangers(t *testing.T) {
	const in = "/subscriptions/" + subscription
	group, name := "theirs", []string{"prod", "prod-a-2"}[h.IntN(2)]
	if h.shared {
		group = "prod-a-oidc"
	}
	other := h.w.identities(t, usual()...)
	other.Name, other.OIDCGroup, other.InstallGroup, other.IssuerURL = name, group, name, "https://oidc.example.com/"+name
	other.Dir += "-" + name
	_, err := azure.CreateIdentities(t.Context(), other)
	must(t, err)
	workload := azure.WorkloadOptions{Options: h.w.elsewhere(), For: "--name", ServiceAccounts: []install.ServiceAccount{{Namespace: "logging", Name: "loki"}},
		Actions: []string{"Microsoft.Compute/disks/read"}}
	workload.Name, workload.OIDCGroup, workload.InstallGroup = "prod-a-loki", group, ""
	_, err = azure.CreateIdentity(t.Context(), workload)
	must(t, err)
	theirs := in + "/resourceGroups/" + group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/prod-a-ns-mine-creds"
	h.w.arm(t, "PUT", theirs, "2024-11-30", `{"location":"centralus","tags":{"team":"other"}}`)
	h.w.credential(t, theirs, "mine", issuerURL, "system:serviceaccount:ns:mine", "openshift")
	h.w.arm(t, "PUT", in+"/providers/Microsoft.Authorization/roleDefinitions/aaaaaaaa-0000-4000-8000-000000000001", "2022-04-01",
		`{"properties":{"roleName":"prod-a-ns-mine-creds","description":"mine","type":"CustomRole","assignableScopes":["`+in+`"],"permissions":[{"actions":["*/read"]}]}}`)
	h.w.arm(t, "PUT", in+"/resourceGroups/dns", "2021-04-01", `{"location":"centralus","tags":{"team":"other"}}`)
	h.w.arm(t, "PUT", in+"/resourceGroups/dns/providers/Microsoft.Authorization/roleAssignments/aaaaaaaa-0000-4000-8000-000000000002", "2022-04-01",
		`{"properties":{"roleDefinitionId":"`+in+`/providers/Microsoft.Authorization/roleDefinitions/aaaaaaaa-0000-4000-8000-000000000001",
			"principalId":"dddddddd-0000-4000-8000-000000000001","principalType":"Group"}}`)
	h.w.Place(group, "Microsoft.Storage/storageAccounts", "theirs")
}

// any makes one run, in which anything may go wrong.
func (h *history) any(t *testing.T) {
	t.Helper()
	list := usual()
	kind := []string{"create", "create other", "prune", "migrate", "delete"}[h.IntN(5)]
	if kind != "create" {
		list = append(list, request{"new", "new", "permissions: [Microsoft.Network/dnsZones/read]"})
		h.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = list[:1+h.IntN(len(list))]
	}
	o := h.w.identities(t, list...)
	o.Adopt, o.Prune = true, kind == "prune"
	if h.IntN(2) == 0 {
		o.IssuerURL = h.move.Old
	}
	if h.IntN(2) == 0 {
		o.DNSGroup = "dns"
	}
	what := fmt.Sprintf("%s of %d requests, issuer %s, DNS group %q", kind, len(list), o.IssuerURL, o.DNSGroup)
	fault, err := h.Run(what, 45, func() (err error) {
		switch kind {
		case "migrate":
			_, err = azure.Migrate(t.Context(), h.move)
		case "delete":
			_, err = azure.Delete(t.Context(), azure.DeleteOptions{Options: h.w.options()})
		default:
			_, err = azure.CreateIdentities(t.Context(), o)
		}
		return err
	})
	if kind != "migrate" && kind != "delete" && err != nil && fault == "" {
		t.Errorf("%s: %v", kind, err)
	}
}

// delete deletes the installation: at first with a fault.
func (h *history) delete(t *testing.T) {
	t.Helper()
	o := azure.DeleteOptions{Options: h.w.options(), Group: !h.shared}
	remove := func() error {
		_, err := azure.Delete(t.Context(), o)
		return err
	}
	_, _ = h.Run("delete", 45, remove)
	must(t, remove())
	if h.shared {
		h.w.writes()
		o.Group = true
		if err := remove(); !is(arm.OthersInGroup)(err) && !is(arm.NotOwned)(err) {
			t.Errorf("strangers' group: %v", err)
		}
		if wrote := h.w.writes(); len(wrote) > 0 {
			t.Errorf("it wrote %q", wrote)
		}
	}
}

// compare fails the test unless the strangers' things are there as before, and besides at most the group that the installer fills. A
// group that was taken over keeps our tags, beside its own.
func (h *history) compare(t *testing.T, before, after fakeazure.State) {
	t.Helper()
	for _, g := range before.Groups {
		at := slices.IndexFunc(after.Groups, func(a fakeazure.Group) bool { return strings.EqualFold(a.ID, g.ID) })
		if at < 0 {
			t.Errorf("group %s is gone", g.Name)
			continue
		}
		for k, v := range g.Tags {
			if have, is := after.Groups[at].Tags[k]; !is || have != v {
				t.Errorf("group %s had the tag %s=%s: %v", g.Name, k, v, after.Groups[at].Tags)
			}
		}
	}
	for _, g := range after.Groups {
		was := slices.ContainsFunc(before.Groups, func(b fakeazure.Group) bool { return strings.EqualFold(b.ID, g.ID) })
		if !was && !strings.EqualFold(g.Name, "prod-a") || g.Deleting {
			t.Errorf("group %+v is left", g)
		}
	}
	before.Groups, after.Groups = nil, nil
	if was, left := fmt.Sprintf("%+v", before), fmt.Sprintf("%+v", after); was != left {
		t.Errorf("there is\n%s\nwant\n%s", left, was)
	}
}
