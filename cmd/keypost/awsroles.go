package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/credrequest"
	"github.com/keypost/keypost/provision/plan"
)

func (a *app) awsCreateIAMRoles() *cobra.Command {
	f := &awsFlags{}
	cmd := &cobra.Command{
		Use:   "create-iam-roles --name NAME --credentials-requests-dir DIR --identity-provider-arn ARN",
		Short: "Make the IAM roles that a release's CredentialsRequests ask for",
		Long: "Make the IAM roles that a release's CredentialsRequests ask for, and the Secrets that name them. Roles that are there\n" +
			"already are compared and brought up to date: what a new release needs more comes before anything goes.",
		Args: exactly(0),
	}
	fs := cmd.Flags()
	f.target(cmd, "AWS region whose IAM endpoint is called (needed outside the commercial partition)")
	f.files(fs)
	f.localFiles(fs)
	f.wanted(fs)
	f.tightenFlag(fs)
	f.roles(cmd)
	fs.StringVar(&f.providerARN, "identity-provider-arn", "", "ARN of the IAM OIDC identity provider that the roles trust")
	required(cmd, "identity-provider-arn")
	cmd.RunE = a.awsDo(f, func(ctx context.Context, r *awsRun) error {
		return r.createIAMRoles(ctx)
	})
	return cmd
}

func (r *awsRun) createIAMRoles(ctx context.Context) error {
	url, err := awsiam.ProviderURL(r.f.providerARN)
	if err != nil {
		return fmt.Errorf("--identity-provider-arn: %w", err)
	}
	if r.f.issuerURL != "" && r.f.issuerURL != url {
		return fmt.Errorf("--issuer-url %s is not the issuer of --identity-provider-arn, %s", r.f.issuerURL, url)
	}
	set, err := r.readRoles()
	if err != nil {
		return err
	}
	trust := awsiam.Trust{ProviderARN: r.f.providerARN, Issuer: url, Audiences: r.f.clientIDs, Usual: r.f.usual, MaxLength: r.f.maxTrust,
		Port: true} // the provider is there, whatever its URL
	if err := awsiam.Check(awsiam.Provider{}, trust, set.roles); err != nil {
		return err
	}
	if r.f.dryRun {
		r.logSkipped(set)
		return r.writeRoles(set, trust)
	}
	if err := r.identify(ctx); err != nil {
		return err
	}
	r.logSkipped(set)
	there, err := r.existingTrust(ctx, r.f.providerARN)
	if err != nil {
		return err
	}
	if r.f.usual {
		trust.Audiences = audiences(r.f.clientIDs, there.Audiences)
	} else if err := r.checkRegistered(r.f.clientIDs, there); err != nil {
		return err
	}
	plan, err := r.planRoles(ctx, set, trust)
	if err != nil {
		return err
	}
	if err := r.settle(ctx, plan); err != nil || r.f.diff {
		return err
	}
	return r.finishRoles(set)
}

// audiences are those usual ones that a provider takes: what create-all wrote into the roles beside that provider. One
// that takes none of them was made for others.
func audiences(usual, registered []string) []string {
	var both []string
	for _, a := range usual {
		if slices.Contains(registered, a) {
			both = append(both, a)
		}
	}
	if len(both) == 0 {
		return registered
	}
	return both
}

// existingTrust reads a provider that somebody has made before.
func (r *awsRun) existingTrust(ctx context.Context, providerARN string) (awsiam.Trust, error) {
	if own := r.account.ProviderARN(""); !strings.HasPrefix(providerARN, own) {
		return awsiam.Trust{}, withHint(
			fmt.Errorf("the provider %s is of another account or partition than the credentials, which are for account %s (%s); "+
				"roles trust a provider of their own account only", providerARN, r.account.ID, r.account.Partition),
			"choose other credentials (AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or the provider of this account")
	}
	there, err := r.client.Trust(ctx, providerARN)
	if err != nil {
		return there, withHint(err, "%s makes the provider", command{"aws", "create-identity-provider", "--name", cmp.Or(r.f.name, "NAME"),
			"--region", cmp.Or(r.f.region, "REGION"), "--issuer-url", "https://" + strings.TrimPrefix(providerARN, r.account.ProviderARN(""))})
	}
	return there, nil
}

// checkRegistered refuses audiences that the provider takes no tokens for, when there is no other, and warns of single
// ones: AWS would refuse every such token.
func (r *awsRun) checkRegistered(audiences []string, there awsiam.Trust) error {
	unknown := slices.DeleteFunc(slices.Clone(audiences), func(a string) bool { return slices.Contains(there.Audiences, a) })
	if len(unknown) == 0 {
		return nil
	}
	err := fmt.Errorf("%s takes no tokens for the audience %s (it takes %s), so that AWS refuses them whatever the role says",
		there.ProviderARN, strings.Join(unknown, ", "), strings.Join(there.Audiences, ", "))
	if len(unknown) < len(audiences) {
		r.warn("%v", err)
		return nil
	}
	return withHint(err, "aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn %s --client-id %s",
		there.ProviderARN, unknown[0])
}

// roleSet is what a directory of CredentialsRequests asks for.
type roleSet struct {
	requests []credrequest.Request
	skipped  []string
	roles    []awsiam.Role // of all requests but those that bring a role of their own, in their order
}

