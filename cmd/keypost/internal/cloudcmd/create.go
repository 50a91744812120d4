package cloudcmd

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// ReadNew reads the flags for what a creation publishes. It returns the key of --public-key-file, nil without that flag. How it is
// published is read too, except for a dry run, which publishes nothing. What makes no key pair (all) takes the public key of the output
// directory where --public-key-file is not given. Without either, the keys count that the store has; a dry run asks no store, and then
// says what is missing.
func (r *Run) ReadNew(all bool) (*install.PublicKey, error) {
	if own := r.Path(ccoctl.PublicKeyName); !all && r.PublicKeyFile == "" {
		if _, err := os.Stat(own); r.DryRun || !errors.Is(err, fs.ErrNotExist) {
			r.PublicKeyFile = own
		}
	}
	var key *install.PublicKey
	if r.PublicKeyFile != "" {
		keys, err := keysource.ReadFile(r.Factory, r.PublicKeyFile)
		if errors.Is(err, fs.ErrNotExist) {
			err = cli.WithHint(err, "give the cluster's public key with --public-key-file FILE")
		}
		if err == nil {
			key, err = install.OnePublicKey(r.PublicKeyFile, keys)
		}
		if err != nil {
			return nil, err
		}
	}
	if r.DryRun {
		return key, nil
	}
	return key, r.ReadIssuer()
}

// ReadIssuer says how a new issuer is published and where it is looked for. Other settings are those of issuer add and issuer set.
func (r *Run) ReadIssuer() (err error) {
	r.To.Policy = view.NewPolicy(r.To.Dev)
	if r.To.Dev {
		r.To.Policy.MaxAge = keystore.DurationPtr(time.Second) // a run waits for as long
	}
	r.To.Policy.RelyingParties = []string{r.Party}
	r.To.Site.Connect = r.Connect
	r.To.Site.Shield, err = observe.ReadShield()
	return err
}

// Ended prints what a cloud's package has returned with --diff: a preview, and an error if there is a difference. It reports
// whether nothing else is to be printed.
func (r *Run) Ended(v *plan.Preview, err error) (bool, error) {
	if v == nil || err != nil {
		return err != nil, err
	}
	if err := r.PrintPreview(*v); err != nil || v.Empty() {
		return true, err
	}
	var found []string
	if n := len(v.Changes); n > 0 {
		found = append(found, text.Count(n, "thing differs", "things differ"))
	}
	if n := len(v.Extra); n > 0 {
		found = append(found, text.Count(n, "thing is there beyond what is wanted", "things are there beyond what is wanted"))
	}
	return true, cli.Exit(cli.ExitDiffer, errors.New(strings.Join(found, ", ")+"; nothing was changed"))
}

// PrintPreview prints what would be changed, in the form that -o asks for.
func (r *Run) PrintPreview(v plan.Preview) error {
	if r.Output == "table" {
		r.Live().Clear()
		return v.Write(r.Out)
	}
	if v.Changes == nil {
		v.Changes = []plan.Change{}
	}
	for _, list := range []*[]string{&v.Notes, &v.Warnings, &v.Extra} {
		if *list == nil {
			*list = []string{}
		}
	}
	return r.Print(v, nil)
}

// Result prints what was made, only with -o json and yaml: what ccoctl prints is all on stderr.
func (r *Run) Result(v any) error {
	if r.Output == "table" {
		return nil
	}
	return r.Print(v, nil)
}

// Made is Result for an installation; more is what only the cloud has.
func (r *Run) Made(made install.Created, more map[string]any) error {
	all := map[string]any{"issuer": r.To.IssuerURL, "keySet": made.KeySet.Name(), "outputDir": r.Path("."), "dryRun": r.DryRun}
	maps.Copy(all, more)
	return r.Result(all)
}

// Publishing returns the command that publishes what a dry run would have.
func (r *Run) Publishing() cli.Command {
	return r.publication(r.To.Name, "--public-key-file", cmp.Or(r.PublicKeyFile, r.Path(ccoctl.PublicKeyName)))
}

