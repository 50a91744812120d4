package issuercmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/observation"
)

// listRow is one key set: as it is stored, and if a keypostd was asked, as it is served.
type listRow struct {
	Name       keystore.Name              `json:"name"`
	Issuers    []string                   `json:"issuers"`
	Generation int64                      `json:"generation"` // stored
	Keys       map[keystore.State]int     `json:"keys,omitempty"`
	Withdrawn  bool                       `json:"withdrawn,omitempty"`
	Digest     string                     `json:"-"` // of the stored version, as issuer.Status has it
	Problem    string                     `json:"problem,omitempty"`
	Served     *issuer.Status             `json:"served,omitempty"`
	Uploads    []observation.UploadStatus `json:"uploads,omitempty"` // that relying parties hold, where what was read back is known
}

func newList(f *cli.Factory) *cobra.Command {
	var admin string
	cmd := f.Command("list", "List the issuers of a store, and what is wrong with any", cobra.ExactArgs(0), func(ctx context.Context, _ []string) error {
		return listRun(ctx, f, admin)
	})
	cmd.Flags().StringVar(&admin, "admin", "", "admin listener of a running keypostd (http://127.0.0.1:9090): show what it serves, too")
	cli.Choices(cmd.Flags(), "admin", "http://127.0.0.1:9090")
	return cmd
}

