package cloudcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// MoveFlags are the flags of a move, in every cloud.
func MoveFlags() []string { return []string{"from-issuer-url", "jwks", "kubeconfig", "context"} }

func (r *Run) defineMove() {
	r.All.StringVar(&r.Move.Old, "from-issuer-url", "", "the issuer URL that the cluster's tokens carry now")
	r.All.StringVar(&r.jwks, "jwks", "", "JWKS `FILE` or URL with OLD's keys, where OLD cannot be reached from here (default OLD itself)")
	r.All.BoolVar(&r.Finish, "finish", false, "take what trusts OLD away")
	r.All.StringVar(&r.Move.Cluster.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster: to check its keys, how long its tokens live, and whether it was switched")
	r.All.StringVar(&r.Move.Cluster.Context, "context", "", "context in the kubeconfig (default the current one)")
}

// Moving reads the flags of a move, and returns it with the way to read the old issuer's keys: --jwks, or else the issuer itself. needless is
// what a cluster that keeps its issuer can do without: "trust".
func (r *Run) Moving(needless string) (install.Move, error) {
	m := r.Move
	old, err := url.Parse(m.Old)
	switch {
	case err != nil || old.Scheme != "https" || old.Host == "" || old.RawQuery != "" || old.Fragment != "":
		return m, cli.Usagef("--from-issuer-url %q is not an issuer URL: it begins with https:// and has neither query nor fragment", m.Old)
	case m.Old == r.To.IssuerURL:
		return m, cli.Usagef("--from-issuer-url and --issuer-url are the same; a cluster that keeps its issuer needs no new %s", needless)
	case m.Cluster.Context != "" && m.Cluster.Kubeconfig == "":
		return m, cli.Usagef("--context needs --kubeconfig")
	case r.Finish && m.Cluster.Kubeconfig == "":
		return m, cli.Usagef("--finish needs --kubeconfig: only a token from every kube-apiserver shows that none signs as %s any more", m.Old)
	case r.Finish:
		r.WithoutStore() // then the lifetime of tokens comes only from the pods
	default:
		err = r.ReadIssuer()
	}
	m.OldKeys = func(ctx context.Context) ([]keystore.VerificationKey, error) {
		source := keysource.Flags{JWKS: cmp.Or(r.jwks, m.Old)}
		found, err := source.Read(ctx, r.Factory)
		r.unread = err != nil
		return found.Keys, err
	}
	return m, err
}

// oldKeys are the words by which a command of ours takes the keys of Old.
func (r *Run) oldKeys() []string {
	if r.unread {
		return []string{"--jwks", "FILE"}
	}
	return []string{"--jwks", cmp.Or(r.jwks, r.Move.Old)}
}

// MoveHinted adds to an error of a move what to do about it. Any other is returned as it is.
func (r *Run) MoveHinted(err error) error {
	if e, closed := errors.AsType[*keystore.NotYetError](err); closed && e.Gate == gate.GateUndeclared {
		return cli.WithHint(err, "declare the longest expirationSeconds of any such token, and run this again with the same --store: %s",
			cli.Command{"issuer", "set", r.To.Name, "--token-lifetime", "DURATION"})
	}
	if e, is := errors.AsType[*install.Error](err); is {
		switch e.Problem {
		case install.OldKeysUnread:
			return cli.WithHint(err, "where it cannot be reached from here, give a copy of its JWKS: --jwks FILE")
		case install.Taken: // --name is the cluster's: with another, there is nothing to move
			return cli.WithHint(err, "publish the keys under another name, and run this again, which finds them by the URL: %s",
				r.publication("NAME", r.oldKeys()...))
		case install.Withdrawn:
			return cli.WithHint(err, "to give it out again: %s, and run this again; or choose another --issuer-url",
				append(r.publication(r.To.Name, r.oldKeys()...), "--reuse-url", "--why", "REASON"))
		case install.KeyNotPublished:
			return cli.WithHint(err, "if the cluster signs with it, and it was never there: %s",
				append(cli.Command{"key", "add", string(e.KeySet)}, r.oldKeys()...))
		case install.OthersDir:
			return cli.WithHint(err, "choose another --output-dir for the Secrets of this cluster")
		case install.WrongCluster:
			return cli.WithHint(err, "is this the right cluster? See --kubeconfig and --context")
		}
	}
	return err
}

// MoveEnded is Ended for a move, whose end waits for a gate; nil is none.
func (r *Run) MoveEnded(v *plan.Preview, closed *keystore.NotYetError, err error) (bool, error) {
	if err == nil && closed != nil {
		r.Notice("%v", closed)
	}
	return r.Ended(v, err)
}

// MoveAgain returns the command for another run of the same move, which ends it with finish.
func (r *Run) MoveAgain(finish bool) cli.Command {
	again := r.Again("name", "finish", "diff", "dry-run")
	c := slices.Clone(again[:2]) // the cloud's name and migrate
	if finish {
		c = append(c, "--finish")
	}
	c = append(append(c, "--name", r.To.Name), again[2:]...)
	if r.Move.Cluster.Kubeconfig == "" {
		c = append(c, "--kubeconfig", "FILE")
	}
	return c
}

// SayFinish prints what follows once a cluster was switched, whose key set is s. openShift reports whether it may be OpenShift.
func (r *Run) SayFinish(s keystore.KeySet, openShift bool) {
	if openShift {
		r.Notice("OpenShift's kube-apiservers restart one after the other, and accept tokens of %s for 24 hours more: the", r.Move.Old)
		r.Notice("kubelet renews those of running pods within that time; restart what read its token only once.")
	}
	r.Notice("Then, as often as it takes:")
	r.Notice("  %s", r.MoveAgain(true))
	r.SayLifetime(s)
}

// Moved is how far a move is, for scripts.
type Moved struct {
	From     string        `json:"from"` // issuer URLs
	To       string        `json:"to"`
	KeySet   keystore.Name `json:"keySet"`
	Switch   string        `json:"switch"`   // the command, or the flags of kube-apiserver, that switches the cluster
	Finished bool          `json:"finished"` // nothing trusts From any more
}

// PrintSwitch prints what switches a cluster, whose key set is s: only that on stdout, so that a script can run it.
func (r *Run) PrintSwitch(s keystore.KeySet, line string) error {
	if r.Output == "table" {
		r.Live().Clear()
		_, err := fmt.Fprintln(r.Out, line)
		return err
	}
	return r.Result(Moved{From: r.Move.Old, To: r.To.IssuerURL, KeySet: s.Name(), Switch: line})
}

// Finished prints that nothing trusts the old issuer any more.
func (r *Run) Finished() error {
	return r.Result(Moved{From: r.Move.Old, To: r.To.IssuerURL, Finished: true})
}

// SwitchOpenShift returns the command that gives an OpenShift cluster another issuer.
func SwitchOpenShift(issuer string) string {
	patch, _ := json.Marshal(map[string]any{"spec": map[string]string{"serviceAccountIssuer": issuer}}) // strings always marshal
	return cli.Quoted("oc", "patch", "authentication.config.openshift.io", "cluster", "--type=merge", "-p", string(patch))
}

// IssuerFlags returns flags of a kube-apiserver that signs as the first of two issuers, and accepts both.
func IssuerFlags(first, second string) string {
	return cli.Quoted("--service-account-issuer="+first, "--service-account-issuer="+second)
}
