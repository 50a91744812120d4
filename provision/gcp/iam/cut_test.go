package iam

import (
	"strings"
	"testing"
)

// By these names ccoctl finds what it has made, and Google takes no longer ones.
func TestNamesAreCutAsCcoctlsAre(t *testing.T) {
	t.Parallel()
	p, r := strings.Repeat("p", 60), strings.Repeat("r", 60)
	for _, tt := range []struct{ got, want string }{
		{displayName(p, r), p[:50] + "-" + r[:49]}, {displayName(p[:50], r[:49]), p[:50] + "-" + r[:49]},
		{roleTitle(p, r), p[:50] + "-" + r[:49]}, {roleTitle(p[:50], r[:49]), p[:50] + "-" + r[:49]},
		{Account{Request: r}.RoleID(p), p[:32] + "_" + r[:31]}, {Account{Request: "openshift-a.b"}.RoleID("my-project"), "myproject_openshiftab"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
}
