//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	outside "github.com/keypost/keypost/provision/cluster"
)

// verifiedAt is the address of the kube-apiserver of TestVerifyCluster: Kubernetes takes none of 127.0.0.0/8 for one.
const verifiedAt = "10.99.0.31"

// TestVerifyCluster breaks a real kube-apiserver in each way that keypost verify --kubeconfig knows: the true cause comes first,
// and its repair, done as printed, makes it go.
func TestVerifyCluster(t *testing.T) {
	s := newVerifiedCluster(t)
	const own, issuer = defaultIssuer, "https://oidc.keypost.test/prod-v"
	both := []string{"--service-account-issuer=" + issuer, "--service-account-issuer=" + own}

	s.restart("--service-account-issuer=" + own)
	s.createAccount(t)
	t.Run("the cluster signs as another issuer", func(t *testing.T) {
		f := s.first(t, "cluster-issuer-other", "fail")
		s.restart(s.flagsIn(t, f.Repair, both...)...)
		s.gone(t, f)
	})
	t.Run("nothing is wrong", func(t *testing.T) { s.healthy(t) })
	t.Run("kubeadm sorts the issuers", func(t *testing.T) {
		s.restart(slices.Sorted(slices.Values(both))...)
		f := s.first(t, "cluster-issuer-other", "fail")
		if !strings.Contains(f.Repair, "kubeadm 1.34.0 to 1.34.2 sorts") {
			t.Errorf("repair: %s", f.Repair)
		}
		s.flagsIn(t, f.Repair, both...) // with which the next server starts
	})
	t.Run("a cloud's audience is one of the cluster's own", func(t *testing.T) {
		s.restart(append(both, "--api-audiences="+issuer+","+own+","+audience)...)
		s.admits(t, s.token(t), true)
		f := s.first(t, "cluster-audience-cloud", "warn")
		s.restart(append(both, s.flagsIn(t, f.Repair, "--api-audiences="+issuer+","+own)...)...)
		s.gone(t, f)
		s.admits(t, s.token(t), false)
	})
	t.Run("the namespace of the service account is not there", func(t *testing.T) {
		s.account = "absent/app"
		defer func() { s.account = "" }()
		var missing named
		for _, f := range s.verify(t) {
			if f.Code == "cluster-account-missing" {
				missing = f
			}
		}
		_, line, _ := strings.Cut(missing.Repair, "or make it: ")
		s.shell(t, nil, line)
		s.gone(t, missing)
	})
	t.Run("a user without rights", s.withoutRights)
	t.Run("a key that is not published", func(t *testing.T) {
		s.key = newRSAKey(t, 2048)
		s.restart(both...)
		f := s.first(t, "cluster-key-unpublished", "fail")
		s.shell(t, nil, f.Repair)
		await(t, "the key is public", func(context.Context) error { return s.notFound(t, f.Code) })
	})
}

type verifiedCluster struct {
	*switched
	top        *testing.T // of the whole test: a kube-apiserver runs for the steps after the one that starts it
	server     *server
	kubeconfig string
	account    string // that tokens are minted for; empty for default/sa1
}

func newVerifiedCluster(t *testing.T) *verifiedCluster {
	ca := newAuthority(t)
	addAddress(t, verifiedAt)
	startEtcd(t)
	s := &verifiedCluster{top: t, server: newStore(t, ca)}
	s.switched = &switched{cluster: &cluster{name: "prod-v", issuer: "https://oidc.keypost.test/prod-v", key: newRSAKey(t, 2048), ca: ca}, port: planePort}
	public := filepath.Join(t.TempDir(), "sa.pub")
	writePublicKey(t, public, s.key)
	s.server.publishedLongAgo(t, s.name, s.issuer, public)
	s.server.run(t)
	return s
}

// restart starts the kube-apiserver with these flags, at an address of its own that Kubernetes lists.
func (s *verifiedCluster) restart(flags ...string) {
	t := s.top
	t.Helper()
	if s.running != nil {
		s.running.stop(t, patience)
	}
	cert, key := s.ca.issue(t, "verified", verifiedAt)
	s.issuerFlags = flags
	s.running = startCluster(t, s.ca, s.cluster, s.port, "--bind-address="+verifiedAt, "--advertise-address="+verifiedAt,
		"--tls-cert-file="+cert, "--tls-private-key-file="+key, "--endpoint-reconciler-type=lease")
	s.address = verifiedAt + ":6443"
	s.writeKubeconfig(t)
	s.kubeconfig = s.cluster.kubeconfig
	s.awaitReady(t, s.running)
	await(t, "it is listed", func(ctx context.Context) error {
		_, err := outside.Signers(ctx, outside.Access{Kubeconfig: s.kubeconfig, ServiceAccount: "default/kube-root"}, 0, audience)
		if err != nil && strings.Contains(err.Error(), "not found") { // the service account, after the addresses
			return nil
		}
		return err
	})
}

// named is a finding with its code.
type named struct{ Code, Check, Severity, Message, Repair string }

