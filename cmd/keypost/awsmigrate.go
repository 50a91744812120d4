package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/plan"
)

// migrateFlags are those of aws migrate beside the ones that it shares with its siblings.
type migrateFlags struct {
	awsFlags
	from, jwks    string
	finish, force bool
	tokenLifetime time.Duration
	cluster       cluster.Access
}

func (a *app) awsMigrate() *cobra.Command {
	f := &migrateFlags{}
	cmd := &cobra.Command{
		Use:   "migrate --from-issuer-url OLD --issuer-url NEW [--kubeconfig FILE] [--finish]",
		Short: "Move a live cluster from an old issuer, such as a public bucket, to a new one",
		Long: "Publish the keys of OLD under NEW, make NEW's IAM OIDC identity provider, and give every role that trusts OLD a\n" +
			"second statement that trusts NEW; then print the one command that switches the cluster. Tokens of both issuers are\n" +
			"good from then on. Once every kube-apiserver signs as NEW, the same command with --finish takes OLD's statements and\n" +
			"provider away; it refuses (exit code 75, with the time) as long as a token of OLD may still be in use.\n\n" +
			"Each run does what is still to be done; it may be stopped at any point.",
		Example: "  keypost aws migrate --name prod-a --from-issuer-url https://prod-a-oidc.s3.us-east-1.amazonaws.com \\\n" +
			"    --issuer-url https://oidc.example.com/prod-a --kubeconfig admin.kubeconfig",
		Args: exactly(0),
	}
	f.register(cmd)
	cmd.RunE = a.awsDo(&f.awsFlags, func(ctx context.Context, r *awsRun) error { return f.run(ctx, r) })
	return cmd
}

func (f *migrateFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.from, "from-issuer-url", "", "the issuer URL that the cluster's tokens carry now")
	fs.StringVar(&f.jwks, "jwks", "", "JWKS file or URL with OLD's keys, where OLD cannot be reached from here (default OLD itself)")
	fs.BoolVar(&f.finish, "finish", false, "take OLD's statements and provider away")
	fs.DurationVar(&f.tokenLifetime, "token-lifetime", 0, "the longest life of a token for AWS, where pods and policy do not say")
	fs.BoolVar(&f.force, "force", false, "go on although OLD is a CloudFront address, which can be kept")
	fs.StringVar(&f.cluster.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster: to check its keys, and to see whether it was switched")
	fs.StringVar(&f.cluster.Context, "context", "", "context in the kubeconfig (default the current one)")
	fs.StringVar(&f.cluster.ServiceAccount, "service-account", "",
		"NAMESPACE/NAME for which each kube-apiserver is made to mint a token (default default/default)")
	fs.StringVar(&f.name, "name", "",
		"the cluster's name, with which its roles and OLD's provider are tagged (default as in ccoctl's bucket, NAME-oidc)")
	fs.StringVar(&f.region, "region", "", "AWS region whose IAM endpoint is called")
	f.trustFlag(fs)
	fs.StringVar(&f.account, "account", "", "ID of the only AWS account in which anything may be changed")
	fs.StringArrayVar(&f.thumbprints, "thumbprint", nil, "SHA-1 of a CA of NEW that AWS does not know, 40 hex digits (repeatable)")
	fs.StringVar(&f.caFile, "ca-file", "", "PEM file with the CA of NEW, instead of the system's")
	fs.StringVar(&f.connect, "connect", "", "HOST:PORT at which to look for NEW instead of its URL's own addresses")
	fs.BoolVar(&f.dev, "dev", false, "NEW is a development issuer of keypostd --dev, for an emulator of AWS: its URL may have a port, and waits are short")
	f.wanted(fs)
	f.policy.RegisterMaxAge(fs, "how long a copy of NEW's documents is fresh (default 5m)")
	required(cmd, "from-issuer-url", "issuer-url")
}

