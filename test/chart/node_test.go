//go:build e2e_full

package chart

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/test/authority"
)

const host = "oidc.keypost.test"

// TestNode installs the chart on a real node and changes it under relying parties that never stop asking. The namespace
// enforces the Pod Security Standard restricted.
func TestNode(t *testing.T) {
	n := newNode(t)
	n.kubectl(t, "create", "namespace", namespace)
	n.kubectl(t, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	n.kubectl(t, "-n", namespace, "create", "secret", "tls", "keypost-tls", "--cert", n.cert, "--key", n.key)
	n.kubectl(t, "-n", namespace, "create", "configmap", "ca", "--from-file=ca.crt="+n.ca)

	began := time.Now()
	n.helm(t, "install", "--set", "allowEmpty=true")
	t.Logf("installed in %v", time.Since(began).Round(time.Second/10))
	n.addIssuer(t)
	began = time.Now()
	n.connect(t, "keypost")
	t.Logf("served %v after it was written", time.Since(began).Round(time.Second/10))

	check := n.watch(t)
	step := func(name string, do func(t *testing.T)) {
		t.Helper()
		began := time.Now()
		if !t.Run(name, do) {
			n.explain(t)
		}
		t.Logf("%s: %v, %s", name, time.Since(began).Round(time.Second/10), check())
	}
	step("projected token of a pod", n.verifyFromPod)
	step("helm test", func(t *testing.T) { n.run(t, tool(t, "helm"), "test", "keypost", "-n", namespace, "--logs") })
	step("upgrade", func(t *testing.T) { n.helm(t, "upgrade", "--set", "log.level=debug") })
	step("rollback", func(t *testing.T) {
		n.run(t, tool(t, "helm"), "rollback", "keypost", "1", "-n", namespace, "--wait", "--timeout", "4m")
	})
	step("pods are deleted one by one", n.deletePods)
	step("from emptyDir to claims, and back", n.moveToClaims)
	step("uid and gid of OpenShift", n.arbitraryUser)
	step("the mirror loses its rights", n.loseRights)
	step("pods and volumes survive an outage of the store", n.claims)
	step("the definition stays on uninstall", n.uninstall)
}

// node is the cluster that inside has started.
type node struct {
	dir, cert, key, ca string
	address            string // of the Service
	client             *http.Client
	roots              *x509.CertPool
	asked, failed      atomic.Int64
	lastFailure        atomic.Value
	stop               func() // ends the asking
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{dir: tool(t, "node")}
	n.writeCertificates(t)
	must(t, os.Setenv("KUBECONFIG", n.dir+"/kubeconfig"))
	return n
}

// store names KeySets in the namespace, with the administrator's kubeconfig.
func (n *node) store() string {
	return "kubernetes://" + namespace + "?kubeconfig=" + n.dir + "/kubeconfig"
}

func (n *node) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, errs, err := try(nil, name, args...)
	if err != nil {
		n.explain(t)
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, errs, out)
	}
	return out
}

func (n *node) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return n.run(t, tool(t, "kube")+"/kubectl", args...)
}

// explain logs what the pods say of themselves.
func (n *node) explain(t *testing.T) {
	for _, args := range [][]string{{"get", "pods,events"}, {"logs", "-l", "app.kubernetes.io/name=keypost", "--all-containers", "--tail=15", "--prefix"}} {
		out, errs, _ := try(nil, tool(t, "kube")+"/kubectl", append([]string{"-n", namespace}, args...)...)
		t.Logf("%s%s", out, errs)
	}
}

// helm installs or upgrades the release that is watched.
func (n *node) helm(t *testing.T, verb string, more ...string) {
	t.Helper()
	n.run(t, tool(t, "helm"), append(n.arguments(verb, "keypost", "kubernetes"), more...)...)
}

// arguments are helm's for a preset with the images under test.
func (n *node) arguments(verb, name string, p preset) []string {
	return []string{
		verb, name, chartDir, "-n", namespace, "-f", p.file(), "--wait", "--timeout", "4m",
		"--set", "issuerURLs[0]=https://" + host + "/{name}", "--set", "replicas=2", "--set", "service.type=ClusterIP",
		"--set", "image.keypostd.repository=localhost/keypostd,image.keypostd.tag=test,image.keypost.repository=localhost/keypost,image.keypost.tag=test",
		"--set", "test.issuers={" + os.Getenv("KEYPOST_ISSUER") + "},test.caConfigMap=ca",
	}
}

