package awscmd

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/provision/install"
)

// roleFlags are those of aws create-role.
type roleFlags struct {
	flags
	accounts, policyARNs []string
	policyFile           string
}

// newCmdCreateRole returns the command aws create-role.
func newCmdCreateRole(factory *cli.Factory) *cobra.Command {
	f := &roleFlags{}
	cmd := &cobra.Command{
		Use:   "create-role --role-name NAME --service-account NAMESPACE/NAME --issuer-url URL",
		Short: "Make an IAM role for any workload's service account",
		Long: "Make an IAM role that pods of these service accounts may assume, for plain Kubernetes with the AWS pod identity\n" +
			"webhook. The issuer's IAM OIDC identity provider must be there. Prints the role's ARN and the annotation.",
		Example: "  keypost aws create-role --role-name backup --service-account backup/agent \\\n" +
			"    --policy-arn arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess --issuer-url https://oidc.example.com/prod-a",
		Args: cli.Exactly(0),
	}
	fs := cmd.Flags()
	fs.StringVar(&f.Name, "role-name", "", "name of the role")
	fs.StringArrayVar(&f.accounts, "service-account", nil, "NAMESPACE/NAME of a service account that may assume it (repeatable)")
	fs.StringArrayVar(&f.policyARNs, "policy-arn", nil, "ARN of a managed policy to attach (repeatable)")
	fs.StringVar(&f.policyFile, "policy-file", "", "JSON file with a permissions policy to put into the role, - for stdin")
	fs.StringVar(&f.IssuerURL, "issuer-url", "", "the issuer URL, as in the tokens' iss")
	fs.StringArrayVar(&f.ClientIDs, "client-id", []string{"sts.amazonaws.com"}, "audience of tokens (repeatable; the whole list)")
	fs.StringVar(&f.Region, "region", "", "AWS region whose IAM endpoint is called (needed outside the commercial partition)")
	fs.StringVar(&f.Account, "account", "", "ID of the only AWS account in which anything may be changed")
	fs.StringToStringVar(&f.Tags, "user-tags", nil, "tags for the role, as KEY=VALUE,…")
	fs.BoolVar(&f.Adopt, "adopt", false, "take over a role that is not tagged as ours")
	f.diffFlag(fs)
	f.tightenFlag(fs)
	f.boundaryFlag(fs)
	f.trustFlag(fs)
	fs.BoolVar(&f.Dev, "dev", false, "a development issuer of keypostd --dev, for an emulator of AWS: its URL may have a port")
	required(cmd, "role-name", "service-account", "issuer-url")
	cmd.RunE = work(factory, &f.flags, func(ctx context.Context, r *run) error { return r.createRole(ctx, f) })
	return cmd
}

func (r *run) createRole(ctx context.Context, f *roleFlags) error {
	o, err := r.roleOptions(f)
	if err != nil {
		return err
	}
	made, err := install.CreateRole(ctx, o)
	r.journal.clear()
	switch {
	case err != nil:
		return err
	case made.Preview != nil:
		return r.show(made.Preview)
	}
	return r.printRole(made.ARN)
}

func (r *run) roleOptions(f *roleFlags) (install.RoleOptions, error) {
	o := install.RoleOptions{Options: f.Options, For: "--role-name", PolicyARNs: f.policyARNs, Boundary: f.requested.Boundary}
	for _, account := range f.accounts {
		s, err := parseServiceAccount(account)
		if err != nil {
			return o, err
		}
		o.ServiceAccounts = append(o.ServiceAccounts, s)
	}
	if f.policyFile == "" {
		return o, nil
	}
	var err error
	o.Permissions, err = r.ReadFile(f.policyFile, 1<<20)
	return o, err
}

// parseServiceAccount parses NAMESPACE/NAME. IAM would take a wildcard literally, and the role would work for nobody.
func parseServiceAccount(s string) (install.ServiceAccount, error) {
	namespace, name, _ := strings.Cut(s, "/")
	if !dnsname.IsLabel(namespace) || !dnsname.IsSubdomain(name) {
		return install.ServiceAccount{}, cli.Usagef("--service-account %q is not NAMESPACE/NAME", s)
	}
	return install.ServiceAccount{Namespace: namespace, Name: name}, nil
}

func (r *run) printRole(arn string) error {
	v := struct {
		ARN        string `json:"arn"`
		Annotation string `json:"annotation"`
	}{ARN: arn}
	v.Annotation = fmt.Sprintf("eks.amazonaws.com/role-arn: %s", v.ARN)
	return r.Print(v, func(w *tabwriter.Writer) {
		cli.Row(w, v.ARN)
		cli.Row(w, v.Annotation)
	})
}
