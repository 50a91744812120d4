package awsiam

import (
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// CreateJSON returns the AWS CLI's --cli-input-json for create-open-id-connect-provider, in the layout of ccoctl's 04 file.
// Without a thumbprint IAM obtains its own, so there is no placeholder to fill in.
func (p Provider) CreateJSON() []byte {
	in := struct {
		Url            string
		ClientIDList   []string
		ThumbprintList []string `json:",omitempty"`
		Tags           []types.Tag
	}{p.URL, unique(p.ClientIDs), unique(p.Thumbprints), p.Owner.tags(p.Tags)}
	out, _ := json.MarshalIndent(in, "", "\t") // strings and lists of strings always marshal
	return append(out, '\n')
}

// CreateJSON returns the AWS CLI's --cli-input-json for create-role, in the layout of ccoctl's 05 files. Managed policies are
// attached by another call.
func (r Role) CreateJSON(t Trust) []byte {
	return asJSON(struct {
		AssumeRolePolicyDocument string
		Description              string `json:",omitempty"`
		PermissionsBoundary      string `json:",omitempty"`
		RoleName                 string
		Tags                     []types.Tag
	}{t.policy().Document(r.Subjects).String(), r.Description, r.Boundary, r.Name, r.Owner.tags(r.Tags)})
}

// PolicyJSON returns the AWS CLI's --cli-input-json for put-role-policy, in the layout of ccoctl's 06 files; nil without a
// policy.
func (r Role) PolicyJSON() []byte {
	if r.Policy == nil {
		return nil
	}
	return asJSON(struct{ PolicyDocument, PolicyName, RoleName string }{string(r.Policy), r.Name, r.Name})
}