func (f *migrateFlags) checkMigration() error {
	old, err := url.Parse(f.from)
	if f.name == "" {
		f.name = bucketName(f.from)
	}
	switch {
	case err != nil || old.Scheme != "https" || old.Host == "" || old.RawQuery != "" || old.Fragment != "":
		return usagef("--from-issuer-url %q is no issuer URL: it begins with https:// and has neither query nor fragment", f.from)
	case f.from == f.issuerURL:
		return usagef("--from-issuer-url and --issuer-url are the same; a cluster that keeps its issuer needs no new trust")
	case f.name == "":
		return usagef("the cluster's --name is needed: %s is no address of a bucket NAME-oidc, as ccoctl makes them", f.from)
	case f.cluster.Context != "" && f.cluster.Kubeconfig == "":
		return usagef("--context needs --kubeconfig")
	case f.tokenLifetime < 0 || f.tokenLifetime%time.Second != 0:
		return usagef("--token-lifetime %v: it must be whole seconds, not negative", f.tokenLifetime)
	case f.finish && f.cluster.Kubeconfig == "":
		return withHint(
			usagef("--finish needs --kubeconfig: only a token from every kube-apiserver shows that none signs as %s any more", f.from),
			"where they cannot be asked, %s takes the old trust away on your word; no role is deleted by that",
			command{"aws", "delete", "--name", f.name, "--region", cmp.Or(f.region, "REGION"), "--issuer-url", f.from})
	}
	return nil
}

// migration is one run of aws migrate.
type migration struct {
	*awsRun
	f *migrateFlags
}

func (f *migrateFlags) run(ctx context.Context, r *awsRun) error {
	if err := f.checkMigration(); err != nil {
		return err
	}
	m := &migration{awsRun: r, f: f}
	if isCloudFront(f.from) && !f.force {
		return m.keepCloudFront()
	}
	if err := m.check(); err != nil {
		return err
	}
	if err := r.identify(ctx); err != nil {
		return err
	}
	if err := m.carryClientIDs(ctx); err != nil {
		return err
	}
	r.journal.printf("Moving from issuer %s to %s", f.from, f.issuerURL)
	if f.finish {
		return m.finish(ctx)
	}
	return m.begin(ctx)
}

// check finds what is wrong before anybody is called.
func (m *migration) check() error {
	if err := awsiam.Check(m.f.wantedProvider(), m.move().To, nil); err != nil {
		return err
	}
	if m.f.finish && m.Store == "" {
		return nil // then --token-lifetime and the pods say how long tokens live
	}
	_, err := parsePlace(m.Store)
	return err
}

// begin makes both issuers good for every token, and says how the cluster is switched.
func (m *migration) begin(ctx context.Context) error {
	w, err := m.wish(ctx)
	if err != nil {
		return err
	}
	plan, err := m.plan(ctx) // before anything is published: it also knows whether every statement fits
	if err != nil {
		return err
	}
	if m.f.diff {
		return m.show(plan.Preview().After(w.changes()...))
	}
	if err := m.publishMoved(ctx, w); err != nil {
		return err
	}
	if plan, err = m.plan(ctx); err != nil { // anew: the wait was long enough for others to change a role
		return err
	}
	if err := m.settle(ctx, plan); err != nil {
		return err
	}
	return m.sayNext(ctx)
}

// carryClientIDs has NEW take tokens for every audience that OLD takes them for: some pod asks for it, and some role may
// want it. A list on the command line that leaves one out is refused, as tokens would be.
func (m *migration) carryClientIDs(ctx context.Context) error {
	old := m.account.ProviderARN(m.f.from)
	registered, err := m.client.ClientIDs(ctx, old)
	if err != nil {
		return err
	}
	for _, id := range registered {
		if slices.Contains(m.f.clientIDs, id) {
			continue
		}
		if !m.f.usual && !m.f.finish {
			return withHint(fmt.Errorf("%s takes tokens for the audience %s, which --client-id leaves out: they would be refused under %s",
				old, id, m.f.issuerURL),
				"add --client-id %s; or, if no pod needs it, take it away first: aws iam remove-client-id-from-open-id-connect-provider "+
					"--open-id-connect-provider-arn %s --client-id %s", id, old, id)
		}
		m.f.clientIDs = append(m.f.clientIDs, id)
	}
	return awsiam.Check(m.f.wantedProvider(), m.move().To, nil)
}

