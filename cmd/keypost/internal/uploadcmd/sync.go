// Package uploadcmd has the command that uploads published keys to relying parties that hold an upload of them, whatever its kind.
package uploadcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/upload"
	"github.com/keypost/keypost/issuer/upload/holder"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/party"
)

type syncOptions struct {
	*cli.Factory
	kinds []holder.Kind
	all   bool
	adopt bool
	force bool
	files string

	issuerURLs []string
	owners     map[string][]string // the key sets that have an issuer URL, of those that issuerURLs permits
	unread     []keystore.Name
	permitted  issuer.Admission
}

// NewCmdSync returns the command sync-keys, which uploads the keys of issuers to relying parties that hold a JWKS.
func NewCmdSync(f *cli.Factory, kinds ...holder.Kind) *cobra.Command {
	o := &syncOptions{Factory: f, kinds: kinds}
	cmd := f.Command("sync-keys ISSUER…|--all", "Upload the published keys to whom the policy names, and read them back", cobra.ArbitraryArgs, o.run)
	cmd.Long = "A relying party that holds an upload of the keys goes by that, and fetches nothing. For each that the policy names\n" +
		"(issuer set --relying-party KIND-upload:PLACE), read what it holds, upload exactly the published keys unless it has them, read\n" +
		"them back, and record that as an observation: gates wait for it. Run it after each change of the keys, or by a timer every\n" +
		fmt.Sprintf("few minutes, since a gate asks for a reading of the last %.0f. A store with an older key set than the one that was uploaded\n"+
			"last is refused: a revoked key does not come back. The exit code is 1 also after the upload, if the relying party takes no\n"+
			"token at all, since it is disabled.\n", gate.ObservationFresh.Minutes())
	for _, k := range kinds {
		title := k.Title + map[bool]string{true: " (from documentation)"}[k.Untried]
		cmd.Long += fmt.Sprintf("\n%s-upload:PLACE, %s\n  PLACE is %s\n  needs %s\n", k.Name, title, party.UploadForm(k.Name), k.Needs)
	}
	const places = " --store file:///srv/keysets --observations file:///srv/observations"
	line := "  keypost sync-keys prod-a"
	cmd.Example = line + places + "\n" + strings.Replace(line, "prod-a", "--all --issuer-url 'https://oidc.example.com/{name}'", 1) + places
	cmd.Flags().BoolVar(&o.all, "all", false, "every key set of the store whose policy names such an upload")
	cmd.Flags().BoolVar(&o.adopt, "adopt", false, "upload also where the relying party is marked as another installation's, or as nobody's; not with --all")
	cmd.Flags().BoolVar(&o.force, "force", false, "upload also where the store has an older key set than the one that was uploaded last; not with --all")
	cmd.Flags().StringArrayVar(&o.issuerURLs, "issuer-url", nil, "pattern as in keypostd's issuerURLs (repeatable): refuse what keypostd would refuse; --all needs it, but for gcp")
	cmd.Flags().StringVar(&o.files, "files", "", "the directory of uploads to files (file-upload:NAME.json)")
	cmd.MarkFlagsMutuallyExclusive("all", "adopt")
	cmd.MarkFlagsMutuallyExclusive("all", "force")
	return cmd
}

// Setting returns the command that changes the relying parties of a key set's policy, and its reach if that is no more that of copies.
func Setting(n keystore.Name, had, want keystore.Policy) cli.Command {
	c := cli.Command{"issuer", "set", string(n)}
	for _, party := range want.RelyingParties {
		c = append(c, "--relying-party", party)
	}
	if len(want.RelyingParties) == 0 {
		c = append(c, "--relying-party", "")
	}
	if want.Reach != had.Reach {
		c = append(c, "--reach", map[bool]string{false: "public", true: "private"}[want.Private])
	}
	return c
}

// synced is what came of one upload, as scripts read it.
type synced struct {
	KeySet   keystore.Name    `json:"keySet"`
	Upload   string           `json:"upload"`
	Uploaded bool             `json:"uploaded"` // false: it had the published keys already
	Keys     []keystore.KeyID `json:"keys,omitempty"`
	ReadAt   time.Time        `json:"readAt,omitzero"`
	Refused  string           `json:"refused,omitempty"` // why no token is taken there, whatever keys it has
	Error    string           `json:"error,omitempty"`
}

