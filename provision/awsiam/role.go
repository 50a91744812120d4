package awsiam

import (
	"context"
	"errors"

	"github.com/keypost/keypost/provision"
)

// Role is an IAM role as it should be. What is empty is left as it is, but for the trust statement.
type Role struct {
	Name            string
	For             string // what asks for it, for messages: "CredentialsRequest NAMESPACE/NAME (FILE)"
	Description     string
	Subjects        []string // system:serviceaccount:NAMESPACE:NAME
	Policy          []byte   // the permissions policy, a JSON document, kept inline under the role's name; nil for none
	ManagedPolicies []string // ARNs to attach
	Boundary        string   // the permissions boundary's ARN
	Owner           Owner
	Tags            map[string]string // beside the owner's
	Adopt           bool              // takes over a role without the owner's tag
}

// Trust is what a role's own trust statement is made of, beside its subjects.
type Trust struct {
	ProviderARN string
	Issuer      string // URL
	Audiences   []string
	MaxLength   int // characters a trust policy may have; zero for 2,048, more once the account's quota L-C07B4B0D is raised
}

// roleNameLimit is IAM's, in characters.
const roleNameLimit = 64

// RoleName is ccoctl's name for the role behind a CredentialsRequest's secret. It is cut to 64 bytes, so two requests
// may come to the same name: Check refuses that.
func RoleName(name, namespace, secret string) string {
	return cut(name + "-" + namespace + "-" + secret)
}

func cut(name string) string { return name[:min(len(name), roleNameLimit)] }

// Trust reads what roles need to know of an existing provider.
func (c *Client) Trust(ctx context.Context, providerARN string) (Trust, error) {
	return Trust{}, errors.New("not yet")
}

// PlanRoles leads to these roles. It makes at most two calls for a role that is as it should be (one more if managed
// policies are asked for). Permissions that a role loses are noted first and go in the last stage, after all
// that come, so that a cluster in the midst of an upgrade lacks none.
func (c *Client) PlanRoles(ctx context.Context, t Trust, roles []Role) (provision.Plan, error) {
	return provision.Plan{}, errors.New("not yet")
}
