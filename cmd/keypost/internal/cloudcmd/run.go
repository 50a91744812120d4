package cloudcmd

import (
	"cmp"
	"encoding/json"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// Run is one run of a command.
type Run struct {
	*cli.Factory
	flags   *Flags
	journal *journal
}

// Begin checks the flags, those of the cloud by check, and returns the run of a command, whose events it prints and whose
// mode and store it fills in. The caller ends it with [Run.End].
func (f *Flags) Begin(factory *cli.Factory, cmd *cobra.Command, check func() error) (*Run, error) {
	if err := f.readCommon(cmd); err != nil {
		return nil, err
	}
	if err := f.check(cmd); err != nil {
		return nil, err
	}
	if err := check(); err != nil {
		return nil, err
	}
	factory.Begin()
	if err := f.checkOutputDir(); err != nil {
		return nil, err
	}
	r := &Run{Factory: factory, flags: f, journal: newJournal(factory.Live())}
	f.To.Store, f.To.Report = r.keyStore(), r.report
	switch {
	case f.DryRun:
		f.To.Mode = install.DryRun
	case f.Diff:
		f.To.Mode = install.Preview
	}
	return r, nil
}

// keyStore is the store that --store names.
func (r *Run) keyStore() install.KeyStore {
	_, err := cli.ParseStore(r.Store)
	k := install.KeyStore{
		Change: func() keystore.Change { return r.Change("", false) },
		Open:   r.OpenStore, Create: r.CreateStore, Check: func() error { return err },
	}
	if err == nil { // what cannot be parsed may have a password in it
		k.Name = r.Store
	}
	return k
}

// WithoutStore makes --store optional: what only asks a store more than it must goes on without.
func (r *Run) WithoutStore() {
	if r.Store == "" {
		r.flags.To.Store = install.KeyStore{}
	}
}

// report prints what a run reports, and after a warning what to do about it. It is safe for concurrent use.
func (r *Run) report(e install.Event) {
	advice := ""
	switch e.Kind {
	case install.Line:
		r.journal.show(time.Now(), e.Text)
		return
	case install.Wait:
		r.journal.wait(e)
		return
	case install.Progress:
		r.Live().Draw(e.Text)
		return
	case install.KeyIsNext:
		advice = " (" + r.Line(cli.Command{"key", "promote", string(e.KeySet), string(e.Key)}) + ")"
	case install.UnknownKey:
		advice = "; to end that: " + r.Line(cli.Command{"key", "revoke", string(e.KeySet), string(e.Key), "--why", "REASON"})
	case install.UnreadKeySet:
		advice = "; why: " + r.Line(cli.Command{"issuer", "list"})
	}
	r.Warn("%s%s", e.Text, advice)
}

// differsError ends a run of --diff that found something to change, or something beyond what is wanted.
type differsError struct{ actions, extra int }

func (e *differsError) Error() string {
	var found []string
	if e.actions > 0 {
		found = append(found, text.Count(e.actions, "thing differs", "things differ"))
	}
	if e.extra > 0 {
		found = append(found, text.Count(e.extra, "thing is there beyond what is wanted", "things are there beyond what is wanted"))
	}
	return strings.Join(found, ", ") + "; nothing was changed"
}

// ExitCode is for [cli.Factory.Run].
func (e *differsError) ExitCode() int { return cli.ExitDiffer }

// Ended prints what a cloud's package has returned with --diff: a preview, and an error if there is a difference. It reports
// whether nothing else is to be printed.
func (r *Run) Ended(v *plan.Preview, err error) (bool, error) {
	if v == nil || err != nil {
		return err != nil, err
	}
	if err := r.PrintPreview(*v); err != nil || v.Empty() {
		return true, err
	}
	return true, &differsError{len(v.Changes), len(v.Extra)}
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

// SayUnpublished prints, after the files of a dry run, what no script of them does. party is how the policy is to name the cloud.
func (r *Run) SayUnpublished(party string) {
	r.Notice("the scripts do not publish the key set; before they are run: %s", r.Publishing(party))
}

// Publishing returns the command that publishes what a dry run would have. party is how the policy is to name the cloud.
func (r *Run) Publishing(party string) cli.Command {
	c := cli.Command{"issuer", "add", r.flags.To.Name, "--url", r.flags.To.IssuerURL, "--public-key-file", cmp.Or(r.flags.PublicKeyFile, r.flags.Path(ccoctl.PublicKeyName)),
		"--relying-party", party}
	if r.flags.To.Dev {
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
	r.Notice("  %s", cli.Paste("cp "+cli.Quoted(r.flags.Path(ccoctl.ManifestsDir))+"/* INSTALL-DIR/"+ccoctl.ManifestsDir+"/"))
	if made.PrivateKey == "" {
		r.Notice("  and put the signing key of %s into INSTALL-DIR/%s", r.flags.PublicKeyFile, ccoctl.SigningKeyName)
	} else {
		r.Notice("  %s", cli.Paste("cp -a "+cli.Quoted(r.flags.Path(ccoctl.TLSDir))+" INSTALL-DIR/"))
	}
	r.Notice("then openshift-install create cluster; and once it signs tokens:")
	r.Notice("  %s", append(r.flags.Verification(made.KeySet.Name()), more...))
}

// Deleted prints what a deletion would do, or which issuers are still published after it.
func (r *Run) Deleted(v *plan.Preview, issuers []install.StillPublished, err error) error {
	switch {
	case err != nil:
		return err
	case v != nil:
		return r.PrintPreview(*v)
	}
	still := []map[string]string{}
	for _, i := range issuers {
		r.SayStillPublished(i)
		still = append(still, map[string]string{"url": i.URL, "keySet": i.KeySet})
	}
	return r.Result(map[string]any{"issuers": still})
}

// SayStillPublished prints how to stop publishing an issuer, which other accounts and clouds may still need, and a next installation of
// the same cluster.
func (r *Run) SayStillPublished(i install.StillPublished) {
	switch {
	case i.KeySet != "":
		r.Notice("the keys of %s are still published, and a new installation with the same key pair finds them there", i.URL)
		remove := cli.Command{"issuer", "remove", i.KeySet, "--confirm-url", i.URL, "--why", "REASON"}
		if !i.Signs {
			r.Notice("when nothing trusts them any more, this withdraws them for good:")
		} else {
			r.Notice("when nothing trusts them any more and no cluster signs with them, this withdraws them for good (--force, as a key is active):")
			remove = append(remove, "--force")
		}
		r.Notice("  %s", remove)
	case !i.Asked:
		r.Notice("if a key store publishes %s, its keys still are; when nothing trusts them any more and no cluster signs with them,", i.URL)
		r.Notice("this withdraws them for good (--force, as a key may be active):")
		remove := cli.Command{"issuer", "remove", i.URL, "--confirm-url", i.URL, "--why", "REASON", "--force"}
		if !strings.Contains(r.Line(remove), " --store ") {
			remove = append(remove, "--store", "STORE")
		}
		r.Notice("  %s", remove)
	}
}

// SwitchOpenShift returns the command that gives an OpenShift cluster another issuer.
func SwitchOpenShift(issuer string) string {
	patch, _ := json.Marshal(map[string]any{"spec": map[string]string{"serviceAccountIssuer": issuer}}) // strings always marshal
	return cli.Quoted("oc", "patch", "authentication.config.openshift.io", "cluster", "--type=merge", "-p", string(patch))
}

// journal is the log of a command on stderr, in ccoctl's form, since scripts look for its lines. It is safe for
// concurrent use.
type journal struct {
	live  *terminal.Line
	lines *log.Logger

	mu    sync.Mutex
	phase string    // of the wait printed last, where lines do not change
	at    time.Time // when anything was printed last
}

func newJournal(live *terminal.Line) *journal {
	return &journal{live: live, lines: log.New(live, "", log.LstdFlags), at: time.Now()}
}

// show logs one line.
func (j *journal) show(at time.Time, line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.at = at
	j.lines.Print(cli.OneLine(line))
}

// progressEvery is how long nothing is printed, where lines do not change, before a wait is: seldom enough for a CI log to stay
// readable, often enough that nobody takes the program for dead. Waits are reported every other second, so that nothing is
// silent for more than 15 seconds.
const progressEvery = 10 * time.Second

// wait prints how a wait is getting on: in one changing line on a terminal, else in a line now and then.
func (j *journal) wait(w install.Event) {
	if !j.live.Draw(w.Text) && j.due(w) {
		j.show(w.At, w.Text)
	}
}

func (j *journal) due(w install.Event) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	due := !w.Still && w.Phase != j.phase || w.At.Sub(j.at) >= progressEvery
	if due && !w.Still {
		j.phase = w.Phase
	}
	return due
}