// verify returns the findings about the cluster and its token.
func (s *verifiedCluster) verify(t *testing.T) []named {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte(s.token(t)), 0o600))
	r := s.server.keypost(t, "verify", s.name, "--ca-file", s.ca.file, "--connect", "127.0.0.1:443", "--kubeconfig", s.kubeconfig,
		"--service-account", cmp.Or(s.account, "default/sa1"), "--token-file", file, "-o", "json")
	if strings.Contains(r.stdout+r.stderr, "eyJ") {
		t.Errorf("a token was printed: %s%s", r.stdout, r.stderr)
	}
	return findings(t, r)
}

// findings are those that keypost verify -o json printed of one issuer.
func findings(t *testing.T, r result) []named {
	t.Helper()
	var results struct{ Issuers []struct{ Findings []named } }
	if err := json.Unmarshal([]byte(r.stdout), &results); err != nil || len(results.Issuers) != 1 {
		t.Fatalf("exit code %d, %v in %s%s", r.code, err, r.stdout, r.stderr)
	}
	return results.Issuers[0].Findings
}

// first wants a cause before all others.
func (s *verifiedCluster) first(t *testing.T, code, severity string) named {
	t.Helper()
	f := s.verify(t)[0]
	if f.Code != code || f.Severity != severity {
		t.Fatalf("first: %s %s: %s", f.Severity, f.Code, f.Message)
	}
	return f
}

func (s *verifiedCluster) gone(t *testing.T, gone named) {
	t.Helper()
	if err := s.notFound(t, gone.Code); err != nil {
		t.Errorf("after %q: %v", gone.Repair, err)
	}
}

func (s *verifiedCluster) notFound(t *testing.T, code string) error {
	t.Helper()
	for _, f := range s.verify(t) {
		if f.Code == code {
			return &stillFound{f}
		}
	}
	return nil
}

type stillFound struct{ named }

func (e *stillFound) Error() string { return e.Code + ": " + e.Message }

// healthy wants every check of the cluster to be well, and nothing else to fail.
func (s *verifiedCluster) healthy(t *testing.T) {
	well := map[string]bool{}
	for _, f := range s.verify(t) {
		well[f.Code] = f.Severity == "ok"
		if f.Severity != "ok" && (strings.HasPrefix(f.Code, "cluster-") || strings.HasPrefix(f.Code, "token-") || f.Severity == "fail") {
			t.Errorf("%s %s: %s", f.Severity, f.Code, f.Message)
		}
	}
	for _, check := range []string{"cluster-issuer", "cluster-key", "cluster-keys", "cluster-audiences", "token-signature"} {
		if !well[check] {
			t.Errorf("%s was not found to be well", check)
		}
	}
}

var apiserverFlag = regexp.MustCompile(`--(?:service-account-issuer|api-audiences)=[^ ,;]+(?:,[^ ,;]+)*`)

// flagsIn returns the flags of kube-apiserver that a repair prints.
func (s *verifiedCluster) flagsIn(t *testing.T, repair string, want ...string) []string {
	t.Helper()
	got := apiserverFlag.FindAllString(repair, -1)
	if !slices.Equal(got, want) {
		t.Fatalf("the repair has the flags %q, want %q: %s", got, want, repair)
	}
	return got
}

// shell runs what a repair prints.
func (s *verifiedCluster) shell(t *testing.T, env []string, line string) {
	t.Helper()
	programs := binary("") + ":" + filepath.Dir(kubeBinary("kubectl"))
	env = append(env, "PATH="+programs+":"+os.Getenv("PATH"), "KEYPOST_STORE=file://"+s.server.store)
	command(t, env, "", "sh", "-c", line).ok(t)
}

// withoutRights: each right that is missing is granted by the command that its finding prints.
func (s *verifiedCluster) withoutRights(t *testing.T) {
	s.kubectl(t, "create", "serviceaccount", "watcher")
	administrator := s.kubeconfig
	s.kubeconfig = kubeconfigOf(t, administrator, strings.TrimSpace(s.kubectl(t, "create", "token", "watcher")))
	defer func() { s.kubeconfig = administrator }()
	granted := 0
	for range 3 {
		for _, f := range s.verify(t) {
			if f.Code != "cluster-forbidden" {
				continue
			}
			_, line, found := strings.Cut(f.Repair, "as an administrator of the cluster: ")
			if !found || f.Severity != "warn" {
				t.Fatalf("%s %s: %s", f.Severity, f.Code, f.Repair)
			}
			s.shell(t, []string{"KUBECONFIG=" + administrator}, line)
			granted++
		}
		time.Sleep(time.Second) // the authorizer learns of it by a watch
		if s.notFound(t, "cluster-forbidden") == nil {
			break
		}
	}
	if err := s.notFound(t, "cluster-forbidden"); err != nil || granted != 2 {
		t.Errorf("after %d grants: %v", granted, err)
	}
	s.healthy(t)
}
