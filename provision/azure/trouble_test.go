package azure_test

import (
	"crypto"
	"crypto/elliptic"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/fakecloud"
	"github.com/keypost/keypost/test/keys"
	"github.com/keypost/keypost/test/scene"
)

// A new identity is known everywhere only later, reads are behind writes, and Azure asks to come back: a run waits.
func TestAzureIsSlow(t *testing.T) {
	t.Parallel()
	const late = 500 * time.Millisecond
	for name, o := range map[string]fakeazure.Options{
		"principals":     {PrincipalDelay: late},
		"identities":     {IdentityDelay: late},
		"roles":          {AuthorizationDelay: late},
		"credentials":    {FederationRate: 1}, // as documented
		"writes":         {WritesPerSecond: 5},
		"pages":          {PageSize: 1},
		"a bit of each":  {PrincipalDelay: late, IdentityDelay: late, AuthorizationDelay: late, VaryCase: true, PageSize: 2},
		"group deletion": {OperationPolls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, o)
				_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
				must(t, err)
				for _, c := range w.Calls() {
					if strings.HasPrefix(c.Code, "Concurrent") || c.Code == "PrincipalNotFound" {
						t.Errorf("%s: %s", c.Path, c.Code)
					}
				}
				if s := w.State(); len(s.Identities) != 3 || len(s.Credentials) != 5 || len(s.Assignments) != 3 {
					t.Errorf("there is %+v", s)
				}
				time.Sleep(max(o.AuthorizationDelay, o.IdentityDelay))
				w.writes()
				_, err = azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
				must(t, err)
				if again := w.writes(); len(again) > 0 {
					t.Errorf("the second run wrote %q", again)
				}
				_, err = azure.Delete(t.Context(), azure.DeleteOptions{Options: w.options(), Group: true})
				must(t, err)
				if s := w.State(); len(s.Groups) != 1 || len(s.Identities)+len(s.Definitions)+len(s.Assignments) > 0 {
					t.Errorf("left: %+v", s)
				}
			})
		})
	}
}

// Any call may be throttled, find the service away, or lose its answer: it is made again.
func TestAnyCallMayFailOnce(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]fakeazure.Fault{"away": fakeazure.Unavailable(), "lost": fakecloud.LoseReply()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fakeazure.Options{})
				var mu sync.Mutex
				seen := map[string]bool{}
				w.Fault(func(c fakeazure.Call) fakeazure.Fault {
					mu.Lock()
					defer mu.Unlock()
					if seen[c.Action] {
						return fakeazure.Fault{}
					}
					seen[c.Action] = true
					if c.Write {
						return fault
					}
					return fakeazure.Throttle(time.Second)
				})
				_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
				must(t, err)
				if s := w.State(); len(s.Identities) != 3 || len(s.Credentials) != 5 || len(s.Assignments) != 3 {
					t.Errorf("there is %+v", s)
				}
				_, err = azure.Delete(t.Context(), azure.DeleteOptions{Options: w.options(), Group: true})
				must(t, err)
				if s := w.State(); len(s.Groups) != 1 || len(s.Identities)+len(s.Definitions)+len(s.Assignments) > 0 {
					t.Errorf("left: %+v", s)
				}
			})
		})
	}
}

