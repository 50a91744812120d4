// Package copycmd has the command that uploads published keys to relying parties that hold a copy of them, whatever the cloud.
package copycmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/upload"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/observation"
)

// Cloud is a cloud to which copies of one kind are uploaded.
type Cloud struct {
	Kind string // as in KIND-upload:PLACE; the commands are those of [cli.SyncCommandOf]
	Name string // for people
	Form string // of a place, for people
	// Open returns a copy. It calls nobody that a mistyped place would call.
	Open func(ctx context.Context, to Target) (upload.Copy, error)
	// Revive returns the commands, one after another, after which a relying party that takes no token of the key set takes them; none if
	// there are none.
	Revive func(to Target) cli.Commands
}

// Target is a copy that a key set's policy names.
type Target struct {
	Place   string
	KeySet  keystore.Name
	Issuers []keystore.IssuerURL // the key set's; without them no command is printed
	Policy  keystore.Policy      // the key set's
	Adopt   bool                 // it is to hold the keys also where it is marked as another's, or as nobody's
}

type syncOptions struct {
	*cli.Factory
	cloud Cloud
	all   bool
	adopt bool
	force bool
}

// NewCmdSync returns the command sync-keys of a cloud.
func NewCmdSync(f *cli.Factory, cloud Cloud) *cobra.Command {
	o := &syncOptions{Factory: f, cloud: cloud}
	cmd := f.Command("sync-keys ISSUER…|--all", "Upload the published keys to whom the policy names, and read them back", cobra.ArbitraryArgs, o.run)
	cmd.Long = "A relying party that holds a copy of the keys goes by that, and fetches nothing. For each that the policy names\n" +
		"(issuer set --relying-party " + cloud.Kind + "-upload:PLACE), read what it holds, upload the published keys unless they are there, read them\n" +
		"back, and record that as an observation: gates wait for it. Run it after each change of the keys, or by a timer every\n" +
		fmt.Sprintf("few minutes, since a gate asks for a reading of the last %.0f. Keys that a copy has and the store never had are named\n"+
			"and replaced, as is a JWKS in a form that is not read, and the exit code is 1; so it is, after the upload, for a copy of who\n"+
			"takes no token at all, since it is disabled.", keystore.ObservationFresh.Minutes())
	const places = " --store file:///srv/keysets --observations file:///srv/observations"
	line := "  keypost " + strings.Join(cli.SyncCommandOf(cloud.Kind, "prod-a"), " ")
	cmd.Example = line + places + "\n" + strings.Replace(line, "prod-a", "--all", 1) + places
	f.ObservationsFlag(cmd.Flags())
	cmd.Flags().BoolVar(&o.all, "all", false, "every key set of the store whose policy names such a copy")
	cmd.Flags().BoolVar(&o.adopt, "adopt", false, "upload also to a copy that is marked as another installation's, or as nobody's; not with --all")
	cmd.Flags().BoolVar(&o.force, "force", false, "upload also where the store has an older key set than the one that was uploaded last, or that is not known; not with --all")
	cmd.MarkFlagsMutuallyExclusive("all", "adopt")
	cmd.MarkFlagsMutuallyExclusive("all", "force")
	return cmd
}

// NewestHint goes with an [upload.BehindError] or an [upload.UnknownError], and a command.
const NewestHint = "if this store is the newest all the same (the key set was made anew, or somebody wrote a reading that is not true): %s"

// unrecordedHint goes with an [upload.UnrecordedError], and a command.
const unrecordedHint = "name the place where the uploads of this copy were recorded before (--observations); if there is none, and this store is the newest: %s"

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

// synced is what came of one copy, as scripts read it.
type synced struct {
	KeySet    keystore.Name    `json:"keySet"`
	Copy      string           `json:"copy"`
	Uploaded  bool             `json:"uploaded"` // false: it had the published keys already
	Keys      []keystore.KeyID `json:"keys,omitempty"`
	ReadAt    time.Time        `json:"readAt,omitzero"`
	Strangers []keystore.KeyID `json:"strangers,omitempty"`        // keys that it had and the store never had
	Back      []keystore.KeyID `json:"back,omitempty"`             // keys that it had again after they were taken away
	Lost      []keystore.KeyID `json:"lost,omitempty"`             // published keys that it had at the reading before, and had lost
	Unread    string           `json:"unreadableSHA256,omitempty"` // of a JWKS that it had in a form that is not read
	Refused   string           `json:"refused,omitempty"`          // why no token is taken there, whatever keys it has
	Error     string           `json:"error,omitempty"`
}

