//go:build e2e

package e2e

import (
	"context"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	certs "github.com/keypost/keypost/test/authority"
)

// TestEnroll has keypost enroll follow the clusters of a management API server, which has Cluster API's own definitions and holds the key
// sets too. The clusters are real kube-apiservers, and keypostd serves what keypost mirror brings. One process runs all the time, and a
// second one looks at each step.
func TestEnroll(t *testing.T) {
	s := newEnrolScene(t)
	t.Run("three clusters are enrolled", s.enrolled)
	t.Run("one rotates its key by its own means", s.rotates)
	t.Run("an agent in a private cluster", s.agent)
}

// fleet is the namespace of the Cluster objects.
const fleet = "fleet"

// member is a cluster: one kube-apiserver with a prefix of its own in etcd.
type member struct {
	*cluster
	port    int
	running *process
	uid     string
}

func newMember(t *testing.T, ca *authority, name string, port int) *member {
	t.Helper()
	return &member{port: port, cluster: &cluster{name: name, issuer: "https://oidc.keypost.test/" + name, key: newRSAKey(t, 2048), ca: ca}}
}

// serve starts the kube-apiserver, or starts it anew. It verifies tokens by its own key and by those of others.
func (m *member) serve(t *testing.T, others ...crypto.Signer) {
	t.Helper()
	if m.running != nil {
		m.running.stop(t, 20*time.Second)
	}
	m.trusts = filepath.Join(t.TempDir(), "verify.pem")
	var text []byte
	for i, key := range append([]crypto.Signer{m.key}, others...) {
		file := fmt.Sprintf("%s.%d", m.trusts, i)
		writePublicKey(t, file, key)
		one := read(t, file)
		text = append(text, one...)
	}
	must(t, os.WriteFile(m.trusts, text, 0o600))
	m.running = startCluster(t, m.ca, m.cluster, m.port, "--client-ca-file="+m.ca.file)
}

func (m *member) ready(t *testing.T) {
	t.Helper()
	m.awaitReady(t, m.running)
	m.createAccount(t)
	m.uid = m.kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
}

// access is the kubeconfig that Cluster API writes: with a client certificate, and everything inline.
func (m *member) access(t *testing.T) []byte {
	t.Helper()
	admin := certs.Certify(t, m.ca.Authority, &x509.Certificate{
		Subject:  pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	inline := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: %[1]s, cluster: {server: "https://%[2]s", certificate-authority-data: %[3]s}}]
users: [{name: %[1]s-admin, user: {client-certificate-data: %[4]s, client-key-data: %[5]s}}]
contexts: [{name: %[1]s-admin@%[1]s, context: {cluster: %[1]s, user: %[1]s-admin}}]
current-context: %[1]s-admin@%[1]s
`, m.name, m.address, inline(certs.ChainPEM(m.ca.Authority)), inline(certs.ChainPEM(admin)), inline(admin.KeyPEM(t)))
}

func verificationKey(t *testing.T, key crypto.Signer) keystore.VerificationKey {
	t.Helper()
	k, err := keystore.NewPublic(key.Public())
	must(t, err)
	return k
}

// enrolScene is what the steps of TestEnroll share.
type enrolScene struct {
	t       *testing.T // servers that a step starts outlive the step
	kube    *kubeScene // the management cluster
	ns      string     // of the key sets
	url     string     // of the store, with the rights of keypost enroll
	access  string     // kubeconfig of the management cluster, with the rights of keypost enroll
	backend keystore.Backend
	store   *keystore.Store
	server  *server
	all     []*member
	steady  *process
}

func newEnrolScene(t *testing.T) *enrolScene {
	t.Helper()
	s := &enrolScene{t: t, kube: newKubeScene(t)}
	for i, name := range []string{"prod-a", "prod-b", "prod-c"} {
		m := newMember(t, s.kube.ca, name, 6443+i)
		m.serve(t)
		s.all = append(s.all, m)
	}
	s.kube.try(t, "", "create", "-f", filepath.Join(os.Getenv("KEYPOST_E2E_CRDS"), "cluster.x-k8s.io_clusters.yaml")).ok(t)
	s.kube.try(t, "", "create", "namespace", fleet).ok(t)
	s.ns = s.kube.space(t)
	s.access = s.kube.account(t, fleet, "enroll",
		`[{apiGroups: [cluster.x-k8s.io], resources: [clusters], verbs: [list]}, {apiGroups: [""], resources: [secrets], verbs: [get]}]`)
	s.url = "kubernetes://" + s.ns + "?kubeconfig=" + s.kube.account(t, s.ns, "enroll",
		`[{apiGroups: [keypost.dev], resources: [keysets], verbs: [get, list, create, update]}]`)
	s.backend = s.kube.store(t, s.ns)
	s.store = keystore.NewStore(s.backend)
	for _, m := range s.all {
		m.ready(t)
	}
	return s
}

// declare makes a Cluster object as somebody does, and its Secret as Cluster API does.
func (s *enrolScene) declare(t *testing.T, m *member) {
	t.Helper()
	await(t, "a Cluster object is made", func(context.Context) error { // the definition is served some moments after it was made
		r := s.kube.try(t, fmt.Sprintf(`apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: %s, namespace: %s}
