package verifycmd

import (
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/issuer/verify/finding"
)

// TestStateOfEveryCause: no cause counts as not found in a look that does not have what is needed to see it, and each does in one that has
// everything.
func TestStateOfEveryCause(t *testing.T) {
	whole := func() (*verifyOptions, []verified) {
		opts := &verifyOptions{tokenFile: "token", roleARN: "arn:aws:iam::123456789012:role/app", assume: true}
		opts.cluster.Kubeconfig = "kubeconfig"
		var rows []row
		for _, c := range finding.Causes() {
			rows = append(rows, row{Code: c.Check, Check: c.Check, Severity: finding.OK})
		}
		return opts, []verified{{Findings: rows}}
	}
	take := map[finding.Need]func(*verifyOptions, []verified){
		finding.NeedCluster: func(o *verifyOptions, _ []verified) { o.cluster.Kubeconfig = "" },
		finding.NeedToken:   func(o *verifyOptions, _ []verified) { o.tokenFile = "" },
		finding.NeedRole:    func(o *verifyOptions, _ []verified) { o.roleARN = "" },
		finding.NeedAssume:  func(o *verifyOptions, _ []verified) { o.assume = false },
		finding.NeedStore: func(_ *verifyOptions, r []verified) {
			r[0].Findings = append(r[0].Findings, row{Code: finding.NotCompared, Check: "stored-keys", Severity: finding.Warn})
		},
		finding.NeedPod: nil, // no flag gives it
	}
	for _, c := range finding.Causes() {
		opts, results := whole()
		never := slices.ContainsFunc(c.Needs(), func(n finding.Need) bool { return take[n] == nil })
		want := causeNotFound
		if !c.SeenFromHere() {
			want = causeNotSeen
		}
		if got := opts.stateOf(c, results); (got == want) == never {
			t.Errorf("%s: %q in a look that has everything", c.Code, got)
		}
		for _, n := range c.Needs() {
			remove, known := take[n]
			if !known {
				t.Fatalf("%s needs %s, which this test does not know", c.Code, n)
			}
			if remove == nil {
				continue
			}
			opts, results := whole()
			if remove(opts, results); !strings.HasPrefix(opts.stateOf(c, results), causeUnknown+": ") {
				t.Errorf("%s: %q in a look without %s", c.Code, opts.stateOf(c, results), n)
			}
		}
		area, _, _ := strings.Cut(c.Check, "-")
		if slices.Contains([]string{"aws", "cluster", "token"}, area) && len(c.Needs()) == 0 {
			t.Errorf("%s (check %s) says nothing of what it needs", c.Code, c.Check)
		}
	}
}

// What a fresh token cannot show: the audience of older ones that --api-audiences does not have.
func TestStateOfLackingAudience(t *testing.T) {
	lacking := finding.CauseOf("cluster-audience-lacking")
	opts := &verifyOptions{}
	opts.cluster.Kubeconfig = "kubeconfig"
	results := []verified{{Findings: []row{{Code: "cluster-audiences", Check: "cluster-audiences", Severity: finding.OK}}}}
	if got, want := opts.stateOf(lacking, results), "not checked: give --token-file FILE with a token that a pod has"; got != want {
		t.Errorf("without a token: %q", got)
	}
}

// What the kubeconfig's user may not read has not been looked at.
func TestStateOfForbidden(t *testing.T) {
	opts := &verifyOptions{}
	opts.cluster.Kubeconfig = "kubeconfig"
	results := []verified{{Findings: []row{{Code: "cluster-forbidden", Check: "cluster-rights", Severity: finding.Warn}}}}
	if got := opts.stateOf(finding.CauseOf("cluster-key-lacking"), results); got != "not checked: repair cluster-forbidden first" {
		t.Errorf("%q", got)
	}
}

// A look from one machine says so where it finds nothing, and the causes of the commonest error are five and names.
func TestCausesOfTheCommonestError(t *testing.T) {
	const noKey = "InvalidIdentityToken: Couldn't retrieve verification key from your identity provider"
	opts := &verifyOptions{f: &cli.Factory{}, errorText: noKey}
	causes, err := opts.causes()
	if err != nil {
		t.Fatal(err)
	}
	table := func(list []causeState) string {
		var b strings.Builder
		var w terminal.Table
		causesTable(&w, list)
		if err := w.Write(&b, terminal.Screen{}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	var unlooked []causeState
	for _, c := range causes {
		unlooked = append(unlooked, asCause(c))
	}
	if got := table(unlooked); strings.Count(got, "\n") != 2*mostShown+1 || !strings.HasPrefix(got, "discovery-forbidden  ") || strings.Contains(got, "this machine") {
		t.Errorf("without an issuer:\n%s", got)
	}
	ok := row{Code: "reach", Check: "reach", Severity: finding.OK}
	if got := table(opts.state(causes, []verified{{Findings: []row{ok}}})); !strings.HasPrefix(got, "nothing was found, but every look was from this machine") {
		t.Errorf("all is well from here:\n%s", got)
	}
	bad := row{Code: "tls-order", Check: "tls-chain", Severity: finding.Fail}
	if got := table(opts.state(causes, []verified{{Findings: []row{ok, bad}}})); !strings.HasPrefix(got, "found ") || strings.Contains(got, "this machine") {
		t.Errorf("found from here:\n%s", got)
	}
	forbidden := finding.CauseOf("discovery-forbidden")
	if got := opts.stateOf(forbidden, []verified{{Findings: []row{ok, {Code: "discovery", Check: "discovery", Severity: finding.OK}}}}); got != causeNotSeen {
		t.Errorf("an issuer that is forbidden elsewhere: %q", got)
	}
}
