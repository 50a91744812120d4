//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/kubestore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/keys"
)

// definition is the custom resource definition that the chart installs.
const definition = "../../charts/keypost/files/keysets.keypost.dev.yaml"

// observationDefinition is that of what was seen.
const observationDefinition = "../../charts/keypost/files/observations.keypost.dev.yaml"

// kubeScene is a Kubernetes API with key sets in it: one kube-apiserver and an etcd of its own, either of which can be
// taken away and brought back.
type kubeScene struct {
	t         *testing.T // servers that a step brings back outlive the step
	c         *cluster
	ca        *authority
	port      int
	etcdDir   string
	etcd, api *process
	admin     string // kubeconfig
	spaces    int
}

func newKubeScene(t *testing.T) *kubeScene {
	t.Helper()
	p := &kubeScene{
		t: t, ca: newAuthority(t), port: 7443, etcdDir: t.TempDir(),
		c: &cluster{name: "store", issuer: "https://store.keypost.test", key: keys.NewEC()},
	}
	p.startEtcd()
	p.startAPI()
	p.admin = p.c.kubeconfig
	p.define(t)
	return p
}

func (p *kubeScene) startEtcd() {
	p.t.Helper()
	p.etcd = startEtcdIn(p.t, p.etcdDir)
}

func (p *kubeScene) startAPI() {
	p.t.Helper()
	p.api = startCluster(p.t, p.ca, p.c, p.port)
	p.c.awaitReady(p.t, p.api)
}

// stopAPI ends the kube-apiserver; it lingers when etcd is gone, so it is killed.
func (p *kubeScene) stopAPI() {
	p.api.Kill()
}

func (p *kubeScene) stopEtcd() {
	p.etcd.Kill()
}

// define installs the custom resource definition and waits until key sets can be listed.
func (p *kubeScene) define(t *testing.T) {
	t.Helper()
	await(t, "the definition of KeySet", func(context.Context) error {
		if r := p.try(t, "", "apply", "--server-side", "--force-conflicts", "-f", definition); r.code != 0 {
			return fmt.Errorf("kubectl: %s", r.stderr)
		}
		if r := p.try(t, "", "get", "--raw", "/apis/keypost.dev/v1/keysets"); r.code != 0 {
			return fmt.Errorf("kubectl: %s", r.stderr)
		}
		return nil
	})
}

// try runs kubectl as the administrator.
func (p *kubeScene) try(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return command(t, nil, stdin, kubeBinary("kubectl"), append([]string{"--kubeconfig", p.admin}, args...)...)
}

// space makes a namespace and returns its name.
func (p *kubeScene) space(t *testing.T) string {
	t.Helper()
	p.spaces++
	ns := fmt.Sprintf("keys-%d", p.spaces)
	code, answer := p.send(t, http.MethodPost, "https://"+p.c.address+"/api/v1/namespaces", "application/json", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+ns+`"}}`)
	if code != http.StatusCreated {
		t.Fatalf("namespace %s: %d: %s", ns, code, answer)
	}
	return ns
}

func (p *kubeScene) store(t *testing.T, ns string) *kubestore.Backend {
	t.Helper()
	return openKube(t, ns, p.admin)
}

func openKube(t *testing.T, ns, kubeconfig string) *kubestore.Backend {
	t.Helper()
	st, err := kubestore.Open(t.Context(), ns, kubestore.Options{Kubeconfig: kubeconfig})
	must(t, err)
	return st
}

