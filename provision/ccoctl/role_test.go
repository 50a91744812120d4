package ccoctl_test

import (
	"testing"

	"github.com/keypost/keypost/provision/ccoctl"
)

func TestRoleNameIsCutAsCcoctlDoes(t *testing.T) {
	got := ccoctl.RoleName("mycluster", "openshift-cloud-credential-operator", "cloud-credential-operator-iam-ro-creds")
	if want := "mycluster-openshift-cloud-credential-operator-cloud-credential-o"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