func listRun(ctx context.Context, f *cli.Factory, admin string) error {
	st, err := f.OpenStore(ctx)
	if err != nil {
		return err
	}
	c, err := f.ReadAll(ctx, st)
	if err != nil {
		return err
	}
	rows := storedRows(c)
	if admin == "" { // else keypostd knows which of two key sets with one URL is permitted
		addRejected(rows, c)
	} else {
		report, err := service.AskAdmin(ctx, admin)
		if err != nil {
			return err
		}
		rows = merge(rows, report)
	}
	if err := addUploads(ctx, f, rows, c.Sets); err != nil {
		return err
	}
	slices.SortFunc(rows, func(a, b listRow) int { return strings.Compare(string(a.Name), string(b.Name)) })
	if err := f.Print(map[string]any{"issuers": rows}, func(w *terminal.Table) { listTable(w, rows, admin != "") }); err != nil {
		return err
	}
	if len(rows) == 0 {
		f.Notice("the store holds no key set; if it did, --admin shows what a keypostd still serves, and keypost store restore puts that back")
	}
	bad := 0
	for _, r := range rows {
		if r.Problem != "" {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d key sets have a problem", bad, len(rows))
	}
	return nil
}

// addRejected adds what is wrong with key sets beside each other.
func addRejected(rows []listRow, c catalog.Contents) {
	rejected := c.Rejected()
	for i := range rows {
		if r := rejected[rows[i].Name]; r != nil && rows[i].Problem == "" {
			rows[i].Problem = fmt.Sprintf("%s: %s", r.Reason, r.Message)
		}
	}
}

// addUploads adds how the copies that relying parties hold compare with what is stored.
func addUploads(ctx context.Context, f *cli.Factory, rows []listRow, sets []keystore.KeySet) error {
	for _, s := range sets {
		if s.Withdrawn() || len(s.Policy().Uploads()) == 0 {
			continue
		}
		uploads, known, err := observe.UploadsOf(ctx, f, s)
		_, damaged := errors.AsType[*observation.DamagedError](err)
		if err != nil && !damaged {
			return err
		}
		if !known {
			f.Notice("what relying parties hold of uploaded keys is recorded with the observations: give --observations")
			return nil
		}
		i := slices.IndexFunc(rows, func(r listRow) bool { return r.Name == s.Name() })
		if damaged && rows[i].Problem == "" { // only of this one
			rows[i].Problem = fmt.Sprintf("what was read back of its uploads cannot be read: %v", err)
		}
		if damaged {
			continue
		}
		rows[i].Uploads = uploads
		for _, c := range uploads {
			if c.Broken && rows[i].Problem == "" {
				rows[i].Problem = c.Problem()
			}
		}
	}
	return nil
}

func storedRows(c catalog.Contents) []listRow {
	rows := []listRow{}
	for _, s := range c.Sets {
		r := listRow{Name: s.Name(), Issuers: view.URLs(s), Generation: s.Generation(), Withdrawn: s.Withdrawn(), Keys: map[keystore.State]int{}, Digest: s.Digest().String()}
		for _, k := range s.Keys() {
			r.Keys[k.State]++
		}
		rows = append(rows, r)
	}
	for n, err := range c.Unread {
		problem := err.Error()
		if b, ok := errors.AsType[*keystore.BrokenError](err); ok {
			problem = fmt.Sprintf("%s: %v", b.Reason, b.Err)
		}
		rows = append(rows, listRow{Name: n, Issuers: []string{}, Problem: problem})
	}
	return rows
}

// listTable shows what a keypostd serves if one was asked.
func listTable(w *terminal.Table, rows []listRow, served bool) {
	head := []any{"NAME", "ISSUER", "GENERATION", "NEXT", "ACTIVE", "RETIRED"}
	if served {
		head = append(head, "SERVED")
	}
	w.Row(append(head, "STATUS")...)
	for _, r := range rows {
		cells := []any{r.Name, strings.Join(r.Issuers, " "), r.Generation, r.Keys[keystore.Next], r.Keys[keystore.Active], r.Keys[keystore.Retired]}
		if served {
			cells = append(cells, r.served())
		}
		w.Row(append(cells, r.status())...)
	}
}

func (r listRow) status() string {
	switch {
	case r.Problem != "":
		return r.Problem
	case r.Withdrawn && r.Generation == 0:
		return "withdrawn; its document is gone from the store"
	case r.Withdrawn:
		return "withdrawn"
	}
	for _, c := range r.Uploads {
		if problem := c.Problem(); problem != "" {
			return "ok, but " + problem
		}
	}
	if r.Generation > 0 && r.Keys[keystore.Active] == 0 {
		return "ok, but no key is active"
	}
	return "ok"
}

func (r listRow) served() string {
	if r.Served == nil || !r.Served.Served {
		return "-"
	}
	return fmt.Sprint(r.Served.Generation)
}

// merge adds what is served to what is stored.
func merge(rows []listRow, report issuer.Report) []listRow {
	served := map[keystore.Name]issuer.Status{}
	for _, s := range report.Issuers {
		served[s.Name] = s
	}
	for i := range rows {
		r := &rows[i]
		s, known := served[r.Name]
		delete(served, r.Name)
		if known {
			r.Served = &s
		}
		if r.Problem == "" {
			r.Problem = servingProblem(*r, s, known)
		}
	}
	for _, s := range served { // in the report only
		r := listRow{Name: s.Name, Issuers: s.Issuers, Served: &s}
		switch {
		case s.Served:
			r.Problem = fmt.Sprintf("missing in the store; generation %d stays served", s.Generation)
		case s.Rejected != "":
			r.Problem = fmt.Sprintf("missing in the store; keypostd rejected it (%s) and serves nothing of it", s.Rejected)
		case s.Message != "":
			r.Problem = "missing in the store; keypostd serves nothing of it"
		default: // the tombstone of a key set that keypostd has read as withdrawn: nothing is lost
			r.Withdrawn = true
		}
		rows = append(rows, r)
	}
	return rows
}

func servingProblem(r listRow, s issuer.Status, known bool) string {
	switch {
	case !known:
		return "keypostd has not read it; does it read this store?"
	case s.Rejected != "":
		return fmt.Sprintf("rejected (%s): %s", s.Rejected, s.Message)
	case s.Message != "" && !s.Served: // it must not be served there
		return ""
	case s.Generation != r.Generation:
		return fmt.Sprintf("keypostd serves generation %d", s.Generation)
	case s.Digest != "" && s.Digest != r.Digest: // an older keypostd does not say
		return fmt.Sprintf("keypostd serves another version of generation %d, with other content", s.Generation)
	case !s.Served && !r.Withdrawn:
		return "keypostd does not serve it"
	}
	return ""
}