spec: {clusterNetwork: {apiServerPort: %d}}
`, m.name, fleet, m.port), "apply", "-f", "-")
		if r.code != 0 {
			return fmt.Errorf("kubectl: %s", r.stderr)
		}
		return nil
	})
	s.reach(t, m.name, m)
}

// reach makes the kubeconfig of a Cluster object lead to a cluster.
func (s *enrolScene) reach(t *testing.T, name string, m *member) {
	t.Helper()
	s.kube.try(t, fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: %[1]s-kubeconfig, namespace: %[2]s, labels: {cluster.x-k8s.io/cluster-name: %[1]s}}
type: cluster.x-k8s.io/secret
data: {value: %[3]s}
`, name, fleet, base64.StdEncoding.EncodeToString(m.access(t))), "apply", "-f", "-").ok(t)
}

// enrolledCluster is one of the lines that keypost enroll --once prints.
type enrolledCluster struct {
	Name, State, Issuer, Why, ClusterIssuer string

	Notes   []string
	NewKeys []struct {
		KID                     string
		Since, PromoteNotBefore time.Time
	}
}

const enrolPattern = "https://oidc.keypost.test/{name}"

func (s *enrolScene) enroll(more ...string) []string {
	return append([]string{"enroll", "--source", "capi:" + fleet, "--kubeconfig", s.access, "--issuer-url", enrolPattern,
		"--relying-party", "aws", "--store", s.url}, more...)
}

// once has a second process look at every cluster.
func (s *enrolScene) once(t *testing.T, code int) map[string]enrolledCluster {
	t.Helper()
	return reported(t, command(t, nil, "", binary("keypost"), s.enroll("--once", "-o", "json")...), code)
}

func reported(t *testing.T, r result, code int) map[string]enrolledCluster {
	t.Helper()
	var out struct{ Clusters []enrolledCluster }
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || r.code != code {
		t.Fatalf("exit code %d, want %d; %v in %s%s", r.code, code, err, r.stdout, r.stderr)
	}
	all := map[string]enrolledCluster{}
	for _, c := range out.Clusters {
		all[c.Name] = c
	}
	return all
}

// want checks the states that were told, in the order of the clusters.
func (s *enrolScene) want(t *testing.T, all map[string]enrolledCluster, states ...string) {
	t.Helper()
	for i, m := range s.all {
		if got := all[m.name]; got.State != states[i] {
			t.Errorf("%s is %q (%s), want %q", m.name, got.State, got.Why, states[i])
		}
	}
}

// told waits until the process that runs all the time says the same, and returns its line.
func (s *enrolScene) told(t *testing.T, name, state string) map[string]any {
	t.Helper()
	var last map[string]any
	await(t, name+" is "+state+" in the log", func(context.Context) error {
		text := read(t, s.steady.log)
		for line := range strings.Lines(string(text)) {
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && entry["cluster"] == name {
				last = entry
			}
		}
		if last["state"] != state {
			return fmt.Errorf("the last line is %v", last)
		}
		return nil
	})
	return last
}

// documents returns every key set document.
func (s *enrolScene) documents(t *testing.T) map[keystore.Name]string {
	t.Helper()
	names, err := s.backend.List(t.Context())
	must(t, err)
	all := map[keystore.Name]string{}
	for n := range names {
		doc, _, err := s.backend.Get(t.Context(), n)
		must(t, err)
		all[n] = string(doc)
	}
	return all
}

// unchanged wants what stands there, less some, to be what stood there.
func (s *enrolScene) unchanged(t *testing.T, before map[keystore.Name]string, less ...keystore.Name) {
	t.Helper()
	for n, doc := range s.documents(t) {
		if !slices.Contains(less, n) && before[n] != doc {
			t.Errorf("key set %s is\n%s\nand was\n%s", n, doc, before[n])
		}
		delete(before, n)
	}
	if len(before) > 0 {
		t.Errorf("there are no key sets %v any more", slices.Collect(maps.Keys(before)))
	}
}