// account makes a service account with a role of these rules (YAML) in ns, and returns its kubeconfig.
func (p *kubeScene) account(t *testing.T, ns, name, rules string) string {
	t.Helper()
	p.try(t, fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: %[2]s, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[2]s, namespace: %[1]s}
rules: %[3]s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[2]s, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[2]s}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]
`, ns, name, rules), "apply", "-f", "-").ok(t)
	token := strings.TrimSpace(p.try(t, "", "create", "token", name, "-n", ns, "--duration", "24h").ok(t))
	return kubeconfigOf(t, p.admin, token)
}

// The rules of the roles that the package documentation of kubestore and the chart give.
const (
	readerRules  = `[{apiGroups: [keypost.dev], resources: [keysets], verbs: [get, list, watch]}]`
	writerRules  = `[{apiGroups: [keypost.dev], resources: [keysets], resourceNames: [prod-a], verbs: [get, update]}]`
	creatorRules = `[{apiGroups: [keypost.dev], resources: [keysets], verbs: [create]}]`
)

// TestKubestore holds the store to its contract on a real kube-apiserver and etcd.
func TestKubestore(t *testing.T) {
	p := newKubeScene(t)
	t.Run("contract, with least rights", func(t *testing.T) {
		ns := p.space(t)
		all := p.account(t, ns, "all", `[]`)
		p.try(t, "", "create", "clusterrole", "all", "--verb=get,list,watch,create,update", "--resource=keysets.keypost.dev").ok(t)
		p.try(t, "", "create", "clusterrolebinding", "all", "--clusterrole=all", "--serviceaccount="+ns+":all").ok(t)
		storetest.Run(t, func(t *testing.T) keystore.Backend { return openKube(t, p.space(t), all) })
	})
	t.Run("a listing of many pages", func(t *testing.T) { p.manyPages(t) })
	t.Run("an object is the document", func(t *testing.T) { p.objectIsDocument(t) })
	t.Run("rules", func(t *testing.T) { p.rules(t) })
	t.Run("rights", func(t *testing.T) { p.rights(t) })
	t.Run("observations", func(t *testing.T) { p.observations(t) })
}

// manyPages: a listing of more than one page is complete and of one moment, while key sets come and change.
func (p *kubeScene) manyPages(t *testing.T) {
	st := p.store(t, p.space(t))
	key := storetest.Key(t)
	const n = 1100
	fill(t, st, n, key)
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			_, err := keystore.Update(t.Context(), keystore.NewStore(st), numbered(i%n), storetest.Numbered)
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 10 {
		all, err := st.List(t.Context())
		if err != nil || len(all) != n {
			t.Errorf("List has %d names, %v; want %d", len(all), err, n)
		}
	}
	close(done)
	writing.Wait()
}

func numbered(i int) keystore.Name { return keystore.Name(fmt.Sprintf("prod-%05d", i)) }

// fill creates n key sets, several at a time.
func fill(t *testing.T, st keystore.Backend, n int, keys ...keystore.VerificationKey) {
	t.Helper()
	var at atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := at.Add(1); i <= int64(n); i = at.Add(1) {
				if err := keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, numbered(int(i-1)), keys...)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// objectIsDocument: what kubectl applies is what Load gives and the other way round, byte for byte in the document form,
// and what others keep at an object stays there.
func (p *kubeScene) objectIsDocument(t *testing.T) {
	ns := p.space(t)
	st := p.store(t, ns)
	text := read(t, "../../keystore/testdata/prod-a.yaml")
	p.try(t, string(text), "apply", "-n", ns, "-f", "-").ok(t) // client-side: leaves a copy of the manifest in an annotation
	s, _, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
	must(t, err)
	if got := storetest.Text(t, s); got != string(text) {
		t.Errorf("loaded\n%s\nwant\n%s", got, text)
	}
	p.try(t, "", "patch", "keyset", "prod-a", "-n", ns, "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/kept"]}}`).ok(t)
	s, err = keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("x"))
	must(t, err)
	var stored struct {
		Metadata struct {
			Finalizers  []string
			Labels      map[string]string
			Annotations map[string]string
		}
	}
	must(t, json.Unmarshal([]byte(p.try(t, "", "get", "keyset", "prod-a", "-n", ns, "-o", "json").ok(t)), &stored))
	m := stored.Metadata
	if !slices.Equal(m.Finalizers, []string{"example.com/kept"}) || m.Labels["team"] != "platform" || m.Annotations["note"] != "kept" ||
		m.Annotations["kubectl.kubernetes.io/last-applied-configuration"] == "" {
		t.Errorf("after an update the metadata is %+v", m)
	}
	if applied := p.try(t, storetest.Text(t, s), "apply", "-n", ns, "-f", "-").ok(t); !strings.Contains(applied, "configured") && !strings.Contains(applied, "unchanged") {
		t.Errorf("applying what was loaded: %s", applied)
	}
	p.columns(t, ns)
}

