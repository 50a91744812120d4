package answers

import (
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// TestExplain: the cause stands first, and a refusal that nothing explains names few others.
func TestExplain(t *testing.T) {
	const denied, noKey = "AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity", "InvalidIdentityToken: Couldn't retrieve verification key from your identity provider"
	refused := func(answer string) finding.Finding {
		return finding.CauseOf("aws-refused").Finding(finding.Fail, OfSTS+answer, "")
	}
	of := func(s finding.Severity, code string) finding.Finding {
		return finding.CauseOf(code).Finding(s, "x", "")
	}
	var looked []finding.Finding // at everything
	for _, c := range finding.Causes() {
		looked = append(looked, finding.Good(c.Check, "well"))
	}
	issuerOnly := []finding.Finding{finding.Good("jwks-keys", "well"), finding.Good("token-form", "well")}
	for name, tt := range map[string]struct {
		findings []finding.Finding
		first    string
		repair   string // part of the refusal's
	}{
		"a condition that nobody can judge": {append(slices.Clone(looked), of(finding.Warn, "aws-trust-unclear"), refused(denied)), "aws-trust-unclear", "repair aws-trust-unclear first"},
		"a failure explains it":             {[]finding.Finding{of(finding.Warn, "aws-trust-unclear"), of(finding.Fail, "aws-trust-subject"), refused(denied)}, "aws-trust-subject", "repair aws-trust-subject first"},
		"a failure of something else":       {append(slices.Clone(looked), of(finding.Fail, "clock-off"), of(finding.Warn, "aws-trust-unclear"), refused(denied)), "clock-off", "repair aws-trust-unclear first"},
		"a warning that is not a reason":    {append(slices.Clone(looked), of(finding.Warn, "aws-trust-open"), refused(denied)), "aws-refused", "a policy of the organisation"},
		"all is well":                       {append(slices.Clone(looked), refused(noKey)), "aws-refused", "a policy of the organisation"},
		"the role could not be read":        {append(slices.Clone(issuerOnly), of(finding.Warn, "aws-forbidden"), refused(denied)), "aws-refused", "this lists what may: keypost verify --error 'AccessDenied: "},
		"the issuer is well":                {append(slices.Clone(issuerOnly), refused(noKey)), "aws-refused", "this lists what may: keypost verify --error "},
	} {
		t.Run(name, func(t *testing.T) {
			all := slices.Clone(tt.findings)
			Explain(all)
			finding.Sort(all)
			i := slices.IndexFunc(all, func(f finding.Finding) bool { return f.Code == "aws-refused" })
			if all[0].Code != tt.first || all[0].Severity != finding.Fail || !strings.Contains(all[i].Repair, tt.repair) || len(all[i].Repair) > 600 {
				t.Errorf("first: %s %s; refused: %s", all[0].Severity, all[0].Code, all[i].Repair)
			}
		})
	}
	none := []finding.Finding{of(finding.Warn, "aws-trust-unclear")}
	if Explain(none); none[0].Severity != finding.Warn {
		t.Errorf("without a refusal: %+v", none)
	}
}

// TestExplainToken: a token from before is made anew where the cluster is as it should be, and where it is not, that is repaired.
func TestExplainToken(t *testing.T) {
	of := func(code string) finding.Finding { return finding.CauseOf(code).Finding(finding.Fail, "x", "") }
	for _, tt := range []struct {
		token        string
		cluster      []finding.Finding
		repair, none string // part of the repair, and what it is not
	}{
		{"token-issuer-other", []finding.Finding{finding.Good("cluster-issuer", "x")}, "make a new token, since the cluster signs as the issuer URL now", "restart"},
		{"token-issuer-other", []finding.Finding{of("cluster-issuer-other")}, "repair cluster-issuer-other first", "restart"},
		{"token-issuer-other", []finding.Finding{finding.Good("cluster-issuer", "x"), of("cluster-issuer-other")}, "repair cluster-issuer-other first", "restart"},
		{"token-issuer-other", []finding.Finding{finding.Good("cluster-key", "x")}, "restart every kube-apiserver", "repair cluster"},
		{"token-issuer-other", nil, "restart every kube-apiserver", "repair cluster"},
		{"token-kid-gone", []finding.Finding{finding.Good("cluster-key", "x")}, "make a new token, since the cluster signs with a published key now", "key generate"},
		{"token-kid-gone", []finding.Finding{of("cluster-key-gone")}, "repair cluster-key-gone first", "key add"},
		{"token-kid-unknown", []finding.Finding{of("cluster-key-unpublished")}, "keypost key add", "repair cluster"},
		{"token-kid-unknown", []finding.Finding{finding.Good("cluster-key", "x")}, "make a new token, since", "key add"},
	} {
		all := append(slices.Clone(tt.cluster), of(tt.token))
		Explain(all)
		if got := all[len(all)-1].Repair; !strings.Contains(got, tt.repair) || strings.Contains(got, tt.none) {
			t.Errorf("%s with %v: %s", tt.token, tt.cluster, got)
		}
	}
}