// move says what the statements are made of.
func (m *migration) move() awsiam.Move {
	trust := func(url string) awsiam.Trust {
		t := awsiam.Trust{Issuer: url, Audiences: m.f.clientIDs, MaxLength: m.f.maxTrust, Port: m.f.dev}
		if m.account.ID != "" {
			t.ProviderARN = m.account.ProviderARN(url)
		}
		return t
	}
	return awsiam.Move{Name: m.f.name, From: trust(m.f.from), To: trust(m.f.issuerURL), Adopt: m.f.adopt}
}

func (m *migration) plan(ctx context.Context) (plan.Plan, error) {
	provider, err := m.client.PlanProvider(ctx, m.account, m.f.wantedProvider())
	if err != nil {
		return provider, err
	}
	roles, err := m.client.PlanMove(ctx, m.move())
	return provider.Then(roles), err
}

// patchCommand switches an OpenShift cluster.
func patchCommand(issuer string) string {
	patch, _ := json.Marshal(map[string]any{"spec": map[string]string{"serviceAccountIssuer": issuer}}) // strings always marshal
	return fmt.Sprintf("oc patch authentication.config.openshift.io cluster --type=merge -p '%s'", patch)
}

// sayNext prints what switches the cluster: on stdout that alone, so that a script can run it.
func (m *migration) sayNext(ctx context.Context) error {
	openShift, known := true, m.f.cluster.Kubeconfig != ""
	if known {
		var err error
		if _, openShift, err = cluster.ChosenIssuer(ctx, m.f.cluster); err != nil {
			return err
		}
	}
	next, old := m.f.issuerURL, m.f.from
	m.notice("AWS takes tokens of both issuers now. What switches the cluster:")
	if !openShift {
		m.notice("First restart every kube-apiserver with")
		m.sayFirstRound()
	}
	switching := patchCommand(next)
	if !openShift {
		switching = fmt.Sprintf("--service-account-issuer=%s --service-account-issuer=%s", next, old)
	}
	if _, err := fmt.Fprintln(m.Out, switching); err != nil {
		return err
	}
	switch {
	case openShift && !known:
		m.notice("On OpenShift. With kubeadm and others there are two rounds. First restart every kube-apiserver with")
		m.sayFirstRound()
		m.notice("  --service-account-issuer=%s --service-account-issuer=%s", next, old)
	case !openShift:
		m.notice("The first issuer signs, both are accepted. kubeadm 1.34.0 to 1.34.2 sorts repeated extraArgs; look at the")
		m.notice("manifest of the static pod afterwards.")
	}
	if openShift {
		m.notice("OpenShift's kube-apiservers restart one after the other, and accept tokens of %s for 24 hours more: the", old)
		m.notice("kubelet renews those of running pods within that time; restart what read its token only once.")
	}
	m.notice("Then, as often as it takes:")
	m.notice("  %s", m.f.again(command{"aws", "migrate", "--finish"}))
	return nil
}

// sayFirstRound prints the flags with which every kube-apiserver accepts the new issuer before any signs as it: one that
// still has the old flags answers 401 to the tokens that another has just signed as the new one.
func (m *migration) sayFirstRound() {
	m.notice("  --service-account-issuer=%s --service-account-issuer=%s", m.f.from, m.f.issuerURL)
	m.notice("(and with both issuers in --api-audiences, if that is set), so that none refuses the tokens that another has just")
	m.notice("signed. Once the last one has restarted, restart every kube-apiserver with the order switched:")
}

