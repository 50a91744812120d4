// Package awscmd has the commands of keypost aws. A command turns its flags into options for provision/aws, and prints
// the events and the result.
//
// Source: github.com/openshift/cloud-credential-operator, pkg/cmd/provisioning/aws.
package awscmd

import (
	"regexp"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/iampolicy"
)

// run is what the flags of the commands say, and the run of one of them.
type run struct {
	cloudcmd.Run
	aws.Options
	providerARN string
	requested   aws.RequestedRoles

	roleName             string // of a workload
	accounts, policyARNs []string
	policyFile           string

	force bool
}

// NewCmdAWS returns the commands of ccoctl aws, with ccoctl's flags, files and log lines, and two of our own.
func NewCmdAWS(f *cli.Factory) *cobra.Command {
	r := &run{}
	r.Run = cloudcmd.Run{Factory: f, To: &r.Options.Options, Party: "aws", Ready: r.ready, Hint: r.hint}
	r.define()
	r.Common = []string{"region", "account", "issuer-url", "dev", "output-dir", "max-trust-length"}
	return r.Group("aws", "Register an issuer and roles with AWS; ccoctl aws, without a bucket",
		r.newCreateIdentityProvider(), r.newCreateIAMRoles(), r.newCreateAll(), r.newDelete(), r.newCreateRole(), r.newMigrate())
}

// define defines every flag. What ccoctl has is spelled as there.
func (r *run) define() {
	r.Define("files to be applied with the AWS CLI")
	r.Requests(&r.requested.Dir, &r.requested.TechPreview, &r.Prune, "roles, their policies, permissions and service accounts; without it nothing goes")
	all := r.All
	all.StringVar(&r.Name, "name", "", "name of what is made: its tag, and the beginning of the roles' names")
	all.StringVar(&r.Region, "region", "", "AWS region whose IAM endpoint is called; needed outside the commercial partition, and where ccoctl needs it")
	all.StringVar(&r.Account, "account", "", "ID of the only AWS account in which anything may be changed")
	all.StringToStringVar(&r.Tags, "user-tags", nil, "tags for all that is made, as KEY=VALUE,…")
	all.BoolVar(&r.Adopt, "adopt", false, "take over a provider or role that is not tagged as ours")
	all.StringArrayVar(&r.Thumbprints, "thumbprint", nil, "SHA-1 of a CA that AWS does not know, 40 hex digits (repeatable)")
	all.StringArrayVar(&r.ClientIDs, "client-id", []string{"openshift", "sts.amazonaws.com"}, "audience of tokens (repeatable; the whole list)")
	cli.Choices(all, "client-id", "openshift", "sts.amazonaws.com")
	all.IntVar(&r.MaxTrustLength, "max-trust-length", iampolicy.TrustLength,
		"characters that a trust policy may have, once the account's quota L-C07B4B0D is raised")
	all.StringVar(&r.requested.Boundary, "permissions-boundary-arn", "", "ARN of the policy that bounds every role's permissions")
	all.StringVar(&r.providerARN, "identity-provider-arn", "", "ARN of the IAM OIDC identity provider that the roles trust")
	all.StringVar(&r.roleName, "role-name", "", "name of the role")
	all.StringArrayVar(&r.accounts, "service-account", nil, "NAMESPACE/NAME of a service account that may assume it (repeatable)")
	all.StringArrayVar(&r.policyARNs, "policy-arn", nil, "ARN of a managed policy to attach (repeatable)")
	all.StringVar(&r.policyFile, "policy-file", "", "JSON `FILE` with a permissions policy to put into the role, - for stdin")
	all.BoolVar(&r.force, "force", false, "go on although OLD is a CloudFront address, which can be kept")
	all.Bool("create-private-s3-bucket", false, "")
	r.Needless("create-private-s3-bucket")
}

var accountForm = regexp.MustCompile(`^[0-9]{12}$`)

// ready returns an error for flags of AWS's that are wrong by themselves, and makes up what none says.
func (r *run) ready() error {
	r.Usual = !r.Given("client-id")
	if r.Has("name") && r.Has("credentials-requests-dir") {
		if err := aws.CheckName(r.Name); err != nil {
			return cli.Usagef("--name %w", err)
		}
	}
	switch {
	case r.Account != "" && !accountForm.MatchString(r.Account):
		return cli.Usagef("--account %q is not an account ID of 12 digits", r.Account)
	case r.Given("max-trust-length") && (r.MaxTrustLength < iampolicy.TrustLength || r.MaxTrustLength > iampolicy.MaxTrustLength):
		return cli.Usagef("--max-trust-length %d: AWS allows %d to %d", r.MaxTrustLength, iampolicy.TrustLength, iampolicy.MaxTrustLength)
	}
	return nil
}