// What is wrong is told before anything is written, and mostly before anybody is called.
func TestRefusals(t *testing.T) {
	t.Parallel()
	type tried struct {
		w *world
		o azure.IdentitiesOptions
	}
	const (
		scope    = "/subscriptions/" + subscription
		identity = scope + "/resourceGroups/prod-a-oidc/providers/Microsoft.ManagedIdentity/userAssignedIdentities/prod-a-ns-storage-creds"
		nobody   = "00000000-8888-7777-6666-555555555555"
	)
	for _, tt := range []struct {
		name    string
		fake    fakeazure.Options
		prepare func(t *testing.T, x *tried)
		is      func(error) bool
		says    string
		silent  bool // nobody is called
		late    bool // Azure tells it, when the first identity is made
	}{
		{name: "another tenant", prepare: func(_ *testing.T, x *tried) { x.o.Tenant = nobody }, is: is(arm.WrongTenant), says: "belongs to tenant " + tenant},
		{name: "another subscription", prepare: func(_ *testing.T, x *tried) { x.o.Subscription = nobody }, is: is(arm.NoSubscription), says: "could not be found"},
		{name: "a provider that is not registered", fake: fakeazure.Options{Unregistered: []string{"Microsoft.ManagedIdentity"}},
			is: is(arm.Unregistered), says: "Microsoft.ManagedIdentity", late: true},
		{name: "a caller who may not", fake: fakeazure.Options{Permissions: []string{"*/read"}}, says: "do not allow Microsoft.Resources/subscriptions/resourceGroups/write"},
		{name: "credentials that are not good", prepare: func(t *testing.T, x *tried) { x.o.Credential = x.w.signedIn(t, "wrong") },
			is: is(arm.NoCredentials), says: "Entra refuses the credentials: AADSTS7000215: Invalid client secret provided. Ensure the secret"},
		{name: "a role that is not there", prepare: func(t *testing.T, x *tried) {
			x.o.Identities = x.w.requests(t, request{"a", "sa-a", "roleBindings: [{role: Contributer}]"})
		}, says: `knows no role "Contributer"`},
		{name: "a group that is not there", prepare: func(_ *testing.T, x *tried) { x.o.DNSGroup = "dns" }, says: "there is no resource group dns"},
		{name: "a group elsewhere", prepare: func(t *testing.T, x *tried) {
			x.w.arm(t, "PUT", scope+"/resourceGroups/prod-a", "2021-04-01", `{"location":"westeurope"}`)
			x.o.Adopt = true
		}, says: "is in the region westeurope"},
		{name: "a role of somebody else's", prepare: func(t *testing.T, x *tried) {
			x.w.arm(t, "PUT", scope+"/providers/Microsoft.Authorization/roleDefinitions/aaaaaaaa-0000-4000-8000-000000000001", "2022-04-01",
				`{"properties":{"roleName":"prod-a-ns-storage-creds","description":"mine","type":"CustomRole","assignableScopes":["`+scope+`"],"permissions":[{"actions":["*/read"]}]}}`)
		}, is: is(arm.NotOwned), says: `has the description "mine"`},
		{name: "an identity of somebody else's", prepare: func(t *testing.T, x *tried) {
			x.w.arm(t, "PUT", scope+"/resourceGroups/prod-a-oidc", "2021-04-01", `{"location":"centralus","tags":{"openshift.io_cloud-credential-operator_prod-a":"owned"}}`)
			x.w.arm(t, "PUT", identity, "2024-11-30", `{"location":"centralus","tags":{"openshift.io_cloud-credential-operator_b":"owned"}}`)
		}, is: is(arm.NotOwned), says: "prod-a-ns-storage-creds belongs to b"},
		{name: "keys that Entra refuses", silent: true, prepare: func(t *testing.T, x *tried) { x.o.Store = x.w.KeyStore(); x.w.publish(t, keys.EC(elliptic.P256(), 1)) }, is: is(arm.WrongAlgorithm), says: "signed with RS256"},
		{name: "no requests", silent: true, prepare: func(t *testing.T, x *tried) { x.o.Identities = x.w.requests(t) }, says: "has no CredentialsRequest for Azure"},
		{name: "a cloud that is not there", prepare: func(_ *testing.T, x *tried) { x.o.Cloud = "AzureGermanCloud" }, silent: true, says: `"AzureGermanCloud" is none of`},
		{name: "a wrong name", prepare: func(_ *testing.T, x *tried) { x.o.Name = "prod.a" }, silent: true, says: `"prod.a-ns-`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := tried{w: newWorld(t, tt.fake)}
				x.o = x.w.identities(t, usual()...)
				if tt.prepare != nil {
					tt.prepare(t, &x)
				}
				x.w.writes()
				_, err := azure.CreateIdentities(t.Context(), x.o)
				if err == nil || !strings.Contains(err.Error(), tt.says) || tt.is != nil && !tt.is(err) {
					t.Errorf("it does not have %q: %v", tt.says, err)
				}
				calls := len(x.w.Calls())
				wrote := slices.DeleteFunc(x.w.writes(), func(c string) bool { return strings.HasSuffix(c, " AuthorizationFailed") })
				if len(wrote) > 0 && !tt.late || tt.silent && calls > 0 {
					t.Errorf("%d calls, and it wrote %q", calls, wrote)
				}
			})
		})
	}
}