// publication returns the command that publishes keys under a name, for who takes the tokens: the upload where the cloud is given one, for
// which no gate waits until caches have forgotten documents that nobody there reads.
func (r *Run) publication(name string, keys ...string) cli.Command {
	c := append(cli.Command{"issuer", "add", name, "--url", r.To.IssuerURL}, keys...)
	c = append(c, "--relying-party", cmp.Or(r.Copy, r.Party))
	if r.To.Dev {
		c = append(c, "--dev")
	}
	return c
}

// SayLifetime prints how to declare the lifetime of tokens in a key set that has none.
func (r *Run) SayLifetime(s keystore.KeySet) {
	if s.Policy().TokenLifetime == nil {
		r.Notice("to remove keys later, keypost must know how long tokens live (24h, unless a pod asks for more): %s",
			cli.Command{"issuer", "set", string(s.Name()), "--token-lifetime", "24h"})
	}
}

// SayInstall prints what to do with what was made. more are flags that verify needs beside those of this run.
func (r *Run) SayInstall(made install.Created, more ...string) {
	r.Notice("next, with the directory that openshift-install create manifests has filled:")
	r.Notice("  %s", cli.Paste("cp "+cli.Quoted(r.Path(ccoctl.ManifestsDir))+"/* INSTALL-DIR/"+ccoctl.ManifestsDir+"/"))
	if made.PrivateKey == "" {
		r.Notice("  and put the signing key of %s into INSTALL-DIR/%s", r.PublicKeyFile, ccoctl.SigningKeyName)
	} else {
		r.Notice("  %s", cli.Paste("cp -a "+cli.Quoted(r.Path(ccoctl.TLSDir))+" INSTALL-DIR/"))
	}
	r.Notice("then openshift-install create cluster; and once it signs tokens:")
	r.Notice("  %s", append(cli.Verify(made.KeySet.Name(), r.To.Dev, ""), more...))
}

// Deleted prints what a deletion would do, or which issuers are still published after it. stored reports whether an issuer is published by
// storage of ccoctl's, and says what becomes of that.
func (r *Run) Deleted(v *plan.Preview, issuers []install.StillPublished, err error, stored func(url string) bool) error {
	switch {
	case err != nil:
		return err
	case v != nil:
		return r.PrintPreview(*v)
	}
	still := []map[string]string{}
	for _, i := range issuers {
		if !stored(i.URL) {
			r.sayStillPublished(i)
		}
		still = append(still, map[string]string{"url": i.URL, "keySet": i.KeySet})
	}
	return r.Result(map[string]any{"issuers": still})
}

// sayStillPublished prints how to stop publishing an issuer, which other accounts and clouds may still need, and a next installation of
// the same cluster.
func (r *Run) sayStillPublished(i install.StillPublished) {
	remove := cli.Command{"issuer", "remove", cmp.Or(i.KeySet, i.URL), "--confirm-url", i.URL, "--why", "REASON"}
	switch {
	case i.KeySet != "" && !i.Signs:
		r.Notice("the keys of %s are still published, and a new installation with the same key pair finds them there", i.URL)
		r.Notice("when nothing trusts them any more, this withdraws them for good:")
	case i.KeySet != "":
		r.Notice("the keys of %s are still published, and a new installation with the same key pair finds them there", i.URL)
		r.Notice("when nothing trusts them any more and no cluster signs with them, this withdraws them for good (--force, as a key is active):")
		remove = append(remove, "--force")
	case i.Asked:
		return
	default:
		r.Notice("if a key store publishes %s, its keys still are; when nothing trusts them any more and no cluster signs with them,", i.URL)
		r.Notice("this withdraws them for good (--force, as a key may be active):")
		remove = append(remove, "--force")
		if !strings.Contains(r.Line(remove), " --store ") {
			remove = append(remove, "--store", "STORE")
		}
	}
	r.Notice("  %s", remove)
}
