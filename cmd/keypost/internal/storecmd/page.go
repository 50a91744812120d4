package storecmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/export"
	"github.com/keypost/keypost/issuer/page"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/open"
	"github.com/keypost/keypost/keystore/party"
)

// pagesRun writes the operator's page of a whole store, and of what the keypostd at admin serves, if that is not empty.
func pagesRun(ctx context.Context, f *cli.Factory, dir, admin string) error {
	st, err := f.OpenStore(ctx)
	if err != nil {
		return err
	}
	records, damaged, err := looks(ctx, f)
	if err != nil {
		return err
	}
	c, err := f.ReadAll(ctx, st)
	if err != nil {
		return err
	}
	var report *issuer.Report
	if admin != "" {
		r, err := cli.AskAdmin(ctx, admin)
		if err != nil {
			return err
		}
		report = &r
	}
	if outer := documentsAround(dir); outer != "" {
		return cli.WithHint(fmt.Errorf("export pages to %s: %s holds documents of issuers, and the pages would be among them", dir, outer), "name a directory that nobody is served from")
	}
	root, err := openExport(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	files, err := page.Open(root)
	if err != nil {
		return cli.WithHint(fmt.Errorf("export pages to %s: %w", dir, err), "name a directory that is empty or not there yet")
	}
	now := time.Now().UTC().Truncate(time.Second)
	s := sheaf{files, page.About{Made: now, Complete: now, Build: "keypost " + cli.Version(), Source: open.Redacted(f.Store)}, records, damaged, servedBy(report)}
	if err := errors.Join(s.write(f, c), files.Done()); err != nil {
		return fmt.Errorf("export pages to %s: %w", dir, err)
	}
	for _, d := range damaged {
		f.Warn("observation %s is unreadable: %v", d.Document, d)
	}
	if n := len(c.Unread); n > 0 {
		f.Warn("%d of %d key sets cannot be read; their pages say why", n, n+len(c.Sets))
	}
	written := []export.File{}
	for _, name := range files.Written() {
		written = append(written, export.File{Name: name, Written: true})
	}
	return f.Print(map[string]any{"files": written}, func(w *tabwriter.Writer) {
		cli.Row(w, "index.html", fmt.Sprintf("and %d more files", len(written)-1))
	})
}

// documentsAround returns the directory above dir that has documents of issuers as export writes them, below a directory with the
// name of a host; empty if there is none. Whoever serves it serves what is in dir as well.
func documentsAround(dir string) string {
	at, err := filepath.Abs(dir)
	if err != nil {
		return "" // there is no working directory, and nothing can be opened
	}
	if real, err := filepath.EvalSymlinks(at); err == nil {
		at = real
	} else if real, err := filepath.EvalSymlinks(filepath.Dir(at)); err == nil { // it is to be made
		at = filepath.Join(real, filepath.Base(at))
	}
	for parent := filepath.Dir(at); parent != at; at, parent = parent, filepath.Dir(parent) {
		for _, below := range []string{"[^.]*.*", "[^.]*.*/*"} { // HOST and HOST/NAME, which all but the oddest issuer URLs are
			for _, document := range []string{".well-known", "keys.json"} {
				if found, _ := fs.Glob(os.DirFS(parent), path.Join(below, document)); len(found) > 0 {
					return parent
				}
			}
		}
	}
	return ""
}

// looks returns what was seen of every key set, if the place for observations was named; else nil.
func looks(ctx context.Context, f *cli.Factory) (map[keystore.Name][]observation.Record, []*observation.DamagedError, error) {
	if f.Observations == "" {
		return nil, nil, nil
	}
	st, err := f.OpenObservations(ctx)
	if err == nil {
		return st.All(ctx)
	}
	if errors.Is(err, fs.ErrNotExist) { // nobody has looked
		return map[keystore.Name][]observation.Record{}, nil, nil
	}
	return nil, nil, err
}

// sheaf is the pages of one run.
type sheaf struct {
	files   *page.Files
	about   page.About
	records map[keystore.Name][]observation.Record // nil: not known
	damaged []*observation.DamagedError
	served  map[keystore.Name]page.Input // what a keypostd says; nil: nobody has asked one
}

// servedBy returns what a keypostd has reported of each key set.
func servedBy(report *issuer.Report) map[keystore.Name]page.Input {
	if report == nil {
		return nil
	}
	all := map[keystore.Name]page.Input{}
	for _, s := range report.Issuers {
		in := page.Input{Name: s.Name, Served: &page.Served{Generation: s.Generation, Digest: s.Digest, Withdrawn: s.Generation > 0 && !s.Served, Issuers: s.Issuers}}
		if s.Rejected != "" {
			in.Rejected = &page.Rejected{Reason: s.Rejected, Message: s.Message}
		}
		all[s.Name] = in
	}
	return all
}

// write writes every page.
func (s sheaf) write(f *cli.Factory, c catalog.Contents) error {
	all := s.inputs(c)
	p := f.Progress("writing pages", "key sets")
	defer p.End()
	p.Of(len(all))
	rows, issuers := map[keystore.Name]page.Row{}, 0
	for _, in := range all {
		k := page.Of(s.about, in)
		rows[in.Name] = k.Row()
		issuers += len(k.Issuers)
		if err := s.files.Write(k); err != nil {
			return err
		}
		p.Done(1)
	}
	return s.list(rows, issuers)
}

// inputs returns what is known of every key set. What a keypostd says of one counts, since it knows its own rules and what it served before.
func (s sheaf) inputs(c catalog.Contents) (all []page.Input) {
	rejected, left := c.Rejected(), maps.Clone(s.served)
	add := func(in page.Input, r *lastgood.Rejection) {
		said, known := left[in.Name]
		delete(left, in.Name)
		switch {
		case known:
			in.Served, in.Rejected = said.Served, said.Rejected
		case s.served != nil:
			in.Served = &page.Served{}
		}
		if r != nil && !known {
			in.Rejected = &page.Rejected{Reason: r.Reason, Message: r.Message}
		}
		all = append(all, in)
	}
	for _, set := range c.Sets {
		in := page.Input{Name: set.Name(), Set: &set}
		if s.records != nil {
			in.Looks, in.Observed = looksOf(set, s.records[set.Name()])
			for _, d := range s.damaged {
				if d.MayBeOf(set.Name()) {
					in.Looks = append(in.Looks, page.Look{Issuer: string(d.Document), Gaps: []string{"unreadable: " + d.Error()}})
				}
			}
		}
		add(in, rejected[set.Name()])
	}
	for n, err := range c.Unread {
		add(page.Input{Name: n, Unread: err.Error()}, lastgood.RejectError(err))
	}
	for n, in := range left { // served, and not in the store
		if n.Check() == nil {
			all = append(all, in)
		}
	}
	return all
}

// list writes the list.
func (s sheaf) list(rows map[keystore.Name]page.Row, issuers int) error {
	l := page.List{About: s.about, KeySets: len(rows), Issuers: issuers, Rows: []page.Row{}}
	for i, n := range slices.Sorted(maps.Keys(rows)) {
		if i < page.MaxRows {
			l.Rows = append(l.Rows, rows[n])
		}
		if !rows[n].NeedsAttention() {
			continue
		}
		if l.Attention++; l.Attention <= page.MaxAttention {
			l.First = append(l.First, rows[n])
		}
	}
	return s.files.Write(l)
}

// looksOf returns what the page shows of records, and what they say of a key.
func looksOf(s keystore.KeySet, records []observation.Record) ([]page.Look, func(keystore.Key) keystore.Observed) {
	var all []page.Look
	for _, r := range records {
		if !party.IsUpload(r.Issuer) {
			all = append(all, page.Look{Issuer: r.Issuer, Vantage: r.Vantage, At: r.Latest.End, Complete: r.Complete, Gaps: r.Latest.Gaps})
		}
	}
	for _, c := range observation.UploadsOf(s, records) {
		look := page.Look{Issuer: c.Upload, At: c.ReadAt, Complete: c.ReadAt}
		if problem := c.Problem(); problem != "" {
			look.Gaps = []string{problem}
		}
		all = append(all, look)
	}
	return all, func(k keystore.Key) keystore.Observed {
		return observation.Of(observation.Key{ID: k.ID(), Fingerprint: k.Fingerprint()}, records, observation.Required(s))
	}
}
