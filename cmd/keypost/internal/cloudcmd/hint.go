package cloudcmd

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/ccoctl"
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
	case install.OtherServer:
		return hint("keypostd --dev DIR serves the key sets in DIR/keysets below https://localhost:PORT, with a certificate of the CA in DIR/ca.pem (SSL_CERT_FILE); start it there, and run the same command again; to see more: %s", f.Verification(e.KeySet))
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

// publicationHint adds what to do about a URL, a name or a key that cannot be published.
func (f *Flags) publicationHint(err error, e *install.Error) error {
	add := func(name string) cli.Command {
		return append(cli.Command{"issuer", "add", name, "--url", f.To.IssuerURL, "--public-key-file", "FILE"}, f.relyingParty(false)...)
	}
	hint := func(format string, args ...any) error { return cli.WithHint(err, format, args...) }
	switch e.Problem {
	case install.Withdrawn:
		return f.withdrawnHint(err, e)
	case install.Taken:
		return hint("choose another --name or --issuer-url, or publish it yourself: %s", add("NAME"))
	case install.BadName:
		return hint("publish it yourself under another name, and run this again, which finds it by its URL: %s", add("NAME"))
	case install.KeyNeeded:
		return hint("give the public key of the cluster: --public-key-file FILE, or --output-dir with its key pair; if that is lost and nothing signs with it any more, "+
			"withdraw the key set (%s), and run this again",
			cli.Command{"issuer", "remove", string(e.KeySet), "--confirm-url", f.To.IssuerURL, "--why", "REASON", "--force"})
	case install.NoKey:
		take := append(cli.Command{"issuer", "add", f.To.Name, "--url", f.To.IssuerURL, "--kubeconfig", "FILE"}, f.relyingParty(false)...)
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
		if e.Spent {
			return hint("give the key that the cluster signs with since: --public-key-file FILE")
		}
		return hint("give the key that the cluster signs with (--public-key-file), or make this one its next: %s",
			cli.Command{"key", "add", string(e.KeySet), "--public-key-file", e.File})
	}
	return err
}

// relyingParty returns the flags of issuer add for who takes the tokens: where that is given a copy of the keys, the copy, for which no
// gate waits until caches have forgotten documents that nobody there reads; with copies only, since nobody can read them.
func (f *Flags) relyingParty(copies bool) []string {
	switch {
	case f.Copy == nil:
		return []string{"--relying-party", f.Party}
	case copies:
		return []string{"--relying-party", f.Copy(), "--reach", "copies"}
	}
	return []string{"--relying-party", f.Copy()}
}

// withdrawnHint adds how a withdrawn URL is given out again: with a key that was never published there, and then this run once more.
func (f *Flags) withdrawnHint(err error, e *install.Error) error {
	other := "or choose another --name and --issuer-url"
	name := f.To.Name
	if keystore.Name(name).Check() != nil {
		name = "NAME"
	}
	add := append(cli.Command{"issuer", "add", name, "--url", f.To.IssuerURL, "--public-key-file", e.File}, f.relyingParty(e.Copies)...)
	add = append(append(add, "--reuse-url", "--why", "REASON"), f.newPolicy()...)
	again := f.again()
	if _, missing := os.Stat(e.File); !e.Spent && missing == nil {
		return cli.WithHint(err, "to give it out again: %s && %s; "+other, add, again)
	}
	dir := f.To.Dir
	if e.Spent {
		dir = besides(dir)
		again = append(f.again("output-dir", "public-key-file"), "--output-dir", dir)
	}
	add[6] = filepath.Join(dir, ccoctl.PublicKeyName)
	return cli.WithHint(err, "to give it out again, with a new key: %s && %s && %s; "+other, f.newPair(dir), add, again)
}

// newPolicy returns the flags of issuer add for what this run says of a new issuer.
func (f *Flags) newPolicy() []string {
	var words []string
	if f.To.Dev {
		words = append(words, "--dev")
	}
	return words
}

// newPair returns the command that makes a key pair.
func (f *Flags) newPair(dir string) cli.Command {
	switch f.Party {
	case "gcp":
		return cli.Command{"gcp", "create-key-pair", "--output-dir", dir}
	case "entra":
		return cli.Command{"azure", "create-key-pair", "--output-dir", dir}
	}
	return cli.Command{"aws", "create-key-pair", "--output-dir", dir}
}

// besides returns a directory beside another one that does not exist yet.
func besides(dir string) string {
	dir = filepath.Clean(dir)
	for i := 2; ; i++ {
		next := dir + "-" + strconv.Itoa(i)
		if _, err := os.Lstat(next); err != nil {
			return next
		}
	}
}
