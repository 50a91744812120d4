//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/golden"
)

// varying is what differs from run to run: key IDs, times, ports, and how long an answer took.
var varying = regexp.MustCompile(`[A-Za-z0-9_-]{43}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|127\.0\.0\.1:\d+`)

// TestKubeAPIServerAsIssuer: what keypost verify makes of kube-apiserver's own documents, and of its tokens. The findings were
// read by eye and are kept in testdata; KEYPOST_UPDATE=1 writes them anew.
func TestKubeAPIServerAsIssuer(t *testing.T) {
	const issuer = "https://kube.keypost.test"
	ca := newAuthority(t)
	startEtcd(t)
	for _, c := range []*cluster{{name: "rsa", key: newRSAKey(t, 2048)}, {name: "ec", key: newECKey(t)}} {
		t.Run(c.name, func(t *testing.T) {
			c.issuer = issuer
			c.issuerFlags = []string{"--service-account-issuer=" + issuer, "--service-account-jwks-uri=" + issuer + "/openid/v1/jwks", "--api-audiences=" + issuer}
			cert, key := ca.issue(t, "own-"+c.name, "127.0.0.1", "kube.keypost.test")
			p := startCluster(t, ca, c, 6743, "--tls-cert-file="+cert, "--tls-private-key-file="+key)
			c.awaitReady(t, p)
			c.createAccount(t)
			file := filepath.Join(t.TempDir(), "token")
			must(t, os.WriteFile(file, []byte(c.token(t)), 0o600))
			verify := func() string {
				return command(t, nil, "", binary("keypost"), "verify", issuer, "--ca-file", ca.file, "--connect", c.address, "--token-file", file).stdout
			}
			sameFindings(t, "kube-apiserver-"+c.name+"-closed.txt", verify())
			c.kubectl(t, "create", "clusterrolebinding", "issuer-discovery", "--clusterrole=system:service-account-issuer-discovery", "--group=system:unauthenticated")
			sameFindings(t, "kube-apiserver-"+c.name+".txt", verify())
			p.stop(t, 0)
		})
	}
}

// sameFindings compares what keypost verify printed with a file in testdata.
func sameFindings(t *testing.T, name, stdout string) {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(stdout) {
		words := strings.Fields(varying.ReplaceAllString(line, "…"))
		if len(words) > 1 && (words[1] == "speed" || words[1] == "slow") {
			continue // about this machine
		}
		b.WriteString(strings.Join(words, " ") + "\n")
	}
	golden.Same(t, filepath.Join("testdata", name), b.String())
}
