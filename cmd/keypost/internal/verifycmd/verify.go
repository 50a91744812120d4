// Package verifycmd has the command keypost verify, which looks at an issuer as a relying party does.
package verifycmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/issuer/verify/token"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/cluster"
)

type verifyOptions struct {
	f         *cli.Factory
	root      func() *cobra.Command // of all commands
	issuers   []string              // names or URLs; empty with all
	tokenFile string
	network   observe.Flags
	dev, all  bool

	cluster   cluster.Access // whose tokens are for the issuer; no Kubeconfig: none is looked at
	roleARN   string         // of the role that they are to assume; empty: none
	assume    bool
	errorText string // what a pod printed, - for stdin; empty: nothing
	explain   string // the code of a cause to print; empty: none
}

// NewCmdVerify returns verify.
func NewCmdVerify(f *cli.Factory) *cobra.Command {
	o := &verifyOptions{f: f}
	cmd := f.Command("verify ISSUER…|--all", "Look at an issuer's public URL as a relying party does, and compare its keys with the store", cobra.ArbitraryArgs, o.run)
	cmd.Long = "Fetch the documents of an issuer, by its URL or by its NAME in the store, from every address of its host, and say\n" +
		"what AWS STS and others would make of them: URL, TLS, discovery document, both JWKS paths, keys, caching; and\n" +
		"of a token, with --token-file. With a store the published keys are compared with the stored ones, by their material:\n" +
		"a key that the store never had fails, since somebody else may be answering. A key that was removed or revoked fails\n" +
		"once no cache may hold it any more. Copies of the keys that relying parties hold (issuer set --relying-party gcp-upload:…)\n" +
		"are compared as they were read back last, with --observations. Where nobody reads the documents (--reach copies), token and\n" +
		"cluster are compared with the stored keys.\n\n" +
		"--kubeconfig looks at the cluster as well: each kube-apiserver is made to mint a token, which shows the issuer and the key\n" +
		"that it signs with, and the audiences that are its own; with --token-file each is asked what it makes of the token.\n" +
		"--role-arn looks at the role's trust policy and its account's IAM OIDC identity provider, with the credentials of\n" +
		"AWS_PROFILE or the environment, and compares them with the token.\n\n" +
		"--error takes what a pod printed, lists the causes that it may have, the likeliest first, and says with an ISSUER which of\n" +
		"them are found. What only clouds can see, since they come from the internet, is \"not seen from here\"."
	cmd.Example = "  keypost verify prod-a --store file:///srv/keysets\n" +
		"  kubectl create token default --audience sts.amazonaws.com | keypost verify https://oidc.example.com/prod-a --token-file -\n" +
		"  keypost verify prod-a --kubeconfig admin.kubeconfig --role-arn arn:aws:iam::123456789012:role/app --token-file token --assume\n" +
		"  kubectl logs app --tail 100 | keypost verify prod-a --error -"
	cmd.Aliases = []string{"doctor"}
	o.root = cmd.Root
	fs := cmd.Flags()
	fs.StringVar(&o.tokenFile, "token-file", "", "`FILE` with a service account token to check, - for stdin")
	o.network.RegisterNetwork(fs)
	fs.BoolVar(&o.dev, "dev", false, "a development issuer: its URL may have a port")
	fs.BoolVar(&o.all, "all", false, "every key set of the store that is in use")
	fs.StringVar(&o.cluster.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster whose tokens are for the issuer: look at it too")
	fs.StringVar(&o.cluster.Context, "context", "", "context in the kubeconfig (default the current one)")
	fs.StringToStringVar(&o.cluster.Reach, "apiserver", nil, "`LISTED=HOST:PORT`: where a kube-apiserver is reached from here, by the address that the cluster lists, such as the end of a tunnel to it (repeatable)")
	fs.StringVar(&o.cluster.ServiceAccount, "service-account", "", "NAMESPACE/NAME for which each kube-apiserver is made to mint a token (default default/default)")
	fs.StringVar(&o.roleARN, "role-arn", "", "ARN of an IAM role that the cluster's pods assume: look at its trust policy and the account's provider too")
	fs.BoolVar(&o.assume, "assume", false, "assume the role with the token of --token-file, as a pod does; the credentials are thrown away")
	fs.StringVar(&o.errorText, "error", "", "an error as a pod printed it, - for stdin: list the causes that it may have")
	fs.StringVar(&o.explain, "explain", "", "print one `CAUSE`: what relying parties answer, and what repairs it; nothing is looked at")
	return cmd
}

type verified struct {
	Issuer   string `json:"issuer"`
	Findings []row  `json:"findings"`

	parties []string // whose answers the table shows
}

// row is a verify.Finding as scripts read it.
type row struct {
	Code     string           `json:"code"`
	Check    string           `json:"check"`
	Severity finding.Severity `json:"severity"`
	Message  string           `json:"message"`
	Answers  []finding.Answer `json:"answers,omitempty"`
	Effect   string           `json:"effect,omitempty"`
	Repair   string           `json:"repair,omitempty"`
	At       []string         `json:"at,omitempty"`
}

func asFinding(f finding.Finding) row {
	return row{Code: f.Code, Check: f.Check, Severity: f.Severity, Message: f.Message(), Answers: f.Answers, Effect: f.Effect, Repair: f.Repair, At: f.At}
}

// target is an issuer to visit.
type target struct {
	verify.Options
	set     *keystore.KeySet // its key set, once that has been read
	parties bool             // whether the cluster and the role are compared with it
}

// declared returns the relying parties of a target's key set.
func (t target) declared() []string { return party.Names(t.set.Policy().RelyingParties) }

func (opts *verifyOptions) run(ctx context.Context, args []string) error {
	opts.issuers = args
	if err := opts.check(); err != nil {
		return err
	}
	if opts.explain != "" {
		return opts.explainCause()
	}
	causes, err := opts.causes()
	if err != nil {
		return err
	}
	if len(args) == 0 && !opts.all {
		return opts.listCauses(causes)
	}
	o, err := opts.options()
	if err != nil {
		return err
	}
	targets, unread, err := opts.targets(ctx, o)
	if err != nil {
		return err
	}
	results, failed, err := opts.look(ctx, targets, causes)
	if err != nil {
		return err
	}
	if err := opts.print(results, causes); err != nil {
		return err
	}
	if failed > 0 {
		err = fmt.Errorf("%d of %d issuers fail", failed, len(targets))
	}
	return errors.Join(err, cli.Unread(unread))
}

// look visits the targets, one after the other, and counts those that fail.
func (opts *verifyOptions) look(ctx context.Context, targets []target, causes []finding.Cause) (results []verified, failed int, err error) {
	p := opts.f.Live().Progress("looking", "issuers")
	defer p.End()
	p.Of(len(targets))
	for _, target := range targets {
		p.Now("waiting for answers of " + target.URL)
		findings, err := opts.examine(ctx, target, causes)
		p.Done(1)
		if err != nil {
			return nil, 0, err
		}
		if finding.Failed(findings) {
			failed++
		}
		r := verified{Issuer: target.URL, parties: target.declared()}
		for _, f := range findings {
			f.Repair = opts.pasted(opts.unforced(ctx, f, target), target)
			r.Findings = append(r.Findings, asFinding(f))
		}
		results = append(results, r)
	}
	return results, failed, nil
}

// check returns an error of usage for flags that do not go together.
func (opts *verifyOptions) check() error {
	several := len(opts.issuers) > 1 || opts.all
	switch {
	case opts.explain != "" && (len(opts.issuers) > 0 || opts.all || opts.errorText != ""):
		return cli.Usagef("--explain stands for itself: it looks at no issuer")
	case opts.explain != "":
		return nil
	case opts.errorText == "" || opts.all:
		if err := cli.CheckChoice(opts.issuers, opts.all); err != nil {
			return err
		}
	}
	switch {
	case several && opts.tokenFile+opts.cluster.Kubeconfig+opts.roleARN != "":
		return cli.Usagef("a token, a cluster and a role belong to one issuer; give one with --token-file, --kubeconfig and --role-arn")
	case opts.cluster.Kubeconfig == "" && (opts.cluster.Context != "" || opts.cluster.ServiceAccount != "" || len(opts.cluster.Reach) > 0):
		return cli.Usagef("--context, --service-account and --apiserver need --kubeconfig")
	case opts.assume && (opts.roleARN == "" || opts.tokenFile == ""):
		return cli.Usagef("--assume needs --role-arn and --token-file")
	case opts.errorText == "-" && opts.tokenFile == "-":
		return cli.Usagef("--error and --token-file cannot both be read from stdin")
	case len(opts.issuers) == 0 && !opts.all && opts.tokenFile+opts.cluster.Kubeconfig+opts.roleARN != "":
		return cli.Usagef("give the issuer to look at; without one --error lists causes only")
	case opts.roleARN == "":
		return nil
	}
	if _, _, err := api.ParseRoleARN(opts.roleARN); err != nil {
		return cli.Usage(err)
	}
	return nil
}

// print prints the findings, and before them which of the causes were found.
func (opts *verifyOptions) print(results []verified, causes []finding.Cause) error {
	found := map[string]any{"issuers": results}
	stated := opts.state(causes, results)
	if causes != nil {
		found["causes"] = stated
	}
	return opts.f.Print(found, func(w *terminal.Table) {
		if causes != nil {
			causesTable(w, stated)
			w.Row()
		}
		findingsTable(w, results)
	})
}

func (opts *verifyOptions) options() (verify.Options, error) {
	o := verify.Options{Dev: opts.dev}
	if opts.f.Observations != "" {
		o.Uploads = func(ctx context.Context, s keystore.KeySet) ([]observation.Record, error) {
			return observe.Records(ctx, opts.f, s)
		}
	}
	var err error
	if o.Network, err = opts.network.Network(); err != nil || opts.tokenFile == "" {
		return o, err
	}
	token, err := opts.f.ReadFile(opts.tokenFile, 1<<20)
	if err != nil {
		return o, err
	}
	if o.Token = strings.TrimSpace(string(token)); o.Token == "" {
		return o, fmt.Errorf("read %s: it holds no token", opts.tokenFile)
	}
	return o, nil
}

// targets returns the URLs to visit and what to compare each of them with, and with --all the key sets whose URLs are unknown: one that is
// broken does not keep the others from being verified.
func (opts *verifyOptions) targets(ctx context.Context, o verify.Options) (targets []target, unread []keystore.Name, err error) {
	var names, urls []string
	for _, issuer := range opts.issuers {
		if catalog.IsURL(issuer) {
			urls = append(urls, issuer)
			continue
		}
		if err := catalog.CheckName(keystore.Name(issuer)); err != nil { // before an error about a store
			return nil, nil, err
		}
		names = append(names, issuer)
	}
	var st *keystore.Store
	if opts.f.Store != "" || opts.all || len(names) > 0 {
		if st, err = opts.f.OpenStore(ctx); err != nil {
			return nil, nil, err
		}
	}
	for _, url := range urls {
		targets = append(targets, urlTarget(st, url, o))
	}
	if len(names) == 0 && !opts.all {
		return targets, nil, nil
	}
	sets, unread, err := opts.f.InUse(ctx, st, names, opts.all)
	for _, s := range sets {
		targets = append(targets, nameTargets(st, s, o)...)
	}
	return targets, unread, err
}

// nameTargets are all URLs of a key set: each has documents of its own. A token is checked at the URL that is its issuer.
func nameTargets(st *keystore.Store, s keystore.KeySet, o verify.Options) []target {
	list := view.URLs(s)
	at := max(0, slices.Index(list, token.Read(o.Token).Issuer))
	var targets []target
	for i, url := range list {
		t := target{o, &s, i == at}
		t.URL, t.Dev = url, s.Dev()
		t.Stored = func(ctx context.Context) (keystore.KeySet, error) { return catalog.Load(ctx, st, s.Name()) }
		if i != at {
			t.Token = ""
		}
		targets = append(targets, t)
	}
	return targets
}

// urlTarget compares with the one key set that has the URL. Without a store there is nothing to compare with.
func urlTarget(st *keystore.Store, url string, o verify.Options) target {
	t := target{o, &keystore.KeySet{}, true}
	t.URL = url
	if st != nil {
		t.Stored = func(ctx context.Context) (s keystore.KeySet, err error) {
			*t.set, err = storedAt(ctx, st, url)
			return *t.set, err
		}
	}
	return t
}

// storedAt returns the key set to compare with. Several with one URL, or one that cannot be read, are errors.
func storedAt(ctx context.Context, st keystore.Reader, url string) (keystore.KeySet, error) {
	s, err := catalog.Find(ctx, st, url)
	if catalog.KindOf(err) == catalog.NoKeySet {
		return s, verify.ErrNotStored
	}
	return s, err
}

func findingsTable(w *terminal.Table, results []verified) {
	for i, r := range results {
		if i > 0 {
			w.Row()
		}
		w.Row(r.Issuer)
		for n, f := range r.Findings {
			w.Row(f.Severity, f.Code, f.Message)
			if n < len(r.Findings)-1 && r.Findings[n+1].Code == f.Code && r.Findings[n+1].Repair == f.Repair {
				continue // several findings in a row may have one cause
			}
			for _, line := range advice(f, r.parties) {
				w.Row("", "", line)
			}
		}
	}
}

// advice returns what to do about a finding, and what relying parties make of it, a line each. Without declared parties it is for AWS.
func advice(f row, parties []string) []string {
	if len(parties) == 0 {
		parties = []string{finding.AWS}
	}
	var lines []string
	if f.Repair != "" {
		lines = append(lines, "repair: "+f.Repair)
	}
	if f.Effect != "" {
		lines = append(lines, "effect: "+f.Effect)
	}
	for _, party := range parties {
		var texts []string
		for _, a := range f.Answers {
			if a.Party == party {
				texts = append(texts, a.Text)
			}
		}
		if len(texts) > 0 {
			lines = append(lines, party+" answers: "+strings.Join(texts, ", or "))
		}
	}
	return lines
}
