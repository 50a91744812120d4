//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	outside "github.com/keypost/keypost/provision/cluster"
)

// planePort is the one port of all kube-apiservers of a control plane: Kubernetes lists their addresses under one.
const planePort = 6443

// plane is a control plane of several kube-apiservers behind one etcd, each at an address of its own and listed in the
// EndpointSlice of default/kubernetes as in a real one. Its kubeconfig names the first.
type plane struct {
	cluster
	hosts   []string
	running []*process // nil before serve
	extra   []string   // flags of the servers that are started from now on
	signers []string   // the socket of each server's signer; nil: they sign themselves
}

// newPlane prepares servers at addresses that nobody else has; serve starts them.
func newPlane(t *testing.T, ca *authority, name string, hosts ...string) *plane {
	t.Helper()
	for _, h := range hosts {
		addAddress(t, h)
	}
	p := &plane{hosts: hosts, running: make([]*process, len(hosts))}
	p.cluster = cluster{name: name, key: newRSAKey(t, 2048), ca: ca, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	p.address = p.at(0)
	p.writeKubeconfig(t)
	return p
}

func (p *plane) at(i int) string { return fmt.Sprintf("%s:%d", p.hosts[i], planePort) }

// serve starts the i-th kube-apiserver, or starts it anew with other issuers, of which the first signs. Its certificate
// is for the first server's address alone, as if that were the load balancer's: who asks a server at its own address
// has to keep the kubeconfig's server name.
func (p *plane) serve(t *testing.T, i int, issuers ...string) {
	t.Helper()
	if p.running[i] != nil {
		p.running[i].stop(t, 20*time.Second)
	}
	cert, key := p.ca.issue(t, fmt.Sprintf("%s-%d-own", p.name, i+1), p.hosts[0])
	flags := []string{
		"--etcd-prefix=/" + p.name, "--bind-address=" + p.hosts[i], "--advertise-address=" + p.hosts[i],
		"--tls-cert-file=" + cert, "--tls-private-key-file=" + key, "--endpoint-reconciler-type=lease",
	}
	for _, issuer := range issuers[1:] {
		flags = append(flags, "--service-account-issuer="+issuer, "--api-audiences="+issuer)
	}
	flags = append(flags, p.extra...)
	c := &cluster{name: fmt.Sprintf("%s-%d", p.name, i+1), issuer: issuers[0], key: p.key}
	if p.signers != nil {
		c.signer = p.signers[i]
	}
	p.running[i] = startCluster(t, p.ca, c, planePort, flags...)
	p.running[i].await(t, "ready", func(context.Context) error {
		if r := p.kubectlAt(t, i, "get", "--raw", "/readyz"); r.code != 0 {
			return fmt.Errorf("readyz: %s", r.stderr)
		}
		return nil
	})
}

// kubectlAt asks the i-th server.
func (p *plane) kubectlAt(t *testing.T, i int, args ...string) result {
	t.Helper()
	return command(t, nil, "", kubeBinary("kubectl"),
		append([]string{"--kubeconfig", p.kubeconfig, "--server", "https://" + p.at(i), "--tls-server-name", p.hosts[0]}, args...)...)
}

// apply makes objects.
func (p *plane) apply(t *testing.T, manifest string) {
	t.Helper()
	await(t, "apply to "+p.name, func(context.Context) error { // the namespaces appear some moments after the server is ready
		r := command(t, nil, manifest, kubeBinary("kubectl"), "--kubeconfig", p.kubeconfig, "apply", "-f", "-")
		if r.code != 0 {
			return fmt.Errorf("kubectl: %s", r.stderr)
		}
		return nil
	})
}

// listed waits until Kubernetes itself lists exactly these servers.
func (p *plane) listed(t *testing.T, want ...string) {
	t.Helper()
	await(t, "endpoints of "+p.name, func(context.Context) error {
		r := command(t, nil, "", kubeBinary("kubectl"), "--kubeconfig", p.kubeconfig, "get", "endpointslices", "kubernetes", "-o", "jsonpath={.endpoints[*].addresses[*]}")
		if got := strings.Fields(r.stdout); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			return fmt.Errorf("endpoints %v, want %v: %s", got, want, r.stderr)
		}
		return nil
	})
}

