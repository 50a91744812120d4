package cloudcmd

import (
	"errors"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/install"
)

// hinted adds to an error what to do about it, in words of the command line: the cloud's own, or else those for an error of package
// install. One that has a hint is returned as it is.
func (r *Run) hinted(err error) error {
	if _, hinted := errors.AsType[*cli.HintedError](err); hinted || err == nil {
		return err
	}
	if own := r.Hint(err); own != nil {
		return own
	}
	e, is := errors.AsType[*install.Error](err)
	if !is {
		return err
	}
	hint := func(format string, args ...any) error { return cli.WithHint(err, format, args...) }
	switch e.Problem {
	case install.NotServed:
		return hint("to see more: %s; when it is served, run the same command again", cli.Verify(e.KeySet, r.To.Dev, ""))
	case install.OnlyCopies:
		return hint("if they can be read there, say so, and run this again: %s", cli.Command{"issuer", "set", string(e.KeySet), "--reach", "public"})
	case install.OthersDir, install.OtherSigningKey:
		return hint("choose another --output-dir for this cluster; if it is the same cluster, which changes its issuer, move that file away first")
	case install.HalfKeyPair:
		return hint("if the cluster has the private key, say --public-key-file %s; if not, move the file away", cli.Quoted(e.File))
	case install.Withdrawn:
		return hint("to give it out again, publish a key that was never there, and run this again with the same --public-key-file: %s; or choose another --name and --issuer-url",
			append(r.publication(r.To.Name, "--public-key-file", "FILE"), "--reuse-url", "--why", "REASON"))
	case install.Taken:
		return hint("choose another --name or --issuer-url, or publish it yourself: %s", r.publication("NAME", "--public-key-file", "FILE"))
	case install.BadName:
		return hint("publish it yourself under another name, and run this again, which finds it by its URL: %s", r.publication("NAME", "--public-key-file", "FILE"))
	case install.KeyNeeded:
		return hint("give the public key of the cluster: --public-key-file FILE, or --output-dir with its key pair; if that is lost and nothing signs with it any more, "+
			"withdraw the key set (%s), and run this again",
			cli.Command{"issuer", "remove", string(e.KeySet), "--confirm-url", r.To.IssuerURL, "--why", "REASON", "--force"})
	case install.NoKey:
		return hint("give the cluster's public key with --public-key-file FILE; or take it from the cluster, and run this again: %s", r.publication(r.To.Name, "--kubeconfig", "FILE"))
	case install.OthersKey:
		return hint("give this cluster's own public key with --public-key-file, or its --output-dir; if both issuers are one cluster's, publish it yourself: %s",
			r.publication(r.To.Name, "--public-key-file", "FILE"))
	case install.KeyNotPublished:
		return hint("give the key that the cluster signs with (--public-key-file); or make this one, if it was never there, its next: %s",
			cli.Command{"key", "add", string(e.KeySet), "--public-key-file", e.File})
	case install.KeyRetired:
		return hint("give the key that the cluster signs with: --public-key-file FILE")
	case install.NoRequests:
		return hint("to fill one: oc adm release extract --credentials-requests --cloud=%s --to=DIR", r.cmd.Parent().Name())
	}
	return err
}
