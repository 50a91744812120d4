package aws

import (
	"strings"
	"testing"
)

// create-iam-roles asks for the same audiences as the create-all that made the provider, or the two undo each other.
func TestUsualAudiences(t *testing.T) {
	t.Parallel()
	usual := []string{"openshift", "sts.amazonaws.com"}
	for _, tt := range []struct{ registered, want string }{
		{"openshift sts.amazonaws.com", "openshift sts.amazonaws.com"},
		{"openshift sts.amazonaws.com vault", "openshift sts.amazonaws.com"},
		{"sts.amazonaws.com", "sts.amazonaws.com"},
		{"vault", "vault"},
	} {
		if got := strings.Join(usualAudiences(usual, strings.Fields(tt.registered)), " "); got != tt.want {
			t.Errorf("audiences of %s: %s, want %s", tt.registered, got, tt.want)
		}
	}
}