// again is another run for the same move, as far as its flags say what is moved and where.
func (f *migrateFlags) again(c command) command {
	c = append(c, "--name", f.name, "--from-issuer-url", f.from, "--issuer-url", f.issuerURL,
		"--kubeconfig", cmp.Or(f.cluster.Kubeconfig, "FILE"))
	for _, flag := range [][2]string{{"--context", f.cluster.Context}, {"--service-account", f.cluster.ServiceAccount},
		{"--region", f.region}, {"--account", f.account}} {
		if flag[1] != "" {
			c = append(c, flag[0], flag[1])
		}
	}
	for _, flag := range []struct {
		name  string
		given bool
	}{{"--adopt", f.adopt}, {"--dev", f.dev}, {"--force", f.force}} {
		if flag.given {
			c = append(c, flag.name)
		}
	}
	return c
}

// isCloudFront tells whether a URL is that of a distribution, as ccoctl's --create-private-s3-bucket makes it.
func isCloudFront(issuer string) bool {
	u, err := url.Parse(issuer)
	return err == nil && strings.HasSuffix(u.Hostname(), ".cloudfront.net")
}

// keepCloudFront says how to do without a move: what a bucket's own address cannot do, a distribution can.
func (m *migration) keepCloudFront() error {
	old, name := m.f.from, m.f.name
	host := strings.TrimPrefix(old, "https://")
	m.notice("%s is an address of CloudFront: it can be kept, and with it every token, role and provider. Only the", old)
	m.notice("distribution's origin changes, from the bucket to keypostd. ORIGIN is a host name of keypostd for this alone:")
	m.notice("  1. %s", command{"issuer", "add", name, "--url", old, "--jwks", old, "--relying-party", "aws"})
	m.notice("     %s (D: the longest that the distribution keeps a copy)",
		command{"issuer", "set", name, "--origin", "ORIGIN", "--edge-hold", "D"})
	m.notice("  2. in keypostd's configuration bind the URL to the key set, and name the host that CloudFront will ask for:")
	m.notice("       issuerURLs: [..., %q]", name+"="+old)
	m.notice("       hostAliases: {ORIGIN: %s}", host)
	m.notice("  3. https://ORIGIN/.well-known/openid-configuration must now show the issuer %s", old)
	m.notice("  4. give the distribution the origin ORIGIN, HTTPS only, and a cache policy that follows Cache-Control")
	m.notice("  5. %s", command{"verify", name})
	return withHint(errors.New("nothing was done: the issuer URL need not change"), "to move to %s nevertheless, add --force", m.f.issuerURL)
}

// bucketHost is a bucket's own address, in every partition.
var bucketHost = regexp.MustCompile(`^https://([a-z0-9.-]+)\.s3[.-]([a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|amazonaws\.eu|c2s\.ic\.gov|sc2s\.sgov\.gov|cloud\.adc-e\.uk|csp\.hci\.ic\.gov)$`)

// bucketOf is ccoctl's bucket behind an issuer URL; "" for any other address.
func bucketOf(issuer string) (bucket, region string) {
	found := bucketHost.FindStringSubmatch(issuer)
	if found == nil || !strings.HasSuffix(found[1], "-oidc") {
		return "", ""
	}
	return found[1], found[2]
}

// bucketName is the --name with which ccoctl made the bucket behind an issuer URL; "" if it did not.
func bucketName(issuer string) string {
	bucket, _ := bucketOf(issuer)
	return strings.TrimSuffix(bucket, "-oidc")
}

// sayBucket says what becomes of OLD itself. Nothing here touches it: a bucket is no business of IAM's.
func (m *migration) sayBucket() {
	m.notice("Nothing trusts %s any more.", m.f.from)
	m.sayStorage(m.f.from)
	m.notice("Do not use ccoctl aws delete for it: the roles and the new provider bear the same tag and would be deleted too.")
}