// addIssuer takes the cluster's own key in.
func (n *node) addIssuer(t *testing.T, more ...string) {
	t.Helper()
	n.run(t, tool(t, "bin")+"/keypost", append([]string{
		"--store", n.store(), "issuer", "add", "prod-a", "--url", os.Getenv("KEYPOST_ISSUER"),
		"--public-key-file", n.dir + "/sa.pub", "--relying-party", "aws", "--token-lifetime", "1h",
	}, more...)...)
}

// writeCertificates makes a CA and a certificate for the host.
func (n *node) writeCertificates(t *testing.T) {
	t.Helper()
	n.cert, n.key, n.ca = n.dir+"/tls.crt", n.dir+"/tls.key", n.dir+"/ca.pem"
	ca := authority.New(t)
	ca.Issue(t, n.dir, host)
	n.roots = ca.Pool()
}

// connect has the release's Service asked from now on.
func (n *node) connect(t *testing.T, service string) {
	t.Helper()
	n.address = strings.TrimSpace(n.kubectl(t, "-n", namespace, "get", "service", service, "-o", "jsonpath={.spec.clusterIP}")) + ":443"
	n.client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{ // AWS waits no longer either
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: n.roots},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, n.address)
		},
	}}
	awaitReady(t, n.ask)
}

// ask fetches both documents on a new connection each, as a relying party does.
func (n *node) ask() error {
	for _, path := range []string{"/.well-known/openid-configuration", "/keys.json"} {
		res, err := n.client.Get(os.Getenv("KEYPOST_ISSUER") + path)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK || path == "/keys.json" && !strings.Contains(string(body), `"kid"`) {
			return fmt.Errorf("GET %s: %s: %s", path, res.Status, body)
		}
	}
	return nil
}

// watch asks until the test ends; check fails the test if any request has failed so far.
func (n *node) watch(t *testing.T) (check func() string) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := n.ask(); err != nil {
				n.failed.Add(1)
				n.lastFailure.Store(fmt.Sprintf("%s: %v", time.Now().Format(time.TimeOnly), err))
			}
			n.asked.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	n.stop = func() { stop(); <-done }
	t.Cleanup(n.stop)
	return func() string {
		if n.failed.Load() > 0 {
			t.Errorf("%d of %d rounds failed, last %v", n.failed.Load(), n.asked.Load(), n.lastFailure.Load())
		}
		if n.asked.Load() < 10 {
			t.Error("hardly anything was asked")
		}
		return fmt.Sprintf("%d rounds of requests, %d failed", n.asked.Load(), n.failed.Load())
	}
}

// A pod gets a token from the kubelet, and relies on what keypostd publishes to check it.
func (n *node) verifyFromPod(t *testing.T) {
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: workload}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: workload
      image: localhost/keypost:test
      args: [verify, %q, --token-file, /var/run/secrets/openshift/serviceaccount/token, --ca-file, /ca/ca.crt, --connect, %q]
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: token, mountPath: /var/run/secrets/openshift/serviceaccount}, {name: ca, mountPath: /ca}]
  volumes:
    - {name: token, projected: {sources: [{serviceAccountToken: {audience: openshift, expirationSeconds: 3600, path: token}}]}}
    - {name: ca, configMap: {name: ca}}
