package verifycmd

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

func TestPasted(t *testing.T) {
	f := &cli.Factory{}
	root := &cobra.Command{Use: "keypost"}
	key, issuer := &cobra.Command{Use: "key"}, &cobra.Command{Use: "issuer"}
	for _, use := range []string{"add", "generate", "promote"} {
		key.AddCommand(&cobra.Command{Use: use, Run: func(*cobra.Command, []string) {}})
	}
	issuer.AddCommand(&cobra.Command{Use: "set", Run: func(*cobra.Command, []string) {}}, &cobra.Command{Use: "observe", Run: func(*cobra.Command, []string) {}})
	f.Root(root, key, issuer, NewCmdVerify(f))
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://x.example.com","sub":"system:serviceaccount:ns:app"}`))
	head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"k"}`))
	named, err := keystore.New(keystore.Change{At: time.Now().Add(-time.Hour)}, keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, "https://oidc.example.com/a"), Keys: []keystore.VerificationKey{storetest.Key(t)}})
	if err != nil {
		t.Fatal(err)
	}
	opts := &verifyOptions{f: f, root: func() *cobra.Command { return root }, tokenFile: "tok"}
	opts.cluster.Kubeconfig, opts.cluster.Context = "kube.conf", "c1"
	to := target{verify.Options{URL: "https://oidc.example.com/a", Token: head + "." + claims + ".AA"}, &named, true}
	for _, tt := range []struct{ code, repair, want string }{
		{"x", "nothing to type", "nothing to type"},
		{"x", "lower it: keypost issuer set NAME --max-age 5m", "lower it: keypost issuer set prod-a --max-age 5m"},
		{"x", "publish it (keypost key add ISSUER --kubeconfig FILE) under its name", "publish it (keypost key add prod-a --kubeconfig kube.conf --context c1) under its name"},
		{"x", "keypost key add https://a --kubeconfig 'it'\\''s'", "keypost key add https://a --kubeconfig 'it'\\''s' --context c1"},
		{"x", "compare with keypost verify NAME --store STORE", "compare with keypost verify prod-a --store STORE"},
		{"x", "wait: keypost key promote ISSUER KID --wait", "wait: keypost key promote prod-a KID --wait --observations URL"},
		{"x", "a key: keypost key generate --out DIR, then another", "a key: keypost key generate --out DIR, then another"},
		{"x", "make it: keypost aws create-role", "make it: keypost aws create-role"},
		{"origin-unreachable", "look: keypost verify NAME --connect HOST:PORT; start it", "look: keypost verify prod-a --connect 192.0.2.1:443; start it"},
		{"addresses-differ", "keypost verify NAME --connect HOST:PORT", "keypost verify prod-a --connect HOST:PORT"},
		{"token-x", "make one with kubectl create token SERVICEACCOUNT --audience a, and", "make one with kubectl create token app --audience a --namespace ns --kubeconfig kube.conf --context c1, and"},
		{"cluster-x", "kubectl create x --user=jane && kubectl create y", "kubectl create x --user=jane && kubectl create y"},
	} {
		f := finding.Finding{Code: tt.code, Repair: tt.repair, At: []string{"192.0.2.1:443"}}
		if got := opts.pasted(f, to); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.repair, got, tt.want)
		}
	}
	to.set = &keystore.KeySet{}
	f2 := finding.Finding{Repair: "keypost key add ISSUER --kubeconfig FILE, or keypost issuer set NAME --max-age 5m"}
	if got := opts.pasted(f2, to); !strings.HasPrefix(got, "keypost key add https://oidc.example.com/a --kubeconfig kube.conf ") || !strings.Contains(got, "issuer set NAME ") {
		t.Errorf("without a name: %s", got)
	}
}

// The KID of a repair is that which the finding has as data: the evidence has words of a server, which may name any key.
func TestPastedKid(t *testing.T) {
	f := &cli.Factory{}
	root, key := &cobra.Command{Use: "keypost"}, &cobra.Command{Use: "key"}
	key.AddCommand(&cobra.Command{Use: "revoke ISSUER KID", Run: func(*cobra.Command, []string) {}})
	f.Root(root, key)
	k, err := storetest.Key(t).WithID("-x;touch${IFS}pwned", "ES256")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := storetest.Key(t).WithID("plain", "ES256")
	if err != nil {
		t.Fatal(err)
	}
	set, err := keystore.New(keystore.Change{At: time.Now().Add(-time.Hour)}, keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, "https://oidc.example.com/a"), Keys: []keystore.VerificationKey{k, plain}})
	if err != nil {
		t.Fatal(err)
	}
	opts := &verifyOptions{f: f, root: func() *cobra.Command { return root }}
	for kid, want := range map[string]string{
		"plain": "keypost key revoke prod-a plain --why leaked", "": "keypost key revoke prod-a KID --why leaked", "unknown": "keypost key revoke prod-a KID --why leaked",
		string(k.ID()): "keypost key revoke --why leaked -- prod-a '-x;touch${IFS}pwned'",
	} {
		got := opts.pasted(finding.Finding{Evidence: `key 1 (kid "not-plain-at-all") has the private member "d"`, Repair: "keypost key revoke ISSUER KID --why leaked", Kid: kid}, target{set: &set})
		if got != want {
			t.Errorf("about %q: %s, want %s", kid, got, want)
		}
	}
}

func TestSplitWords(t *testing.T) {
	for _, words := range [][]string{{"a"}, {"keypost", "it's", "a b", "é", ""}, {`\`, "--x=y z"}} {
		if got := splitWords(cli.Quoted(words...)); !slices.Equal(got, words) {
			t.Errorf("%q becomes %q", words, got)
		}
	}
}