// readRoles reads the CredentialsRequests, and refuses a directory without any: it is hardly ever the one that was meant,
// and a cluster without roles does not come up.
func (r *awsRun) readRoles() (roleSet, error) {
	set, err := r.f.readRoles()
	if err != nil || len(set.requests) > 0 {
		return set, err
	}
	r.logSkipped(set)
	return set, withHint(fmt.Errorf("%s has no CredentialsRequest for AWS in any file named *.yaml or *.yml (%s left out)", r.f.requestsDir,
		plural(len(set.skipped), "thing was", "things were")),
		"oc adm release extract --credentials-requests --cloud=aws --to=DIR fills one; "+
			"for a provider without roles there is %s", command{"aws", "create-identity-provider", "--name", cmp.Or(r.f.name, "NAME"),
			"--region", cmp.Or(r.f.region, "REGION"), "--issuer-url", cmp.Or(r.f.issuerURL, "URL")})
}

// readRoles reads the CredentialsRequests, all of them before anything is done about one.
func (f *awsFlags) readRoles() (roleSet, error) {
	requests, skipped, err := credrequest.ReadDir(f.requestsDir, credrequest.Options{TechPreview: f.techPreview})
	if err != nil {
		return roleSet{}, fmt.Errorf("read CredentialsRequests: %w", err)
	}
	set := roleSet{requests: requests, skipped: skipped}
	for _, q := range requests {
		if q.RoleARN != "" {
			continue
		}
		role, err := f.role(q)
		if err != nil {
			return roleSet{}, err
		}
		set.roles = append(set.roles, role)
	}
	return set, nil
}

// role is ccoctl's role for a CredentialsRequest. Its service accounts are in the namespace of its Secret.
func (f *awsFlags) role(q credrequest.Request) (awsiam.Role, error) {
	policy, err := credrequest.Policy(q.Statements)
	if err != nil {
		return awsiam.Role{}, fmt.Errorf("%s: permissions policy: %w", q.File, err)
	}
	role := awsiam.Role{
		Name:        ccoctl.RoleName(f.name, q.SecretNamespace, q.SecretName),
		For:         fmt.Sprintf("CredentialsRequest %s (%s)", q, q.File),
		Description: fmt.Sprintf("OpenShift role for %s/%s", q.SecretNamespace, q.SecretName),
		Policy:      policy,
		Boundary:    f.boundary,
		Owner:       awsiam.OwnedBy(f.name),
		Tags:        f.tags,
		Adopt:       f.adopt,
		Exact:       true,
		Tighten:     f.tighten,
		Keep:        f.keep,
	}
	for _, sa := range q.ServiceAccounts {
		role.Subjects = append(role.Subjects, subject(q.SecretNamespace, sa))
	}
	return role, nil
}

// subject is the sub of a service account's tokens.
func subject(namespace, name string) string { return "system:serviceaccount:" + namespace + ":" + name }

func (r *awsRun) logSkipped(set roleSet) {
	for _, line := range set.skipped {
		r.journal.printf("%s", line)
	}
}

func (r *awsRun) planRoles(ctx context.Context, set roleSet, trust awsiam.Trust) (plan.Plan, error) {
	plan, err := r.client.PlanRoles(ctx, trust, set.roles)
	if err != nil || !r.f.prune {
		return plan, err
	}
	var keep []string
	for _, role := range set.roles {
		keep = append(keep, role.Name)
	}
	prune, err := r.client.PlanPrune(ctx, r.f.name, keep)
	return plan.Then(prune), err
}

// finishRoles writes the Secrets and says what an upgrade does with them.
func (r *awsRun) finishRoles(set roleSet) error {
	if err := r.writeSecrets(set); err != nil {
		return err
	}
	r.upgradeSteps(set)
	return nil
}

// secret is the manifest of the Secret that a CredentialsRequest asks for. In a dry run the account, and with it the
// role's ARN, is not known.
func (r *awsRun) secret(q credrequest.Request) ccoctl.File {
	s := ccoctl.Secret{Namespace: q.SecretNamespace, Name: q.SecretName, RoleARN: q.RoleARN, TokenPath: q.CloudTokenPath}
	if s.RoleARN == "" && !r.f.dryRun {
		s.RoleARN = r.account.RoleARN(ccoctl.RoleName(r.f.name, q.SecretNamespace, q.SecretName))
	}
	return s.File()
}

// upgradeSteps tells what is left to do in a running cluster: namespaces first, or a Secret has nowhere to go.
func (r *awsRun) upgradeSteps(set roleSet) {
	namespaces := map[string]bool{}
	for _, q := range set.requests {
		namespaces[q.SecretNamespace] = true
	}
	if len(namespaces) == 0 {
		return
	}
	r.notice("next, for a running cluster: these namespaces must exist")
	for _, ns := range slices.Sorted(maps.Keys(namespaces)) {
		r.notice("  %s", ns)
	}
	r.notice("then")
	for _, q := range set.requests {
		r.notice("  oc apply -f %s", r.f.path(r.secret(q).Name))
	}
	r.notice("and, for an upgrade to another minor version")
	r.notice("  oc annotate cloudcredential cluster cloudcredential.openshift.io/upgradeable-to=VERSION --overwrite")
}