// addAddress gives this network's loopback another address: Kubernetes takes none of 127.0.0.0/8 for a kube-apiserver.
func addAddress(t *testing.T, ip string) {
	t.Helper()
	if r := command(t, nil, "", "ip", "address", "add", ip+"/32", "dev", "lo"); r.code != 0 && !strings.Contains(r.stderr, "xist") && !strings.Contains(r.stderr, "already") {
		t.Fatalf("ip: %s", r.stderr)
	}
}

// addHost makes a name lead to an address in this network, whose /etc/hosts is its own.
func addHost(t *testing.T, ip, name string) {
	t.Helper()
	hosts, err := os.ReadFile("/etc/hosts")
	must(t, err)
	if !strings.Contains(string(hosts), "oidc.keypost.test") {
		t.Fatal("/etc/hosts is not the one that test/e2e/inside makes")
	}
	if !strings.Contains(string(hosts), " "+name+"\n") {
		must(t, os.WriteFile("/etc/hosts", append(hosts, ip+" "+name+"\n"...), 0o644))
	}
}

// podWithToken is a pod that asks for tokens with an audience; no node runs it.
const podWithToken = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  serviceAccountName: sa1
  containers: [{name: app, image: app}]
  volumes:
  - name: token
    projected: {sources: [{serviceAccountToken: {path: token, audience: %[2]s, expirationSeconds: %[3]d}}]}
`

// TestAWSControlPlane: what `aws migrate` decides by, read from two real kube-apiservers of one cluster.
func TestAWSControlPlane(t *testing.T) {
	ca := newAuthority(t)
	startEtcd(t)
	p := newPlane(t, ca, "plane", "10.99.0.11", "10.99.0.12")
	const oldIssuer, newIssuer = "https://old.example.com", "https://new.example.com/plane"
	p.serve(t, 0, oldIssuer)
	p.serve(t, 1, oldIssuer)
	p.createAccount(t)
	p.apply(t, fmt.Sprintf(podWithToken, "short", audience, 600))
	p.apply(t, fmt.Sprintf(podWithToken, "long", "openshift", 7200))
	p.apply(t, fmt.Sprintf(podWithToken, "vault", "vault", 86400))
	p.listed(t, p.hosts...)
	access := outside.Access{Kubeconfig: p.kubeconfig, ServiceAccount: "default/sa1"}

	p.expectSigners(t, access, oldIssuer, oldIssuer)
	p.serve(t, 1, newIssuer, oldIssuer)
	p.listed(t, p.hosts...)
	p.expectSigners(t, access, oldIssuer, newIssuer)
	t.Run("the longest lifetime is that of the audiences asked about", func(t *testing.T) {
		got, err := outside.TokenLifetime(t.Context(), access, []string{audience, "openshift"})
		if want := (outside.Lifetime{Longest: 2 * time.Hour, Pod: "default/long", Pods: 2}); err != nil || got != want {
			t.Errorf("TokenLifetime = %+v, %v, want %+v", got, err, want)
		}
	})
	t.Run("a token for the cluster itself lives for a year", func(t *testing.T) {
		p.apply(t, fmt.Sprintf(podWithToken, "extended", `""`, 3607))
		got, err := outside.TokenLifetime(t.Context(), access, []string{audience, oldIssuer})
		if want := (outside.Lifetime{Longest: 365 * 24 * time.Hour, Pod: "default/extended", Pods: 2}); err != nil || got != want {
			t.Errorf("TokenLifetime = %+v, %v, want %+v", got, err, want)
		}
	})
	t.Run("what OpenShift is told to be is read", func(t *testing.T) { p.asOpenShift(t, access) })
	t.Run("a service account that does not exist is named", func(t *testing.T) {
		nobody := outside.Access{Kubeconfig: p.kubeconfig}
		if _, err := outside.Signers(t.Context(), nobody, audience); err == nil || !strings.Contains(err.Error(), `serviceaccounts "default" not found`) {
			t.Errorf("Signers: %v", err)
		}
	})
	t.Run("the documented rights are enough", func(t *testing.T) { p.leastRights(t) })
}

func (p *plane) expectSigners(t *testing.T, a outside.Access, issuers ...string) {
	t.Helper()
	got, err := outside.Signers(t.Context(), a, audience)
	must(t, err)
	if len(got) != len(issuers) {
		t.Fatalf("Signers = %+v, want %d of them", got, len(issuers))
	}
	kid := kidOf(t, strings.TrimSpace(p.kubectl(t, "create", "token", "sa1")))
	for i, s := range got {
		if want := (outside.Signer{Address: p.at(i), Issuer: issuers[i], KeyID: s.KeyID, Lifetime: 10 * time.Minute}); s != want || string(s.KeyID) != kid {
			t.Errorf("signer %+v, want %+v with the key %s", s, want, kid)
		}
	}
}

// authenticationCRD defines the one resource of OpenShift's that is read, with the member that is read.
const authenticationCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: authentications.config.openshift.io}
spec:
  group: config.openshift.io
  scope: Cluster
  names: {kind: Authentication, plural: authentications, singular: authentication, listKind: AuthenticationList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {serviceAccountIssuer: {type: string}}}}
`

