// Package enrollcmd has the command keypost enroll, which keeps key sets in step with the clusters of a company.
package enrollcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/internal/durable"
	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/enroll"
)

type options struct {
	*cli.Factory
	source, issuerURL, name, selector, kubeconfig, listen, patches string

	adopt  []string
	policy view.PolicyFlags
	once   bool
	every  time.Duration
}

// NewCmdEnroll returns enroll.
func NewCmdEnroll(f *cli.Factory) *cobra.Command {
	o := &options{Factory: f}
	cmd := f.Command("enroll --source SOURCE --issuer-url PATTERN", "Keep key sets in step with the clusters of a source", cobra.ExactArgs(0), o.run)
	cmd.Long = "Ask every cluster of a source, through its API server, for its own keys. A new cluster gets a key set under the\n" +
		"pattern's URL, and its keys are active at once, as with keypost issuer add. A new key of a known cluster comes in as next.\n" +
		"Nothing is ever promoted, retired, removed, revoked or withdrawn here. A cluster that is away changes nothing.\n\n" +
		"SOURCE is dir:DIR, a directory with a kubeconfig per cluster, called NAME or NAME.yaml; capi or capi:NAMESPACE, the clusters of\n" +
		"Cluster API with their kubeconfig Secrets; or in-cluster, the cluster in whose pod the command runs, called --name. A\n" +
		"kubeconfig must have its CA, and its token or certificate, inline. One that would run a program or read a file is refused.\n\n" +
		"A cluster is known by the UID of its namespace kube-system. Another one under a known name is refused, until somebody says\n" +
		"that it takes the place of the first: keypost rotate start NAME --kubeconfig FILE. A key set that a person made is left\n" +
		"untouched without --adopt. At most 8 keys are taken of a cluster.\n\n" +
		"With --once, print a table; the exit code is 1 if a cluster is refused or does not answer. Else go on until SIGTERM, with a\n" +
		"line in the log for each change, and metrics."
	cmd.Example = "  keypost enroll --source dir:kubeconfigs --issuer-url 'https://oidc.example.com/{name}' --relying-party aws \\\n" +
		"    --token-lifetime 1h --once"
	fs := cmd.Flags()
	fs.StringVar(&o.source, "source", "", "where the clusters come from: dir:DIR, capi[:NAMESPACE] or in-cluster")
	fs.StringVar(&o.issuerURL, "issuer-url", "", "pattern of issuer URLs, as in keypostd's issuerURLs: a URL with {name}, or NAME=URL")
	fs.StringVar(&o.name, "name", "", "what a cluster is called: for in-cluster a name, for capi a template of {namespace} and {name} (default {name})")
	fs.StringVar(&o.selector, "selector", "", "with capi: only clusters with these labels, as kubectl takes them")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "with capi: kubeconfig `FILE` of the management cluster, or in-cluster for the cluster of the pod")
	fs.StringSliceVar(&o.adopt, "adopt", nil, "`NAME` of a key set that a person made for the cluster of this name, which lists an active key of it (repeatable)")
	fs.BoolVar(&o.once, "once", false, "look at each cluster once, and print what was found")
	fs.StringVar(&o.patches, "patches", "", "with --once and capi: write NAME-1-accept.yaml and NAME-2-sign.yaml into `DIR` for each cluster that has another issuer yet")
	fs.DurationVar(&o.every, "interval", defaultEvery, "look at each cluster once in this time")
	fs.StringVar(&o.listen, "listen", "127.0.0.1:9096", "serve /metrics, /livez and /readyz there; not with --once")
	o.policy.Register(fs)
	return cmd
}

const (
	defaultEvery = time.Minute
	// leastEvery keeps a typing error from becoming a load test.
	leastEvery = 5 * time.Second
)

func (o *options) run(ctx context.Context, _ []string) error {
	c, err := o.config()
	if err != nil {
		return err
	}
	if c.Store, err = o.CreateStore(ctx); err != nil {
		return err
	}
	if o.once {
		return o.lookOnce(ctx, enroll.New(c))
	}
	return o.loop(ctx, enroll.New(c))
}

// config finds everything that is wrong with the flags.
func (o *options) config() (enroll.Config, error) {
	c := enroll.Config{Change: func(why string) keystore.Change { return o.Change(why, false) }, Look: cluster.Identify}
	switch {
	case o.source == "" || o.issuerURL == "":
		return c, cli.Usagef("enroll needs --source dir:DIR, capi or in-cluster, and --issuer-url with {name}")
	case o.every < leastEvery:
		return c, cli.Usagef("--interval %s: at least %v", o.every, leastEvery)
	case o.patches != "" && (!o.once || !strings.HasPrefix(o.source, "capi")):
		return c, cli.Usagef("--patches needs --once and --source capi")
	case o.listen == "" && !o.once:
		return c, cli.Usagef("--listen is empty: give HOST:PORT, such as 127.0.0.1:9096, for metrics and health")
	}
	if err := service.CheckListen("--listen", o.listen); err != nil {
		return c, err
	}
	pattern, err := issuer.ParsePattern(o.issuerURL, false)
	if err != nil {
		return c, cli.Usage(err)
	}
	c.URL = pattern.URL
	if o.policy.PricesUnsaid() {
		return c, cli.Usagef("with --edge-hold give --stale-if-error as well, such as 0s or 24h: keypost issuer add shows what each costs")
	}
	if c.Policy, err = o.policy.Apply(view.NewPolicy(false)); err == nil {
		err = c.Policy.Check(false)
	}
	if err != nil {
		return c, cli.Usage(err)
	}
	for _, n := range o.adopt {
		if err := keystore.Name(n).Check(); err != nil {
			return c, cli.Usage(err)
		}
		c.Adopt = append(c.Adopt, keystore.Name(n))
	}
	c.Source, c.Alone, err = o.sourceOf()
	return c, err
}