// work is a copy to bring up to date.
type work struct {
	set    keystore.KeySet
	party  string
	rivals []rival
	doubt  error // a key set that cannot be read may be a rival
}

// rival is another key set that claims what is this one's.
type rival struct {
	name   keystore.Name
	claims string // what, as a sentence
}

func (o *syncOptions) run(ctx context.Context, args []string) error {
	if err := cli.CheckChoice(args, o.all); err != nil {
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
	list, err := o.list(sets)
	if err != nil {
		return err
	}
	if err := o.compare(ctx, st, list); err != nil {
		return err
	}
	records, err := o.CreateObservations(ctx) // which makes a directory: not for an issuer that was mistyped
	if err != nil {
		return err
	}
	u := upload.Uploader{Store: st, Records: records, Place: o.Observations, By: o.By, Force: o.force, Adopt: o.adopt}
	rows, failed := []synced{}, []error{}
	p := o.Progress("uploading", "copies")
	p.Of(len(list))
	for _, w := range list {
		p.Now("waiting for " + o.cloud.Name)
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
	if err := o.Print(map[string]any{"copies": rows}, func(w *tabwriter.Writer) { table(w, rows) }); err != nil {
		return err
	}
	for _, n := range unread {
		failed = append(failed, fmt.Errorf("key set %q cannot be read, so whether it names a copy is not known", n))
	}
	return errors.Join(failed...)
}

// list returns the copies of this cloud that the key sets name. One that was asked for by its name has to have some.
func (o *syncOptions) list(sets []keystore.KeySet) (all []work, err error) {
	for _, s := range sets {
		parties := slices.DeleteFunc(s.Policy().Uploads(), func(party string) bool {
			kind, _ := keystore.UploadKind(party)
			return kind != o.cloud.Kind
		})
		if len(parties) == 0 && !o.all {
			c := Setting(s.Name(), s.Policy(), s.Policy().WithUpload(o.cloud.Kind+"-upload:PLACE"))
			return nil, cli.WithHint(fmt.Errorf("the policy of key set %q names no copy of %s", s.Name(), o.cloud.Name), "name it beside the other relying parties: %s (PLACE is %s)", c, o.cloud.Form)
		}
		for _, party := range parties {
			all = append(all, work{set: s, party: party})
		}
	}
	if len(all) == 0 {
		o.Notice("no policy names a copy of %s, so there is nothing to upload", o.cloud.Name)
	}
	return all, nil
}

// compare finds the rivals among all key sets in use. Who may write one key set could else have another issuer's copy hold its keys,
// by adding that issuer's URL and its copy. Somebody who may read no other key set is told that nothing was compared.
func (o *syncOptions) compare(ctx context.Context, st keystore.Reader, list []work) error {
	if len(list) == 0 {
		return nil
	}
	c, err := o.ReadAll(ctx, st)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		o.Warn("whether another key set claims the same issuer URL or copy is unknown: %v", err)
		return nil
	}
	for i, w := range list {
		err := c.CheckUnread(w.set.Issuers(), true)
		if e, is := errors.AsType[*catalog.UnreadError](err); is {
			list[i].rivals = append(list[i].rivals, rival{e.Name, fmt.Sprintf("key set %q, which is broken (%v), has an issuer URL of key set %q too", e.Name, e.Err, w.set.Name())})
		}
		if err := c.CheckUnread(w.set.Issuers(), false); err != nil {
			list[i].doubt = fmt.Errorf("nothing is uploaded to %s: %w", w.party, err)
		}
		for _, other := range c.Sets {
			if claims := claimed(w, other); claims != "" && other.Name() != w.set.Name() && !other.Withdrawn() {
				list[i].rivals = append(list[i].rivals, rival{other.Name(), claims})
			}
		}
	}
	return nil
}

// checkDoubt returns the doubt about w unless the copy was seen to be w's before. Else a document that somebody breaks would keep keys
// that were revoked in every copy.
func (o *syncOptions) checkDoubt(ctx context.Context, records *observation.Store, w work) error {
	if w.doubt == nil || o.adopt {
		return nil
	}
	if is, err := ours(ctx, records, w.set.Name(), w.party); err == nil && is {
		return nil
	}
	return cli.WithHint(w.doubt, "mend or remove that document; or, if the copy is this key set's: %s", append(cli.SyncCommandOf(o.cloud.Kind, w.set.Name()), "--adopt"))
}

// ours reports whether a copy was seen to have keys of a key set.
func ours(ctx context.Context, records *observation.Store, n keystore.Name, party string) (bool, error) {
	r, err := records.Load(ctx, n, observation.Place{Issuer: party})
	if errors.Is(err, keystore.ErrNotFound) {
		return false, nil
	}
	return !r.Ours.IsZero(), err
}

// claimed says which issuer URL of w's another key set claims, or that it claims the copy; empty if it claims neither.
func claimed(w work, other keystore.KeySet) string {
	for _, u := range w.set.Issuers() {
		if slices.ContainsFunc(other.Issuers(), u.Overlaps) {
			return fmt.Sprintf("key set %q has the issuer URL %s too", other.Name(), u)
		}
	}
	if slices.Contains(other.Policy().Uploads(), w.party) {
		return fmt.Sprintf("the policy of key set %q names %s too, which holds the keys of one", other.Name(), w.party)
	}
	return ""
}

// checkRivals returns an error if nothing is uploaded to w's copy, and one, adding, if no key is added to it. The copy is the key set's that it
// was seen to have keys of: else who may write another one would keep a revoked key in the copy, by naming that. Where it was seen with keys of
// both, nobody knows whose it is, and keys are only taken away.
func (o *syncOptions) checkRivals(ctx context.Context, records *observation.Store, w work) (adding, err error) {
	if len(w.rivals) == 0 {
		return nil, nil
	}
	is, err := ours(ctx, records, w.set.Name(), w.party)
	if err != nil {
		return nil, fmt.Errorf("%s, and whose the copy is cannot be known, so nothing is uploaded: %w", w.rivals[0].claims, err)
	}
	first, theirs := w.rivals[0], false
	for _, r := range w.rivals {
		if seen, err := ours(ctx, records, r.name, w.party); seen || err != nil {
			first, theirs = r, true
			break
		}
	}
	const find = "find out whose it is, and take it out of the other (issuer set --relying-party)"
	switch {
	case !is && theirs:
		return nil, fmt.Errorf("%s, and the copy was seen with keys of that one, so nothing is uploaded for this one; %s", first.claims, find)
	case !is:
		return nil, fmt.Errorf("%s, so nothing is uploaded for either; %s", first.claims, find)
	case theirs:
		return fmt.Errorf("%s, and the copy was seen with keys of both, so no key is added for either; %s", first.claims, find), nil
	}
	o.Warn("%s; the copy was seen with keys of key set %q alone, for which the run goes on; %s", first.claims, w.set.Name(), find)
	return nil, nil
}

func (o *syncOptions) sync(ctx context.Context, u upload.Uploader, w work) (synced, error) {
	row := synced{KeySet: w.set.Name(), Copy: w.party}
	_, place := keystore.UploadKind(w.party)
	adding, err := o.checkRivals(ctx, u.Records, w)
	if err := cmp.Or(err, o.checkDoubt(ctx, u.Records, w)); err != nil {
		row.Error = err.Error()
		return row, errors.Join(err, u.Refuse(ctx, w.set.Name(), w.party, err))
	}
	u.Rival = adding
	to := Target{Place: place, KeySet: w.set.Name(), Issuers: w.set.Issuers(), Policy: w.set.Policy(), Adopt: o.adopt}
	c, err := o.cloud.Open(ctx, to)
	if err != nil {
		c = unopened{err}
	}
	r, err := u.Sync(ctx, w.set.Name(), w.party, c)
	again := cli.SyncCommandOf(o.cloud.Kind, w.set.Name())
	if o.adopt {
		again = append(again, "--adopt")
	}
	switch again = append(again, "--force"); {
	case unrecorded(err):
		err = cli.WithHint(err, unrecordedHint, again)
	case unsure(err):
		err = cli.WithHint(err, NewestHint, again)
	default:
		err = observe.Damaged(o.Factory, err)
	}
	if _, is := errors.AsType[*upload.RefusedError](err); is {
		row.Refused = err.Error()
		err = o.revived(err, to)
	}
	row.Uploaded, row.ReadAt, row.Strangers, row.Back, row.Lost, row.Unread = r.Uploaded, cli.NotBefore(r.Read), r.Strangers, r.Back, r.Lost, r.Unreadable
	if err != nil {
		row.Error = err.Error()
		return row, errors.Join(err, Strangers(o.Factory, o.cloud.Name, r, "whether they are replaced is not known"))
	}
	if r.ClockGap != "" {
		err = fmt.Errorf("%s: the keys are there, and the reading does not count, since %s; set the one that is wrong, and run this again", w.party, r.ClockGap)
	}
	if err != nil {
		row.Error = err.Error()
	} else {
		for _, k := range r.Set.Keys() {
			row.Keys = append(row.Keys, k.ID())
		}
	}
	if r.Refused != nil {
		row.Refused = r.Refused.Error()
		err = errors.Join(err, o.revived(r.Refused, to))
	}
	return row, errors.Join(err, Strangers(o.Factory, o.cloud.Name, r, "they are replaced"))
}

// unsure reports whether nothing was uploaded, or what was is wrong, since the store is behind the copy or may be.
func unsure(err error) bool {
	_, behind := errors.AsType[*upload.BehindError](err)
	_, unknown := errors.AsType[*upload.UnknownError](err)
	return behind || unknown
}

// unrecorded reports whether nothing was uploaded since nothing was recorded of the copy.
func unrecorded(err error) bool {
	_, is := errors.AsType[*upload.UnrecordedError](err)
	return is
}

// revived adds to an error about a relying party that takes no token what changes that, unless it says so itself.
func (o *syncOptions) revived(err error, to Target) error {
	c := o.cloud.Revive(to)
	if _, is := errors.AsType[*cli.HintedError](err); is || len(c) == 0 {
		return err
	}
	return cli.WithHint(err, "to have it take tokens of key set %q again: %s", to.KeySet, c)
}

// Strangers tells of keys that a copy in a cloud had and the store never had, and what became of them; and of those that it has lost. It
// returns an error for the first, unless the copy was another's until now.
func Strangers(f *cli.Factory, cloud string, r upload.Result, then string) error {
	warnLost(f, cloud, r)
	var names []string
	for _, id := range r.Strangers {
		name := text.OneLine(string(id), 100)
		if _, ours := r.Set.Key(id); ours {
			name = "another key under the ID " + name + " of one that is published"
		} else if slices.ContainsFunc(r.Set.Gone(), func(g keystore.Gone) bool { return g.ID == id }) {
			name = "another key under the ID " + name + " of one that is gone"
		}
		names = append(names, name)
	}
	for _, id := range r.Back {
		names = append(names, text.OneLine(string(id), 100)+" (taken away before)")
	}
	if r.Unreadable != "" {
		names = append(names, observation.Stranger{Unreadable: r.Unreadable}.String())
	}
	never := "the store never had"
	if len(r.Back) > 0 {
		never += " or has taken away"
	}
	switch had := fmt.Sprintf("%s had keys that %s: %s; %s", r.Party, never, text.List(names, 8), then); {
	case len(names) == 0:
		return nil
	case r.Adopted:
		f.Warn("%s", had)
		return nil
	default:
		return fmt.Errorf("%s; find out in the audit log of %s who changed the provider, and what was done with tokens of theirs", had, cloud)
	}
}

// warnLost names the published keys that a copy has lost. That is no error: a copy that an older one was put over is mended so.
func warnLost(f *cli.Factory, cloud string, r upload.Result) {
	if len(r.Lost) == 0 {
		return
	}
	var names []string
	for _, id := range r.Lost {
		names = append(names, text.OneLine(string(id), 100))
	}
	f.Warn("%s had %s at %s and has lost it since: somebody took it away, or this store and what was recorded of it are older than the copy, as a backup is; find out in the audit log of %s who changed the provider, and revoke again what was revoked",
		r.Party, text.List(names, 8), cli.Stamp(r.Had), cloud)
}

// unopened is a copy that cannot be asked, which is recorded of it as of one that does not answer.
type unopened struct{ error }

func (u unopened) Upload(context.Context, []byte) error { return u.error }

func (u unopened) Read(context.Context) (upload.Reading, error) { return upload.Reading{}, u.error }

func table(w *tabwriter.Writer, rows []synced) {
	cli.Row(w, "KEY SET", "COPY", "UPLOAD", "KEYS", "READ BACK")
	for _, r := range rows {
		did := map[bool]string{true: "uploaded", false: "was there"}[r.Uploaded]
		if r.Error != "" {
			cli.Row(w, r.KeySet, r.Copy, map[bool]string{true: "uploaded, then failed", false: "failed"}[r.Uploaded], "-", "-")
			continue
		}
		cli.Row(w, r.KeySet, r.Copy, did, text.Count(len(r.Keys), "key", "keys"), cli.Stamp(r.ReadAt))
	}
}