// work is an upload to bring up to date.
type work struct {
	set   keystore.KeySet
	party string
	kind  holder.Kind
	place string
}

func (o *syncOptions) run(ctx context.Context, args []string) error {
	if err := cli.CheckChoice(args, o.all); err != nil {
		return err
	}
	var err error
	if o.permitted, err = service.Admission(o.issuerURLs, true); err != nil {
		return err
	}
	st, err := o.OpenStore(ctx)
	if err != nil {
		return err
	}
	sets, unread, err := o.InUse(ctx, st, args, o.all)
	if err != nil {
		return err
	}
	stored := sets // with --all they are all of the store
	if o.unread = unread; !o.all {
		if stored, o.unread, err = o.InUse(ctx, st, nil, true); err != nil {
			return err
		}
	}
	o.noteOwners(stored)
	list, err := o.list(sets)
	if err != nil {
		return err
	}
	records, err := o.CreateObservations(ctx) // which makes a directory: not for an issuer that was mistyped
	if err != nil {
		return err
	}
	u := upload.Uploader{Store: st, Records: records, By: o.By, Force: o.force}
	rows, failed := []synced{}, []error{}
	p := o.Live().Progress("uploading", "key sets")
	p.Of(len(list))
	for _, w := range list {
		p.Now("waiting for " + w.kind.Title)
		row, err := o.sync(ctx, u, w)
		if ctx.Err() != nil {
			p.End()
			return context.Cause(ctx)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("key set %q: %w", w.set.Name(), err))
		}
		rows = append(rows, row)
		p.Done(1)
	}
	p.End()
	if err := o.Print(map[string]any{"uploads": rows}, func(w *terminal.Table) { table(w, rows) }); err != nil {
		return err
	}
	for _, n := range unread {
		failed = append(failed, fmt.Errorf("key set %q cannot be read, so whether it names an upload is not known", n))
	}
	return errors.Join(failed...)
}

// list returns the uploads that the key sets name. One that was asked for by its name has to have some.
func (o *syncOptions) list(sets []keystore.KeySet) (all []work, err error) {
	for _, s := range sets {
		before := len(all)
		for _, name := range s.Policy().Uploads() {
			kind, place := party.Upload(name)
			if i := slices.IndexFunc(o.kinds, func(k holder.Kind) bool { return k.Name == kind }); i >= 0 {
				all = append(all, work{s, name, o.kinds[i], place})
			}
		}
		if len(all) == before && !o.all {
			return nil, unnamed(s)
		}
		if more := len(all) - before - most; more > 0 {
			o.Warn("key set %q names %d uploads; the last %d are passed over", s.Name(), most+more, more)
			all = all[:before+most]
		}
	}
	if len(all) == 0 {
		o.Notice("no policy names an upload, so there is nothing to do")
	}
	return all, nil
}

// unnamed is the error about a key set whose policy names no upload.
func unnamed(s keystore.KeySet) error {
	want := s.Policy()
	want.RelyingParties = party.WithUpload(want.RelyingParties, "KIND-upload:PLACE")
	return cli.WithHint(fmt.Errorf("the policy of key set %q names no upload", s.Name()),
		"name it beside the other relying parties: %s (keypost sync-keys --help says what KIND and PLACE may be)", Setting(s.Name(), s.Policy(), want))
}

// noteOwners notes which key sets of the store have which issuer URLs.
func (o *syncOptions) noteOwners(stored []keystore.KeySet) {
	o.owners = map[string][]string{}
	for _, s := range stored {
		if o.permitted.Admit(s) != nil {
			continue
		}
		for _, u := range s.Issuers() {
			o.owners[u.String()] = append(o.owners[u.String()], string(s.Name()))
		}
	}
}