func (p *kubeScene) columns(t *testing.T, ns string) {
	table := p.try(t, "", "get", "keysets", "-n", ns).ok(t)
	for _, want := range []string{"ISSUER", "ACTIVE", "KEY AGE", "NEXT STEP", "AGE", "https://oidc.example.com/prod-a", "_-d3x_gztpdmkfFEzgJQ22FOZoeauTN6s6BrD6TJE5s", "remove"} {
		if !strings.Contains(table, want) {
			t.Errorf("kubectl get keysets does not have %q:\n%s", want, table)
		}
	}
}

// rights: the documented roles are enough for what they are for, and the API server refuses everything else.
func (p *kubeScene) rights(t *testing.T) {
	ns := p.space(t)
	admin := p.store(t, ns)
	for _, n := range []keystore.Name{"prod-a", "prod-b"} {
		must(t, keystore.Create(t.Context(), keystore.NewStore(admin), storetest.KeySet(t, n)))
	}
	reader := openKube(t, ns, p.account(t, ns, "mirror", readerRules))
	writer := openKube(t, ns, p.account(t, ns, "prod-a-admin", writerRules))
	creator := openKube(t, ns, p.account(t, ns, "creator", creatorRules))
	nobody := openKube(t, ns, p.account(t, ns, "nobody", `[]`))

	wantRead := func(who string, st *kubestore.Backend) {
		all, err := st.List(t.Context())
		if err != nil || len(all) != 2 {
			t.Errorf("%s: List = %v, %v", who, all, err)
		}
		if _, _, err := keystore.NewStore(st).Load(t.Context(), "prod-b"); err != nil {
			t.Errorf("%s: Load: %v", who, err)
		}
	}
	wantRead("the reader", reader)
	_, err := keystore.Update(t.Context(), keystore.NewStore(writer), "prod-a", storetest.Mark("by-the-writer"))
	must(t, err)
	must(t, keystore.Create(t.Context(), keystore.NewStore(creator), storetest.KeySet(t, "prod-c")))

	update := func(st keystore.Backend, n keystore.Name) error {
		s, rev, err := keystore.NewStore(admin).Load(t.Context(), n)
		must(t, err)
		_, err = keystore.NewStore(st).Replace(t.Context(), rev, nextOf(t, s))
		return err
	}
	for who, c := range map[string]struct {
		err  error
		want string
	}{
		"the reader updates":                  {update(reader, "prod-a"), "the role needs get and update on keysets.keypost.dev in namespace " + ns},
		"the reader creates":                  {keystore.Create(t.Context(), keystore.NewStore(reader), storetest.KeySet(t, "prod-d")), "the role needs create on"},
		"the writer updates another key set":  {update(writer, "prod-b"), "the role needs get on"},
		"the writer creates":                  {keystore.Create(t.Context(), keystore.NewStore(writer), storetest.KeySet(t, "prod-d")), "the role needs create on"},
		"the writer lists":                    {errOf(writer.List(t.Context())), "the role needs get, list and watch on keysets.keypost.dev in namespace " + ns},
		"nobody lists":                        {errOf(nobody.List(t.Context())), "the role needs get, list and watch on"},
		"nobody watches":                      {nobody.Watch(t.Context(), func(...keystore.Name) {}), "the role needs get, list and watch on"},
		"the creator updates what it created": {update(creator, "prod-c"), "the role needs get on"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", who, c.err, c.want)
		}
	}
	if err := update(reader, "prod-a"); !errors.Is(err, keystore.ErrReadOnly) {
		t.Errorf("the reader updates: %v, want ErrReadOnly", err)
	}
	if s, _, err := keystore.NewStore(admin).Load(t.Context(), "prod-a"); err != nil || s.Generation() != 2 {
		t.Errorf("prod-a is generation %d, %v; want 2", s.Generation(), err)
	}
}

func errOf[T any](_ T, err error) error { return err }

// nextOf returns s with another mark and the next generation.
func nextOf(t *testing.T, s keystore.KeySet) keystore.KeySet {
	t.Helper()
	m := storetest.NewMemStore(t)
	_, err := m.Replace(t.Context(), "", s)
	must(t, err)
	next, err := keystore.Update(t.Context(), m.Store, s.Name(), storetest.Mark("next"))
	must(t, err)
	return next
}
