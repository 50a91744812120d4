//go:build e2e

package e2e

import (
	"context"
	"crypto"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
)

// agent is a process in a pod of a private cluster, which nobody can reach from outside: it has the pod's service account there, and
// where the key sets are it may write the object edge, and list and read the others.
type agent struct {
	*enrolScene
	*member
	victim *member
	pod    string // what the pod has as /run
	store  string // kubeconfig of its rights at the key sets
	second crypto.Signer
}

const agentRules = `[{apiGroups: [keypost.dev], resources: [keysets], verbs: [get, list]},
  {apiGroups: [keypost.dev], resources: [keysets], resourceNames: [edge], verbs: [update]}]`

func (s *enrolScene) newAgent(t *testing.T) *agent {
	t.Helper()
	a := &agent{enrolScene: s, member: newMember(t, s.kube.ca, "edge", 6446), victim: s.all[1], pod: t.TempDir(), second: newRSAKey(t, 2048)}
	a.serve(s.t, a.second)
	a.ready(t)
	for _, words := range []string{
		"create namespace keypost", "create serviceaccount agent --namespace keypost",
		"create clusterrole keypost-enroll --verb=get --resource=namespaces --resource-name=kube-system",
		"create clusterrolebinding keypost-enroll --clusterrole=keypost-enroll --serviceaccount=keypost:agent",
		"create clusterrolebinding keypost-enroll-keys --clusterrole=system:service-account-issuer-discovery --serviceaccount=keypost:agent",
	} {
		a.kubectl(t, strings.Fields(words)...)
	}
	mounted := filepath.Join(a.pod, "secrets/kubernetes.io/serviceaccount")
	must(t, os.MkdirAll(mounted, 0o700))
	ca := read(t, s.kube.ca.file)
	token := a.kubectl(t, "create", "token", "agent", "--namespace", "keypost")
	for name, text := range map[string]string{"token": token, "ca.crt": string(ca), "namespace": "keypost"} {
		must(t, os.WriteFile(filepath.Join(mounted, name), []byte(strings.TrimSpace(text)), 0o600))
	}
	a.store = s.kube.account(t, s.ns, "edge-agent", agentRules)
	return a
}

// run is keypost enroll in the pod.
func (a *agent) run(t *testing.T, pattern, name string, more ...string) result {
	t.Helper()
	args := append([]string{
		"--mount", "sh", "-c", `mount --bind "$0" /run && exec "$@"`, a.pod, binary("keypost"), "enroll", "--source", "in-cluster", "--name", name,
		"--issuer-url", pattern, "--relying-party", "aws", "--once", "-o", "json", "--store", "kubernetes://" + a.ns + "?kubeconfig=" + a.store,
	}, more...)
	return command(t, []string{"KUBERNETES_SERVICE_HOST=127.0.0.1", fmt.Sprint("KUBERNETES_SERVICE_PORT=", a.port)}, "", "unshare", args...)
}

// agent: it keeps its own key set in step, and whatever it tries with another's, or with another's URL, changes nothing.
func (s *enrolScene) agent(t *testing.T) {
	a := s.newAgent(t)
	for _, n := range []string{"edge", "by-hand"} {
		command(t, nil, "", binary("keypost"), "issuer", "add", n, "--url", "https://oidc.keypost.test/"+n,
			"--public-key-file", a.publicKey, "--store", s.url).ok(t)
	}
	before := s.documents(t)
	if all := reported(t, a.run(t, enrolPattern, "edge"), 1); all["edge"].State != "refused" || !strings.Contains(all["edge"].Why, "made by a person") {
		t.Errorf("without --adopt: %+v", all)
	}
	s.unchanged(t, maps.Clone(before))
	second := verificationKey(t, a.second).ID()
	if all := reported(t, a.run(t, enrolPattern, "edge", "--adopt", "edge"), 0); all["edge"].State != "new key" || len(all) != 1 {
		t.Errorf("its own: %+v", all)
	}
	holds(t, s.store, "edge", a.member, map[keystore.KeyID]keystore.State{a.kid(t): keystore.Active, second: keystore.Next})
	s.unchanged(t, maps.Clone(before), "edge")
	s.verifies(t, a.member)

	victim, before := a.victim.name, s.documents(t)
	for what, c := range map[string]struct{ pattern, name, want string }{
		"another's name":                        {enrolPattern, victim, "it is another cluster"},
		"a name whose active key it also shows": {enrolPattern, "by-hand", "the role needs get and update on keysets.keypost.dev"},
		"a new name":                            {enrolPattern, "edge-2", "the role needs create on keysets.keypost.dev"},
		"another's URL":                         {"edge=" + a.victim.issuer, "edge", "has not the issuer URL " + a.victim.issuer},
		"another's URL, new name":               {"edge-2=" + a.victim.issuer, "edge-2", `key set "` + victim + `" has that issuer URL already`},
	} {
		all := reported(t, a.run(t, c.pattern, c.name, "--adopt", c.name), 1)
		if all[c.name].State != "refused" || !strings.Contains(all[c.name].Why, c.want) {
			t.Errorf("%s: %+v, want refused: %s", what, all, c.want)
		}
		s.unchanged(t, maps.Clone(before))
	}
	a.oldKeys(t, second)
	a.hostile(t)
}