// mayUpload returns an error for a key set that has another one's issuer URL, or one outside of its pattern. Its author could put keys into
// the other's relying party, which goes by the issuer URL.
//
// Google's objects are marked with the key set that they belong to, so that another one's claim holds none of their uploads up. Nothing else is
// marked, so for every key set at once the patterns have to say it.
func (o *syncOptions) mayUpload(s keystore.KeySet, kind holder.Kind) error {
	if r := o.permitted.Admit(s); r != nil {
		return errors.New("nothing is uploaded: " + r.Message)
	}
	bound := len(o.issuerURLs) > 0
	switch {
	case kind.Name == "gcp":
		return nil
	case !bound && o.all:
		return cli.WithHint(errors.New("nothing is uploaded: any key set could name another one's issuer URL"),
			"with --all, bind names to URLs as keypostd does: --issuer-url 'https://HOST/{name}'")
	case !bound && len(o.unread) > 0:
		return fmt.Errorf("nothing is uploaded, since key set %q cannot be read, and may have the same issuer URL; repair it, or bind names to URLs: --issuer-url PATTERN", o.unread[0])
	}
	for _, u := range s.Issuers() {
		others := slices.DeleteFunc(slices.Clone(o.owners[u.String()]), func(name string) bool { return name == string(s.Name()) })
		if len(others) > 0 {
			return cli.WithHint(fmt.Errorf("nothing is uploaded, since key set %s has the issuer URL %s, too", text.List(others, 3), u),
				"take it out of all but one, or bind names to URLs: --issuer-url PATTERN")
		}
	}
	return nil
}

// Bounds of one key set, which keeps none of the others from its turn: the time of one upload with what is read before and after it, and how
// many uploads it may have.
const patience, most = time.Minute, 16

func (o *syncOptions) sync(ctx context.Context, u upload.Uploader, w work) (synced, error) {
	row := synced{KeySet: w.set.Name(), Upload: w.party}
	to := holder.Target{Place: w.place, Set: w.set, Getenv: os.Getenv, Files: o.files, Adopt: o.adopt}
	held, err := w.kind.Open(ctx, to)
	if err != nil {
		held = unopened{err}
	}
	u.Permit = func(s keystore.KeySet) error { return o.mayUpload(s, w.kind) }
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := u.Sync(ctx, w.set.Name(), w.party, held)
	row.Uploaded, row.ReadAt = r.Uploaded, cli.NotBefore(r.Read)
	if _, older := errors.AsType[*upload.OlderError](err); older {
		err = cli.WithHint(err, "if this store is the newest all the same (the key set was made anew): %s", append(cli.SyncCommand(w.set.Name()), "--force"))
	}
	err = observe.Damaged(o.Factory, err)
	if _, is := errors.AsType[*upload.RefusedError](err); is {
		row.Refused = err.Error()
	}
	if err == nil && r.ClockGap != "" {
		err = fmt.Errorf("%s: the keys are there, and the reading does not count, since %s; set the one that is wrong, and run this again", w.party, r.ClockGap)
	}
	if err != nil {
		row.Error = err.Error()
		return row, err
	}
	for _, k := range r.Set.Keys() {
		row.Keys = append(row.Keys, k.ID())
	}
	if r.Refused != nil {
		row.Refused = r.Refused.Error()
		err = r.Refused
	}
	return row, err
}

// unopened is a relying party that cannot be asked, which is recorded as of one that does not answer.
type unopened struct{ error }

func (u unopened) Upload(context.Context, []byte) error { return u.error }

func (u unopened) Read(context.Context) (upload.Held, error) { return upload.Held{}, u.error }

func table(w *terminal.Table, rows []synced) {
	w.Row("KEY SET", "UPLOAD", "DONE", "KEYS", "READ BACK")
	for _, r := range rows {
		did := map[bool]string{true: "uploaded", false: "was there"}[r.Uploaded]
		if r.Error != "" {
			w.Row(r.KeySet, r.Upload, map[bool]string{true: "uploaded, then failed", false: "failed"}[r.Uploaded], "-", "-")
			continue
		}
		w.Row(r.KeySet, r.Upload, did, text.Count(len(r.Keys), "key", "keys"), cli.Stamp(r.ReadAt))
	}
}