// sourceOf returns the source, and whether it is one cluster of many.
func (o *options) sourceOf() (enroll.Source, bool, error) {
	kind, rest, _ := strings.Cut(o.source, ":")
	if kind != "capi" && (o.selector != "" || o.kubeconfig != "") {
		return nil, false, cli.Usagef("--selector and --kubeconfig need --source capi")
	}
	switch {
	case kind == "dir" && rest != "" && o.name == "":
		return enroll.Dir(rest), false, nil
	case kind == "dir":
		return nil, false, cli.Usagef("--source dir:DIR names a directory, and each file names its cluster; it takes no --name")
	case o.source == cluster.InCluster:
		n := keystore.Name(o.name)
		if err := n.Check(); err != nil {
			return nil, false, cli.Usagef("--source in-cluster needs --name NAME: %v", err)
		}
		return enroll.Own(n), true, nil
	case kind == "capi":
		s := enroll.ClusterAPI{Namespace: rest, Selector: o.selector, Template: cmp.Or(o.name, "{name}")}
		if !strings.Contains(s.Template, "{name}") {
			return nil, false, cli.Usagef("--name %q: it needs {name}, or all clusters would have one name", cli.OneLine(o.name))
		}
		var err error
		if o.kubeconfig == cluster.InCluster {
			s.Access, err = cluster.Own()
		} else {
			s.Access, err = kubeapi.Load(o.kubeconfig, "")
		}
		if err != nil {
			err = fmt.Errorf("read the kubeconfig of the management cluster: %w", err)
		}
		return s, false, err
	}
	return nil, false, cli.Usagef("--source %q: it is dir:DIR, capi, capi:NAMESPACE or in-cluster", cli.OneLine(o.source))
}

func (o *options) lookOnce(ctx context.Context, e *enroll.Enroller) error {
	all := []enroll.Report{}
	err := e.Pass(ctx, func(r enroll.Report, _ bool) { all = append(all, r) })
	if err != nil && len(all) == 0 {
		return err
	}
	slices.SortFunc(all, func(a, b enroll.Report) int { return cmp.Compare(a.Name, b.Name) })
	printed := o.Print(map[string][]enroll.Report{"clusters": all}, func(w *terminal.Table) {
		w.Row("NAME", "STATE", "ISSUER", "ABOUT")
		for _, r := range all {
			w.Row(string(r.Name), string(r.State), r.URL, about(r))
		}
	})
	printed = errors.Join(printed, o.writePatches(all))
	failed := 0
	for _, r := range all {
		for _, note := range r.Notes {
			o.Warn("%s: %s", r.Name, note)
		}
		if r.Failed() {
			failed++
		}
	}
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d clusters are refused or do not answer", failed, len(all)))
	}
	return errors.Join(printed, err)
}

// writePatches writes the manifests for the control planes of clusters that are to call themselves otherwise.
func (o *options) writePatches(all []enroll.Report) error {
	for _, r := range all {
		if o.patches == "" || r.ControlPlane.Name == "" || len(r.Flags) == 0 {
			continue
		}
		accept, sign, err := r.Rounds()
		if err == nil {
			err = os.MkdirAll(o.patches, 0o750)
		}
		for suffix, text := range map[string][]byte{"-1-accept.yaml": accept, "-2-sign.yaml": sign} {
			if err == nil {
				err = durable.Writer{Owner: "keypost-enroll"}.Replace(filepath.Join(o.patches, string(r.Name)+suffix), text)
			}
		}
		if err != nil {
			return fmt.Errorf("write the patches of %s: %w", r.Name, err)
		}
	}
	return nil
}

// about is what there is to say of a state.
func about(r enroll.Report) string {
	var parts []string
	if r.Why != "" {
		parts = append(parts, r.Why)
	}
	for _, w := range r.Waiting {
		text := fmt.Sprintf("key %s since %s", w.Key, cli.Stamp(w.Since))
		if !w.NotBefore.IsZero() {
			text += ", to be promoted from " + cli.Stamp(w.NotBefore) + " on"
		}
		parts = append(parts, text)
	}
	if r.State == enroll.Absent {
		parts = append(parts, "the source has no such cluster; its issuer stays until: keypost issuer remove "+string(r.Name))
	}
	return strings.Join(parts, "; ")
}

func (o *options) loop(ctx context.Context, e *enroll.Enroller) error {
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may end before this process does
	known := newKnown(service.NewLogger(o.Err))
	g, ctx := errgroup.WithContext(ctx)
	s, err := service.Admin{Address: o.listen, Metrics: known, Ready: known.ready, Log: known.log}.Listen(ctx)
	if err != nil {
		return err
	}
	known.log.Info("enrolling", zap.String("store", o.Store), zap.String("source", o.source), zap.String("issuer_url", o.issuerURL),
		zap.Duration("interval", o.every), zap.String("version", cli.Version()))
	g.Go(func() error { return s.Serve(ctx) })
	g.Go(func() error { return service.Until(ctx, func() { e.Run(ctx, o.every, known.tell, known.passed) }) })
	if err := g.Wait(); err != nil {
		return err
	}
	known.log.Info("stopped")
	return nil
}
