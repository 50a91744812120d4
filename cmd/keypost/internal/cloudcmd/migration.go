package cloudcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/provision/install"
)

// Migration is what a command's flags say of the move of a live cluster from an old issuer to the run's.
type Migration struct {
	install.Move      // without OldKeys, which is for Reading
	Finish       bool // take the trust in the old issuer away

	jwks   string
	unread bool // the old issuer could not be read
}

// Define registers the flags. finish is the usage of --finish, empty for a cloud in which there is none.
func (m *Migration) Define(fs *pflag.FlagSet, finish string) {
	fs.StringVar(&m.Old, "from-issuer-url", "", "the issuer URL that the cluster's tokens carry now")
	fs.StringVar(&m.jwks, "jwks", "", "JWKS `FILE` or URL with OLD's keys, where OLD cannot be reached from here (default OLD itself)")
	kubeconfig := "kubeconfig `FILE` of the cluster, to check its keys and how long its tokens live"
	if finish != "" {
		fs.BoolVar(&m.Finish, "finish", false, finish)
		kubeconfig = "kubeconfig `FILE` of the cluster: to check its keys, and to see whether it was switched"
	}
	fs.StringVar(&m.Cluster.Kubeconfig, "kubeconfig", "", kubeconfig)
	fs.StringVar(&m.Cluster.Context, "context", "", "context in the kubeconfig (default the current one)")
	fs.StringVar(&m.Cluster.ServiceAccount, "service-account", "",
		"NAMESPACE/NAME for which each kube-apiserver is made to mint a token (default default/default)")
}

// CheckIssuers returns an error unless there is an old issuer, and it is not next. needless is what a cluster that keeps its issuer
// can do without: "trust".
func (m *Migration) CheckIssuers(next, needless string) error {
	old, err := url.Parse(m.Old)
	switch {
	case err != nil || old.Scheme != "https" || old.Host == "" || old.RawQuery != "" || old.Fragment != "":
		return cli.Usagef("--from-issuer-url %q is not an issuer URL: it begins with https:// and has neither query nor fragment", m.Old)
	case m.Old == next:
		return cli.Usagef("--from-issuer-url and --issuer-url are the same; a cluster that keeps its issuer needs no new %s", needless)
	}
	return nil
}

// CheckCluster returns an error for flags of the cluster that are wrong by themselves.
func (m *Migration) CheckCluster() error {
	if m.Cluster.Context != "" && m.Cluster.Kubeconfig == "" {
		return cli.Usagef("--context needs --kubeconfig")
	}
	return nil
}

// CheckFinish returns an error where the cluster cannot be asked whether it was switched.
func (m *Migration) CheckFinish() error {
	if m.Finish && m.Cluster.Kubeconfig == "" {
		return cli.Usagef("--finish needs --kubeconfig: only a token from every kube-apiserver shows that none signs as %s any more", m.Old)
	}
	return nil
}

// Reading returns the move with the way to read the old issuer's keys: --jwks, or else the issuer itself.
func (m *Migration) Reading(factory *cli.Factory) install.Move {
	move := m.Move
	move.OldKeys = func(ctx context.Context) ([]keystore.VerificationKey, error) {
		source := keysource.Flags{JWKS: cmp.Or(m.jwks, m.Old)}
		found, err := source.Read(ctx, factory)
		m.unread = err != nil
		return found.Keys, err
	}
	return move
}

// oldKeys are the words by which a command of ours takes the keys of Old.
func (m *Migration) oldKeys() []string {
	if m.unread {
		return []string{"--jwks", "FILE"}
	}
	return []string{"--jwks", cmp.Or(m.jwks, m.Old)}
}

// Hinted adds to an error of a move what to do about it. Any other is returned as it is. f are the flags of the run.
func (m *Migration) Hinted(f *Flags, err error) error {
	if e, closed := errors.AsType[*keystore.NotYetError](err); closed && e.Gate == gate.GateUndeclared {
		return cli.WithHint(err, "declare the longest expirationSeconds of any such token, and run this again with the same --store: %s",
			cli.Command{"issuer", "set", f.To.Name, "--token-lifetime", "DURATION"})
	}
	if e, is := errors.AsType[*install.Error](err); is {
		switch e.Problem {
		case install.OldKeysUnread:
			return cli.WithHint(err, "where it cannot be reached from here, give a copy of its JWKS: --jwks FILE")
		case install.Taken: // --name is the cluster's: with another, there is nothing to move
			return cli.WithHint(err, "publish the keys under another name, and run this again, which finds them by the URL: %s",
				f.publication("NAME", m.oldKeys()...))
		case install.Withdrawn:
			return cli.WithHint(err, "to give it out again: %s, and run this again; or choose another --issuer-url",
				append(f.publication(f.To.Name, m.oldKeys()...), "--reuse-url", "--why", "REASON"))
		case install.KeyNotPublished:
			return cli.WithHint(err, "if the cluster signs with it, and it was never there: %s",
				append(cli.Command{"key", "add", string(e.KeySet)}, m.oldKeys()...))
		case install.OthersDir:
			return cli.WithHint(err, "choose another --output-dir for the Secrets of this cluster")
		case install.WrongCluster:
			return cli.WithHint(err, "is this the right cluster? See --kubeconfig and --context")
		}
	}
	return err
}

// Again returns the command for another run of the same move, which ends it with finish.
func (m *Migration) Again(r *Run, finish bool) cli.Command {
	again := r.Again("name", "finish", "diff", "dry-run")
	c := slices.Clone(again[:2]) // the cloud's name and migrate
	if finish {
		c = append(c, "--finish")
	}
	c = append(append(c, "--name", r.flags.To.Name), again[2:]...)
	if m.Cluster.Kubeconfig == "" {
		c = append(c, "--kubeconfig", "FILE")
	}
	return c
}

// SayGate prints what the end of a move would wait for; nil is nothing.
func (r *Run) SayGate(gate *keystore.NotYetError) {
	if gate != nil {
		r.Notice("%v", gate)
	}
}

// Moved is how far a move is, for scripts.
type Moved struct {
	From     string        `json:"from"` // issuer URLs
	To       string        `json:"to"`
	KeySet   keystore.Name `json:"keySet"`
	Switch   string        `json:"switch"`   // the command, or the flags of kube-apiserver, that switches the cluster
	Finished bool          `json:"finished"` // nothing trusts From any more
}

// PrintSwitch prints what switches the cluster: only that on stdout, so that a script can run it.
func (r *Run) PrintSwitch(m Moved) error {
	if r.Output == "table" {
		r.Live().Clear()
		_, err := fmt.Fprintln(r.Out, m.Switch)
		return err
	}
	return r.Result(m)
}