// oldKeys: a key that is gone does not come back, however long the cluster shows it.
func (a *agent) oldKeys(t *testing.T, id keystore.KeyID) {
	_, err := keystore.Update(t.Context(), a.enrolScene.store, "edge", func(k keystore.KeySet) (keystore.KeySet, error) {
		return k.Revoke(keystore.Change{At: time.Now(), By: "e2e", Why: "stolen"}, id, keystore.RevokeOptions{})
	})
	must(t, err)
	before := a.documents(t)
	all := reported(t, a.run(t, enrolPattern, "edge"), 0)
	if notes := strings.Join(all["edge"].Notes, " "); all["edge"].State != "in step" || !strings.Contains(notes, string(id)+", which was revoked") {
		t.Errorf("a revoked key is shown: %+v", all)
	}
	a.unchanged(t, before)
}

// hostile: anyone who has the agent's credentials writes what he likes, without keypost. What the victim publishes stays as it is, byte for
// byte, at keypostd and in the store.
func (a *agent) hostile(t *testing.T) {
	client := a.kube.ca.client()
	served, before := get(t, client, a.victim.issuer+"/keys.json"), a.documents(t)
	object := func(n string, change func(spec)) string {
		var o map[string]any
		must(t, json.Unmarshal([]byte(a.kube.try(t, "", "get", "keyset", n, "-n", a.ns, "-o", "json").ok(t)), &o))
		sp := spec(o["spec"].(map[string]any)) //nolint:forcetypeassert // the API server stores no other
		sp.next(1)
		change(sp)
		text, err := json.Marshal(o)
		must(t, err)
		return string(text)
	}
	stranger := otherKey(t)
	add := func(s spec) { s["keys"] = append(s.list("keys"), stranger) }
	take := func(s spec) { s["issuers"] = []any{a.victim.issuer} }
	for _, c := range []struct{ what, verb, text, want string }{
		{"another's key set", "replace", object(a.victim.name, add), "forbidden"},
		{"a new key set", "create", strings.Replace(object("edge", take), `"name":"edge"`, `"name":"edge-2"`, 1), "forbidden"},
		{"thousands of keys", "replace", object("edge", func(s spec) {
			for i := range 5000 {
				k := maps.Clone(stranger)
				k["kid"], k["importedKid"] = fmt.Sprint("k", i), true
				s["keys"] = append(s.list("keys"), k)
			}
		}), "must have at most 200 items"},
		{"a key that is gone", "replace", object("edge", func(s spec) {
			k := maps.Clone(stranger)
			k["kid"], k["importedKid"] = s.entry("gone", 0)["kid"], true
			s["keys"] = append(s.list("keys"), k)
		}), saysReturned},
		{"another's URL in its place", "replace", object("edge", take), saysURL},
		{"deletion", "delete", object("edge", func(spec) {}), "forbidden"},
		{"a stranger's key", "replace", object("edge", add), ""},
		{"another's URL beside its own", "replace", "", ""},
	} {
		if c.text == "" {
			c.text = object("edge", func(s spec) { s["issuers"] = append([]any{a.victim.issuer}, s.list("issuers")...) })
		}
		r := command(t, nil, c.text, kubeBinary("kubectl"), "--kubeconfig", a.store, "-n", a.ns, c.verb, "-f", "-")
		if (r.code == 0) != (c.want == "") || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: exit code %d: %s, want %q", c.what, r.code, r.stderr, c.want)
		}
		a.unchanged(t, maps.Clone(before), "edge")
	}
	await(t, "the mirror refuses it", func(context.Context) error {
		text := string(get(t, http.DefaultClient, mirrorAdmin+"/metrics"))
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "keypost_mirror_key_sets_refused{") && !strings.HasSuffix(strings.TrimSpace(line), " 0") {
				return nil
			}
		}
		return fmt.Errorf("nothing is refused in %s", text)
	})
	if now := get(t, client, a.victim.issuer+"/keys.json"); string(now) != string(served) {
		t.Errorf("%s/keys.json is %s, and was %s", a.victim.issuer, now, served)
	}
	a.verifies(t, a.victim)
	a.verifies(t, a.member) // its last good version
}
