package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/issuer/verify/finding"
)

// Why no script executes a repair. The first few are about commands of ours that one of these tests executes elsewhere, or that end a
// finding only with the help of time or of a person; who has another cause with such a command needs a reason of that kind.
const (
	byGate     = "the command waits for a gate, hours or days: test/e2e executes rotations"
	byCluster  = "the key is published by the command, and the cluster or its token has to change as well"
	byDecision = "a person has to find out whose key it is, and what changed it on its way"
	byOutside  = "the command says what only the world outside can show: an address, a replica or a cache that this test does not have"

	byIAM       = "provision/awsiam TestSetUps executes the commands for IAM that are printed"
	byAPIServer = "test/e2e TestVerifyCluster starts kube-apiserver with the flags that are printed, and has an administrator grant the rights"
	byFlags     = "the cluster gets a key in a file and other flags; provision/cluster TestVerifySetUps has what is printed"
	byServer    = "a line in the configuration of what serves or caches the documents; issuer/verify TestSetups makes the change"
	byNetwork   = "DNS, routes, firewalls and clocks are a person's; issuer/verify TestSetups makes the change"
	byCA        = "a certificate is issued by its CA; issuer/verify TestSetups makes the change"
	byToken     = "a new token, from whoever may ask the cluster for one; issuer/verify TestSetups and provision/awsiam TestSetUps do"
	byURL       = "the issuer gets another URL, and the cluster another flag"
	byLook      = "nothing is repaired: it says how to look again"
	byAccount   = "settings of an AWS account, or of a pod"
)

// byHand are the causes whose repairs no script executes, by the reason.
func byHand() map[string]string {
	return map[string]string{
		byGate:     "active-none cluster-key-next key-ec-entra key-alg-gcp key-type key-weak keys-too-many keys-too-many-gcp token-kid-unpublished token-kid-next kid-form",
		byCluster:  "token-kid-gone token-signature-wrong token-alg",
		byDecision: "key-rogue key-swapped key-returned keys-unread jwks-uri-rogue key-certificate alg-changed cluster-key-swapped store-unread",
		byOutside: "dns-hidden origin-unreachable origin-certificate origin-alone origin-shielded origin-refused origin-cert-refused replica-stale replica-broken cache-alone addresses-differ " +
			"key-still-there key-not-withdrawn key-cached key-missing key-not-published key-not-yet discovery-not-found jwks-not-found proxy-host",
		byIAM: "aws-account-other aws-provider-other aws-provider-missing aws-audience-wrong aws-client-id-missing aws-thumbprint-stale aws-trust-provider " +
			"aws-trust-action aws-trust-deny aws-trust-key aws-trust-claim aws-trust-audience aws-trust-wildcard aws-trust-pattern aws-trust-subject aws-trust-unclear " +
			"aws-trust-open-all aws-trust-open-sub aws-trust-open-aud aws-trust-open-absent",
		byAPIServer: "cluster-forbidden cluster-issuer-order cluster-issuer-other cluster-audience-lacking cluster-audience-cloud cluster-account-missing cluster-unreachable " +
			"cluster-unauthorized cluster-token-refused cluster-servers-unasked cluster-keys-unread cluster-review-failed",
		byFlags: "cluster-key-lacking cluster-key-gone cluster-key-retired",
		byServer: "proxy-path server-silent discovery-silent discovery-broken-off discovery-redirect discovery-404-cached cdn-refused discovery-forbidden discovery-status " +
			"issuer-slash issuer-case issuer-other discovery-type discovery-no-store discovery-max-age-0 discovery-no-max-age discovery-max-age-short jwks-max-age-short discovery-no-etag " +
			"jwks-silent jwks-broken-off jwks-redirect jwks-404-cached jwks-forbidden jwks-status jwks-type jwks-no-store jwks-max-age-0 jwks-no-max-age jwks-no-etag " +
			"alias-silent alias-broken-off alias-redirect alias-404-cached alias-forbidden alias-status alias-differs head-failed head-trouble etag-stuck etag-unstable slow",
		byNetwork: "dns-unanswered dns-none address-unroutable proxy-used address-too-many connection-refused host-unreachable connection-dropped clock-off",
		byCA:      "tls-broken tls-expired tls-not-yet tls-name tls-incomplete tls-untrusted tls-doubled tls-order tls-13-only tls-12-only tls-expires-soon",
		byToken: "token-malformed token-too-long token-numbers token-issuer-slash token-issuer-case token-issuer-legacy token-issuer-other token-kid-missing " +
			"token-times-missing token-expired token-expired-just-now token-not-yet token-future token-lifetime token-aud-missing token-aud-cluster token-aud-unusual " +
			"token-aud-many token-sub-missing token-sub-gcp token-sub-long",
		byURL:     "url-slash url-case url-port url-form",
		byLook:    "store-withdrawn store-other-url not-compared token-unchecked cluster-key-unchecked aws-transient aws-rejected-claim aws-refused",
		byAccount: "aws-unread aws-credentials aws-forbidden aws-pod-unset aws-pod-token-unread aws-action-denied aws-role-missing aws-role-path aws-sts-unreachable aws-sts-region aws-session",
	}
}

var executed = regexp.MustCompile(`(?m)^repair ([a-z0-9-]+)`)

// TestRepairs: the repair of each cause is executed as printed by a script (repair CAUSE in testdata), or is listed with the reason
// why none does. A new cause has to choose.
func TestRepairs(t *testing.T) {
	how := map[string][]string{}
	scripts, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range executed.FindAllSubmatch(text, -1) {
			how[string(m[1])] = append(how[string(m[1])], name)
		}
	}
	run := len(how)
	for reason, codes := range byHand() {
		for code := range strings.FieldsSeq(codes) {
			how[code] = append(how[code], reason)
		}
	}
	for _, c := range finding.Causes() {
		if len(how[c.Code]) != 1 {
			t.Errorf("the repair of %s is executed, or is not, for %q: give one script or one reason", c.Code, how[c.Code])
			continue
		}
		if changes := changing(c.Repair); changes != "" && !slices.Contains([]string{byGate, byCluster, byDecision, byOutside}, how[c.Code][0]) && !strings.HasSuffix(how[c.Code][0], ".txtar") {
			t.Errorf("%s prints %q: execute it in a script, or say why not", c.Code, changes)
		}
		delete(how, c.Code)
	}
	for code := range how {
		t.Errorf("%s is no cause of the catalogue", code)
	}
	if run < 28 {
		t.Errorf("only %d repairs are executed", run)
	}
	proved := lists(t)
	for _, reason := range []string{byIAM, byServer, byNetwork, byCA, byToken} {
		for code := range strings.FieldsSeq(byHand()[reason]) {
			ownTest := code == "aws-account-other" || code == "aws-trust-unclear"
			if !ownTest && !strings.Contains(proved, "\n"+code+" ") {
				t.Errorf("%s: no set-up leads to it (%s)", code, reason)
			}
		}
	}
}

// changing returns the first command of ours in a repair that changes something.
func changing(repair string) string {
	root := newRoot(&cli.Factory{})
	for _, line := range printedCommand.FindAllString(repair, -1) {
		cmd, args, err := root.Find(strings.Fields(line)[1:])
		if err == nil && cmd.Runnable() && len(args) > 0 && !slices.Contains([]string{"verify", "list", "show", "generate"}, cmd.Name()) {
			return line
		}
	}
	return ""
}

// lists returns the set-ups of all packages, a line each: the code and the name.
func lists(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "issuer", "verify", "testdata", "setups", "*.txt"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v", files, err)
	}
	all := "\n"
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text) + "\n"
	}
	return all
}
