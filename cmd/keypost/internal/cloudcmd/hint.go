package cloudcmd

import (
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
	case install.OthersDir:
		return hint("choose another --output-dir for this cluster; if it is the same cluster, which changes its issuer, move that file away first")
	case install.HalfKeyPair:
		return hint("if the cluster has the private key, say --public-key-file %s; if not, move the file away", cli.Quoted(e.File))
	case install.KeyPairMismatch:
		return hint("move away the one that is wrong")
	case install.OtherSigningKey:
		return hint("move it away, or choose another --output-dir")
	}
	return f.publicationHint(err, e)
}

// publicationHint adds what to do about a URL, a name or a key that cannot be published. There is no --force for a key set
// that cannot be read: whoever knows better publishes the URL first.
func (f *Flags) publicationHint(err error, e *install.Error) error {
	add := func(name string) cli.Command {
		return cli.Command{"issuer", "add", name, "--url", f.To.IssuerURL, "--public-key-file", "FILE", "--relying-party", f.Party}
	}
	hint := func(format string, args ...any) error { return cli.WithHint(err, format, args...) }
	switch e.Problem {
	case install.PerhapsTaken:
		return hint("mend that key set; or, if you know that it does not have the URL, publish it first and run this again: %s",
			append(add(f.To.Name), "--force", "--why", "REASON"))
	case install.Taken:
		return hint("choose another --name or --issuer-url, or publish it yourself: %s", add("NAME"))
	case install.BadName:
		return hint("publish it yourself under another name, and run this again, which finds it by its URL: %s", add("NAME"))
	case install.KeyNeeded:
		return hint("give the public key of the cluster: --public-key-file FILE, or --output-dir with its key pair")
	case install.NoKey:
		take := cli.Command{"issuer", "add", f.To.Name, "--url", f.To.IssuerURL, "--kubeconfig", "FILE", "--relying-party", f.Party}
		if f.To.Dev {
			take = append(take, "--dev")
		}
		return hint("give the cluster's public key with --public-key-file FILE; or take it from the cluster, and run this again: %s", take)
	case install.OthersKey:
		if f.PublicKeyFile != "" {
			return hint("give this cluster's own public key with --public-key-file; if both issuers are one cluster's, publish it yourself: %s", add(f.To.Name))
		}
		return hint("choose another --output-dir for this cluster; if both issuers are one cluster's, publish it yourself: %s", add(f.To.Name))
	case install.KeyRetired:
		return hint("give the key that the cluster signs with: --public-key-file FILE")
	case install.KeyNotPublished:
		return hint("give the key that the cluster signs with (--public-key-file), or make this one its next: %s",
			cli.Command{"key", "add", string(e.KeySet), "--public-key-file", e.File})
	}
	return err
}
