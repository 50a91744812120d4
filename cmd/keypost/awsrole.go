package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/provision/awsiam"
)

type roleFlags struct {
	awsFlags
	accounts, policyARNs []string
	policyFile           string
}

func (a *app) awsCreateRole() *cobra.Command {
	f := &roleFlags{}
	cmd := &cobra.Command{
		Use:   "create-role --role-name NAME --service-account NAMESPACE/NAME --issuer-url URL",
		Short: "Make an IAM role for any workload's service account",
		Long: "Make an IAM role that pods of these service accounts may assume, for plain Kubernetes with the AWS pod identity\n" +
			"webhook. The issuer's IAM OIDC identity provider must be there. Prints the role's ARN and the annotation.",
		Example: "  keypost aws create-role --role-name backup --service-account backup/agent \\\n" +
			"    --policy-arn arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess --issuer-url https://oidc.example.com/prod-a",
		Args: exactly(0),
	}
	fs := cmd.Flags()
	fs.StringVar(&f.name, "role-name", "", "name of the role")
	fs.StringArrayVar(&f.accounts, "service-account", nil, "NAMESPACE/NAME of a service account that may assume it (repeatable)")
	fs.StringArrayVar(&f.policyARNs, "policy-arn", nil, "ARN of a managed policy to attach (repeatable)")
	fs.StringVar(&f.policyFile, "policy-file", "", "JSON file with a permissions policy to put into the role, - for stdin")
	fs.StringVar(&f.issuerURL, "issuer-url", "", "the issuer URL, as in the tokens' iss")
	fs.StringArrayVar(&f.clientIDs, "client-id", []string{"sts.amazonaws.com"}, "audience of tokens (repeatable; the whole list)")
	fs.StringVar(&f.region, "region", "", "AWS region whose IAM endpoint is called (needed outside the commercial partition)")
	fs.StringVar(&f.account, "account", "", "ID of the only AWS account in which anything may be changed")
	fs.StringToStringVar(&f.tags, "user-tags", nil, "tags for the role, as KEY=VALUE,…")
	fs.BoolVar(&f.adopt, "adopt", false, "take over a role that is not tagged as ours")
	f.diffFlag(fs)
	f.tightenFlag(fs)
	f.boundaryFlag(fs)
	f.trustFlag(fs)
	fs.BoolVar(&f.dev, "dev", false, "a development issuer of keypostd --dev, for an emulator of AWS: its URL may have a port")
	required(cmd, "role-name", "service-account", "issuer-url")
	cmd.RunE = a.awsDo(&f.awsFlags, func(ctx context.Context, r *awsRun) error { return r.createRole(ctx, f) })
	return cmd
}

func (r *awsRun) createRole(ctx context.Context, f *roleFlags) error {
	role, err := r.wantedRole(f)
	if err != nil {
		return err
	}
	trust := awsiam.Trust{Issuer: f.issuerURL, Audiences: f.clientIDs, Usual: f.usual, MaxLength: f.maxTrust, Port: f.dev}
	if err := awsiam.Check(awsiam.Provider{}, trust, []awsiam.Role{role}); err != nil {
		return err
	}
	if err := r.identify(ctx); err != nil {
		return err
	}
	trust.ProviderARN = r.account.ProviderARN(f.issuerURL)
	if err := awsiam.Check(awsiam.Provider{}, trust, []awsiam.Role{role}); err != nil { // now ARNs also against the account
		return err
	}
	there, err := r.existingTrust(ctx, trust.ProviderARN)
	if err != nil {
		return err
	}
	if err := r.checkRegistered(f.clientIDs, there); err != nil {
		return err
	}
	plan, err := r.client.PlanRoles(ctx, trust, []awsiam.Role{role})
	if err != nil {
		return err
	}
	if err := r.settle(ctx, plan); err != nil || f.diff {
		return err
	}
	return r.printRole(role.Name)
}

func (r *awsRun) wantedRole(f *roleFlags) (awsiam.Role, error) {
	role := awsiam.Role{
		Name: f.name, For: "--role-name", ManagedPolicies: f.policyARNs,
		Boundary: f.boundary, Owner: awsiam.OwnedByKeypost(), Tags: f.tags, Adopt: f.adopt,
		// Without a policy of either kind, others see to what the role may do.
		Exact: len(f.policyARNs) > 0 || f.policyFile != "", Tighten: f.tighten,
	}
	for _, account := range f.accounts {
		s, err := parseServiceAccount(account)
		if err != nil {
			return role, err
		}
		role.Subjects = append(role.Subjects, s)
	}
	if f.policyFile == "" {
		return role, nil
	}
	policy, err := r.readFile(f.policyFile, 1<<20)
	role.Policy = policy
	return role, err
}

// parseServiceAccount turns NAMESPACE/NAME into the sub of its tokens. A wildcard would be taken literally by IAM, and
// the role would work for nobody.
func parseServiceAccount(s string) (string, error) {
	namespace, name, _ := strings.Cut(s, "/")
	if !dnsname.IsLabel(namespace) || !dnsname.IsSubdomain(name) {
		return "", usagef("--service-account %q is not NAMESPACE/NAME", s)
	}
	return subject(namespace, name), nil
}

func (r *awsRun) printRole(name string) error {
	v := struct {
		ARN        string `json:"arn"`
		Annotation string `json:"annotation"`
	}{ARN: r.account.RoleARN(name)}
	v.Annotation = fmt.Sprintf("eks.amazonaws.com/role-arn: %s", v.ARN)
	return r.print(v, func(w *tabwriter.Writer) {
		row(w, v.ARN)
		row(w, v.Annotation)
	})
}
