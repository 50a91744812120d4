package main

import (
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keypost/keypost/test/commands"
)

// moves holds the commands of a plan against the programs that they are for: moves FILE. Of oc and gcloud, which are not here, the forms are
// known that their documentation has.
func moves(ts *testscript.TestScript, args []string) {
	printed, err := commands.Notes(args[0], ts.ReadFile(args[0]))
	ts.Check(err)
	forms := []string{
		"oc patch authentication.config.openshift.io cluster --type=merge -p ",
		"oc adm wait-for-stable-cluster",
		"oc apply -f ",
		"oc delete pods -n ", // --field-selector: https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
		// https://cloud.google.com/sdk/gcloud/reference/iam/workload-identity-pools/providers
		"gcloud iam workload-identity-pools providers update-oidc prod-a --disabled --workload-identity-pool prod-a --location global --project my-project",
		"gcloud iam workload-identity-pools providers delete prod-a --workload-identity-pool prod-a --location global --project my-project",
	}
	ours, used := 0, map[string]bool{}
	for _, c := range printed {
		line := strings.Join(c.Words, " ")
		if c.Words[0] == "keypost" {
			ours++
			ts.Check(takes(c.Words[1:], false))
			continue
		}
		known := ""
		for _, f := range forms {
			if strings.HasPrefix(line, f) {
				known = f
			}
		}
		if known == "" {
			ts.Fatalf("nobody knows %q", line)
		}
		used[known] = true
	}
	if ours != 1 || len(used) != len(forms) {
		ts.Fatalf("%d commands of keypost, forms %v", ours, used)
	}
}