// asOpenShift gives the cluster the one resource of OpenShift's that is read.
func (p *plane) asOpenShift(t *testing.T, access outside.Access) {
	p.apply(t, authenticationCRD)
	p.apply(t, "apiVersion: config.openshift.io/v1\nkind: Authentication\nmetadata: {name: cluster}\nspec: {serviceAccountIssuer: https://old.example.com}\n")
	if issuer, openShift, err := outside.ChosenIssuer(t.Context(), access); err != nil || !openShift || issuer != "https://old.example.com" {
		t.Errorf("ChosenIssuer = %q, %t, %v", issuer, openShift, err)
	}
	p.kubectl(t, "delete", "crd", "authentications.config.openshift.io")
	await(t, "it is no OpenShift any more", func(ctx context.Context) error {
		if _, openShift, err := outside.ChosenIssuer(ctx, access); err != nil || openShift {
			return fmt.Errorf("ChosenIssuer = %t, %w", openShift, err)
		}
		return nil
	})
}

// leastRights asks as a user who has what the doc comment of outside.Access says, and no more.
func (p *plane) leastRights(t *testing.T) {
	p.apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: watcher}
rules:
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list]}
- {apiGroups: [""], resources: [serviceaccounts/token], resourceNames: [sa1], verbs: [create]}
- {apiGroups: [""], resources: [pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: watcher}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: watcher}
subjects: [{kind: ServiceAccount, name: watcher, namespace: default}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: watcher, namespace: default}
`)
	admin, err := os.ReadFile(p.kubeconfig)
	must(t, err)
	token := strings.TrimSpace(p.kubectl(t, "create", "token", "watcher"))
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(admin), adminToken, token)), 0o600))
	access := outside.Access{Kubeconfig: file, ServiceAccount: "default/sa1"}
	await(t, "the rights hold", func(ctx context.Context) error {
		_, err := outside.Signers(ctx, access, audience)
		return err
	})
	if _, err := outside.TokenLifetime(t.Context(), access, []string{audience}); err != nil {
		t.Errorf("TokenLifetime: %v", err)
	}
	if _, openShift, err := outside.ChosenIssuer(t.Context(), access); err != nil || openShift {
		t.Errorf("ChosenIssuer = %t, %v", openShift, err)
	}
}
