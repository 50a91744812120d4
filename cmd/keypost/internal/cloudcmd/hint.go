package cloudcmd

import (
	"cmp"
	"errors"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/install"
)

// Hinted adds to an error of package install what to do about it, in words of the command line. An error that has a hint,
// and one that depends on the cloud, is returned as it is.
func (f *Flags) Hinted(err error) error {
	e, is := errors.AsType[*install.Error](err)
	if _, hinted := errors.AsType[*cli.HintedError](err); hinted || !is {
		return err
	}
	hint := func(format string, args ...any) error { return cli.WithHint(err, format, args...) }
	switch e.Problem {
	case install.NotServed:
		return hint("to see more: %s; when it is served, run the same command again", f.Verification(e.KeySet))
	case install.OnlyCopies:
		return hint("if they can be read there, say so, and run this again: %s", cli.Command{"issuer", "set", string(e.KeySet), "--reach", "public"})
	case install.OthersDir, install.OtherSigningKey:
		return hint("choose another --output-dir for this cluster; if it is the same cluster, which changes its issuer, move that file away first")
	case install.HalfKeyPair:
		return hint("if the cluster has the private key, say --public-key-file %s; if not, move the file away", cli.Quoted(e.File))
	case install.Withdrawn:
		return hint("to give it out again, publish a key that was never there, and run this again with the same --public-key-file: %s; or choose another --name and --issuer-url",
			append(f.publication(f.To.Name, "--public-key-file", "FILE"), "--reuse-url", "--why", "REASON"))
	case install.Taken:
		return hint("choose another --name or --issuer-url, or publish it yourself: %s", f.publication("NAME", "--public-key-file", "FILE"))
	case install.BadName:
		return hint("publish it yourself under another name, and run this again, which finds it by its URL: %s", f.publication("NAME", "--public-key-file", "FILE"))
	case install.KeyNeeded:
		return hint("give the public key of the cluster: --public-key-file FILE, or --output-dir with its key pair; if that is lost and nothing signs with it any more, "+
			"withdraw the key set (%s), and run this again",
			cli.Command{"issuer", "remove", string(e.KeySet), "--confirm-url", f.To.IssuerURL, "--why", "REASON", "--force"})
	case install.NoKey:
		return hint("give the cluster's public key with --public-key-file FILE; or take it from the cluster, and run this again: %s", f.publication(f.To.Name, "--kubeconfig", "FILE"))
	case install.OthersKey:
		return hint("give this cluster's own public key with --public-key-file, or its --output-dir; if both issuers are one cluster's, publish it yourself: %s",
			f.publication(f.To.Name, "--public-key-file", "FILE"))
	case install.KeyNotPublished:
		return hint("give the key that the cluster signs with (--public-key-file); or make this one, if it was never there, its next: %s",
			cli.Command{"key", "add", string(e.KeySet), "--public-key-file", e.File})
	case install.KeyRetired:
		return hint("give the key that the cluster signs with: --public-key-file FILE")
	}
	return err
}

// publication returns the command that publishes keys under a name, for who takes the tokens: the upload where the cloud is given one, for
// which no gate waits until caches have forgotten documents that nobody there reads.
func (f *Flags) publication(name string, keys ...string) cli.Command {
	c := append(cli.Command{"issuer", "add", name, "--url", f.To.IssuerURL}, keys...)
	c = append(c, "--relying-party", cmp.Or(f.Copy, f.Party))
	if f.To.Dev {
		c = append(c, "--dev")
	}
	return c
}