// publish publishes a key under the issuer URL.
func (w *world) publish(t *testing.T, pair crypto.Signer) {
	t.Helper()
	key, err := keystore.NewPublic(pair.Public())
	must(t, err)
	url, err := keystore.ParseIssuerURL(issuerURL, true)
	must(t, err)
	_, err = catalog.Add(t.Context(), w.Store, keystore.Spec{Name: "prod-a", Issuers: []keystore.IssuerURL{url}, Keys: []keystore.VerificationKey{key}, Dev: true},
		catalog.AddOptions{Change: keystore.Change{At: time.Now(), By: "me"}})
	must(t, err)
}

// The Secret of the webhook for pod identities has the tenant that all of them show their tokens to: no request may have it.
func TestTheWebhooksSecretIsReserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const asks = `apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: evil, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: azure-credentials, namespace: openshift-cloud-credential-operator}
  serviceAccountNames: [evil]
  providerSpec: {apiVersion: cloudcredential.openshift.io/v1, kind: AzureProviderSpec`
		for _, spec := range []string{
			", permissions: [Microsoft.Compute/disks/read]}",
			", azureClientID: 12345678-1234-1234-1234-123456789012, azureTenantID: 66666666-1234-1234-1234-123456789012, azureSubscriptionID: 12345678-1234-1234-1234-123456789012, azureRegion: centralus}",
		} {
			w := newWorld(t, fakeazure.Options{})
			o := w.create(t, usual()...)
			must(t, os.WriteFile(filepath.Join(o.Identities.Dir, "evil.yaml"), []byte(asks+spec), 0o600))
			_, all := azure.Create(t.Context(), o)
			_, alone := azure.CreateIdentities(t.Context(), azure.IdentitiesOptions{Options: w.elsewhere(), Identities: *o.Identities})
			for _, err := range []error{all, alone} {
				if err == nil || !strings.Contains(err.Error(), "asks for the Secret openshift-cloud-credential-operator/azure-credentials, which is that of OpenShift's webhook") {
					t.Errorf("error %v", err)
				}
			}
			if calls := len(w.Calls()); calls > 0 {
				t.Errorf("%d calls", calls)
			}
		}
	})
}

// Two runs at once do what one does. Of two deletions one may find that what it reads has just gone; then the next finds nothing left.
func TestTwoRunsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{Latency: 100 * time.Millisecond, FederationRate: 1})
		twice := func(run func() error) {
			t.Helper()
			var group errgroup.Group
			group.Go(run)
			group.Go(run)
			must(t, group.Wait())
		}
		o := w.identities(t, usual()...)
		twice(func() error {
			_, err := azure.CreateIdentities(t.Context(), o)
			return err
		})
		if s := w.State(); len(s.Identities) != 3 || len(s.Credentials) != 5 || len(s.Assignments) != 3 || len(s.Definitions) != 2 {
			t.Errorf("there is %+v", s)
		}
		gone := azure.DeleteOptions{Options: w.options(), Group: true}
		twice(func() error {
			_, _ = azure.Delete(t.Context(), gone)
			return nil
		})
		_, err := azure.Delete(t.Context(), gone)
		must(t, err)
		if s := w.State(); len(s.Groups) != 1 || len(s.Identities)+len(s.Definitions)+len(s.Assignments) > 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

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
