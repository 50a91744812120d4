package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/fakegcp"
)

// The permissions that the README asks for are those that the calls need, from the first run to the deletion and back, with everything
// repaired that can be repaired.
func TestGCPLeastPermissions(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../provision/gcp/README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(regexp.MustCompile("(?s)## Least permissions\n.*?\n```text\n(.*?)```").FindStringSubmatch(string(readme))[1])
	f := newGCPCluster(t, fakegcp.Options{})
	needed := map[string]bool{}
	note := func() {
		for _, c := range f.gcp.Calls() {
			needed[c.Permission] = c.Permission != "" || needed[c.Permission]
		}
		f.gcp.ResetCalls()
	}
	f.createAll(t)
	note()
	const pool = "https://iam.googleapis.com/v1/projects/my-project/locations/global/workloadIdentityPools/prod-a"
	const role = "https://iam.googleapis.com/v1/projects/my-project/roles/myproject_openshiftvolumesgcp"
	account := "https://iam.googleapis.com/v1/" + f.gcp.State().Accounts[0].Name
	for _, c := range [][3]string{
		{"PATCH", pool + "?updateMask=disabled", `{"disabled":true}`},
		{"PATCH", pool + "/providers/prod-a?updateMask=disabled", `{"disabled":true}`},
		{"DELETE", pool + "/providers/prod-a", ""},
		{"PATCH", role + "?updateMask=includedPermissions", `{"includedPermissions":["compute.instances.attachDisk"]}`},
		{"DELETE", role, ""},
		{"POST", account + ":disable", "{}"},
		{"PATCH", account, `{"serviceAccount":{"displayName":"else"},"updateMask":"displayName"}`},
	} {
		if err := askGoogle(f.gcp.Server, c[0], c[1], c[2]); err != nil {
			t.Fatal(err)
		}
	}
	f.gcp.ResetCalls()
	f.createAll(t)
	note()
	del := exec.CommandContext(t.Context(), "keypost", "gcp", "delete", "--name", "prod-a", "--project", "my-project", "--force-delete-custom-roles")
	del.Env = f.env
	if out, err := del.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f.createAll(t)
	note()
	var calls []string
	for p, is := range needed {
		if is {
			calls = append(calls, p)
		}
	}
	slices.Sort(calls)
	if !slices.Equal(calls, listed) {
		t.Errorf("the calls need\n%s\nthe README lists\n%s", strings.Join(calls, "\n"), strings.Join(listed, "\n"))
	}
}