`, os.Getenv("KEYPOST_ISSUER"), n.address)
	output(t, strings.NewReader(manifest), tool(t, "kube")+"/kubectl", "-n", namespace, "apply", "-f", "-")
	phase := ""
	awaitReady(t, func() error {
		phase = n.kubectl(t, "-n", namespace, "get", "pod", "workload", "-o", "jsonpath={.status.phase}")
		if phase != "Succeeded" && phase != "Failed" {
			return errors.New("pod is " + phase)
		}
		return nil
	})
	logs := n.kubectl(t, "-n", namespace, "logs", "workload")
	if phase != "Succeeded" || !strings.Contains(logs, "token") {
		t.Errorf("%s:\n%s", phase, logs)
	}
	t.Log(logs)
}

const pods = "app.kubernetes.io/name=keypost"

func (n *node) deletePods(t *testing.T) {
	for _, pod := range strings.Fields(n.kubectl(t, "-n", namespace, "get", "pods", "-l", pods, "-o", "name")) {
		n.kubectl(t, "-n", namespace, "delete", "--ignore-not-found", pod) // one of before may still be on its way out
		n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keypost", "--timeout=3m")
	}
}

// arbitraryUser is what the SCC restricted-v2 does to a pod that names no uid.
func (n *node) arbitraryUser(t *testing.T) {
	n.helm(t, "upgrade", "--set", "platform=openshift")
	n.kubectl(t, "-n", namespace, "patch", "deployment", "keypost", "-p",
		`{"spec":{"template":{"spec":{"securityContext":{"runAsUser":1000680000,"runAsGroup":0,"fsGroup":1000680000}}}}}`)
	n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keypost", "--timeout=3m")
}

// loseRights is an outage of the store only for the mirrors: what they copied stays served, and containers may restart.
func (n *node) loseRights(t *testing.T) {
	n.kubectl(t, "-n", namespace, "delete", "rolebinding", "keypost-mirror")
	n.kubectl(t, "-n", namespace, "delete", "keysets", "--all")
	time.Sleep(20 * time.Second) // two polls
	if ready := n.kubectl(t, "-n", namespace, "get", "deployment", "keypost", "-o", "jsonpath={.status.readyReplicas}"); ready != "2" {
		t.Errorf("%s of 2 replicas are ready", ready)
	}
}

// moveToClaims is what the chart's README says under Upgrades, both ways: the pods without an owner serve until the next are
// ready.
func (n *node) moveToClaims(t *testing.T) {
	n.makeVolumes(t, "moved-0", "moved-1")
	old := strings.Fields(n.kubectl(t, "-n", namespace, "get", "pods", "-l", pods, "-o", "name"))
	n.kubectl(t, "-n", namespace, "delete", "deployment", "keypost", "--cascade=orphan")
	n.run(t, tool(t, "helm"), n.arguments("upgrade", "keypost", "statefulset")...)
	n.kubectl(t, "-n", namespace, "rollout", "status", "statefulset", "keypost", "--timeout=3m")
	n.kubectl(t, "-n", namespace, "delete", "replicaset", "-l", "app.kubernetes.io/instance=keypost")
	n.kubectl(t, append([]string{"-n", namespace, "wait", "--for=delete", "--timeout=2m"}, old...)...)
	if n.failed.Load() > 0 {
		t.Errorf("on the way there requests failed, last %v", n.lastFailure.Load())
	}
	n.kubectl(t, "-n", namespace, "delete", "statefulset", "keypost", "--cascade=orphan")
	n.helm(t, "upgrade")
	n.kubectl(t, "-n", namespace, "delete", "pod", "keypost-0", "keypost-1")
	n.kubectl(t, "-n", namespace, "rollout", "status", "deployment", "keypost", "--timeout=3m")
}

// makeVolumes makes volumes that a claim may take.
func (n *node) makeVolumes(t *testing.T, names ...string) {
	for _, name := range names {
		must(t, os.Mkdir(n.dir+"/"+name, 0o700))
		must(t, os.Chmod(n.dir+"/"+name, 0o777)) // the kubelet sets no owner on host paths
		output(t, strings.NewReader(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {capacity: {storage: 1Gi},
accessModes: [ReadWriteOnce], hostPath: {path: %q}}}`, name, n.dir+"/"+name)), tool(t, "kube")+"/kubectl", "apply", "-f", "-")
	}
}

// claims is the preset statefulset as a release of its own: while the store refuses its mirrors every pod is replaced, and
// the new ones serve the copies that the old ones left. It has no Service of the other release, so it is asked by itself.
func (n *node) claims(t *testing.T) {
	n.makeVolumes(t, "pv-0", "pv-1")
	n.addIssuer(t)
	n.run(t, tool(t, "helm"), append(n.arguments("install", "stateful", "statefulset"), "--set", "crds.install=false,tls.secretName=keypost-tls")...)
	other := &node{dir: n.dir, roots: n.roots}
	other.connect(t, "stateful-keypost")
	check := other.watch(t)
	n.kubectl(t, "-n", namespace, "delete", "rolebinding", "stateful-keypost-mirror")
	for _, pod := range []string{"stateful-keypost-0", "stateful-keypost-1"} {
		n.kubectl(t, "-n", namespace, "delete", "pod", pod)
		n.kubectl(t, "-n", namespace, "wait", "--for=create", "pod/"+pod, "--timeout=1m")
		n.kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "pod/"+pod, "--timeout=3m")
	}
	t.Log(check())
	other.stop()
	n.kubectl(t, "-n", namespace, "exec", "stateful-keypost-0", "-c", "mirror", "--", "/keypost", "--store", "file:///var/lib/keypost", "issuer", "show", "prod-a")
}

func (n *node) uninstall(t *testing.T) {
	n.stop()
	n.run(t, tool(t, "helm"), "uninstall", "keypost", "-n", namespace, "--wait")
	n.kubectl(t, "get", "crd", "keysets.keypost.dev")
}