// holds wants a key set to have exactly these keys, and to be of a cluster.
func holds(t *testing.T, st *keystore.Store, n string, m *member, want map[keystore.KeyID]keystore.State) keystore.KeySet {
	t.Helper()
	set, _, err := st.Load(t.Context(), keystore.Name(n))
	must(t, err)
	got := map[keystore.KeyID]keystore.State{}
	for _, k := range set.Keys() {
		got[k.ID()] = k.State
	}
	if !maps.Equal(got, want) || !slices.Equal(set.Clusters(), []keystore.ClusterID{keystore.ClusterID(m.uid)}) {
		t.Errorf("key set %s has the keys %v of %v, want %v of %s", n, got, set.Clusters(), want, m.uid)
	}
	return set
}

func (m *member) kid(t *testing.T) keystore.KeyID { return verificationKey(t, m.key).ID() }

func (s *enrolScene) enrolled(t *testing.T) {
	for _, m := range s.all {
		s.declare(t, m)
	}
	s.want(t, s.once(t, 0), "enrolled", "enrolled", "enrolled")
	s.steady = start(s.t, "enroll", binary("keypost"), s.enroll("--interval", "5s", "--listen", "127.0.0.1:9096")...)
	reader := s.kube.account(t, s.ns, "mirror", readerRules)
	s.server = newStore(s.t, s.kube.ca)
	mirror := start(s.t, "mirror", binary("keypost"), "mirror", "--store", "kubernetes://"+s.ns+"?kubeconfig="+reader, "--poll", "5s",
		"--issuer-url", enrolPattern, "--admin-address", "127.0.0.1:9091", s.server.store)
	mirror.await(t, "ready", func(ctx context.Context) error { return expect(ctx, http.DefaultClient, mirrorAdmin+"/readyz", "") })
	s.server.run(s.t)
	for _, m := range s.all {
		holds(t, s.store, m.name, m, map[keystore.KeyID]keystore.State{m.kid(t): keystore.Active})
		s.verifies(t, m)
		for _, other := range s.all {
			if err := signedBy(t.Context(), s.kube.ca.client(), other.issuer, m.token(t)); (err == nil) != (other == m) {
				t.Errorf("a token of %s at %s: %v", m.name, other.issuer, err)
			}
		}
		s.told(t, m.name, "in step")
	}
	before := s.documents(t)
	s.want(t, s.once(t, 0), "in step", "in step", "in step")
	s.unchanged(t, before)
}

// verifies wants a token of a cluster to be verified by what keypostd serves.
func (s *enrolScene) verifies(t *testing.T, m *member) {
	t.Helper()
	token := m.token(t)
	await(t, m.name+"'s token is verified", func(ctx context.Context) error { return verifyGo(ctx, s.kube.ca.client(), m.issuer, token) })
}

func (s *enrolScene) rotates(t *testing.T) {
	m, before, was := s.all[0], s.documents(t), s.all[0].kid(t)
	next := newRSAKey(t, 2048)
	m.serve(s.t, next)
	m.ready(t)
	all := s.once(t, 0)
	s.want(t, all, "new key", "in step", "in step")
	kid := verificationKey(t, next).ID()
	w := all[m.name].NewKeys
	if len(w) != 1 || w[0].KID != string(kid) || time.Since(w[0].Since) > patience || time.Until(w[0].PromoteNotBefore) < time.Hour {
		t.Errorf("new keys: %+v", w)
	}
	if line := s.told(t, m.name, "new key"); !strings.Contains(fmt.Sprint(line["about"]), "to be promoted from ") {
		t.Errorf("the log says %v", line)
	}
	both := map[keystore.KeyID]keystore.State{was: keystore.Active, kid: keystore.Next}
	holds(t, s.store, m.name, m, both)
	m.key = next // the cluster signs with it, without asking, and drops the old one
	m.serve(s.t)
	m.ready(t)
	all = s.once(t, 0)
	s.want(t, all, "new key", "in step", "in step")
	if notes := strings.Join(all[m.name].Notes, " "); !strings.Contains(notes, string(was)+" is active, and the cluster does not list it") {
		t.Errorf("notes: %s", notes)
	}
	holds(t, s.store, m.name, m, both)
	s.verifies(t, m)
	s.unchanged(t, before, keystore.Name(m.name))
}
