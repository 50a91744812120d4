//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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
	ask     *http.Client
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
	p.ask = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), ServerName: hosts[0]}}}
	p.writeKubeconfig(t)
	return p
}

func (p *plane) at(i int) string { return fmt.Sprintf("%s:%d", p.hosts[i], planePort) }

// serve starts the i-th kube-apiserver, or starts it anew with other issuers; it signs with the first. Its certificate
// is only for the first server's address, as if that were the load balancer's: anyone who asks a server at its own address
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

// call asks the i-th server as the cluster's administrator.
func (p *plane) call(ctx context.Context, i int, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+p.at(i)+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.ask.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return answer, err
}

func (p *plane) post(ctx context.Context, i int, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	answer, err := p.call(ctx, i, http.MethodPost, path, text)
	return errors.Join(err, json.Unmarshal(answer, into))
}

// mint has the i-th server sign a token for its service account.
func (p *plane) mint(ctx context.Context, i int, lifetime time.Duration, audiences ...string) (string, error) {
	var answer struct{ Status struct{ Token string } }
	err := p.post(ctx, i, "/api/v1/namespaces/default/serviceaccounts/sa1/token",
		map[string]any{"spec": map[string]any{"audiences": audiences, "expirationSeconds": lifetime.Seconds()}}, &answer)
	return answer.Status.Token, err
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
	hosts := read(t, "/etc/hosts")
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
