package page

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// Marker is the file by which a directory of pages is known.
const Marker = ".keypost-page"

// Errors of [Open].
var (
	// ErrDocuments: the directory holds documents of issuers, which the world reads. Pages name people and their reasons.
	ErrDocuments = errors.New("it holds documents of issuers, which everybody may read; pages name people, reasons and keys that are to come")
	// ErrForeign: the directory holds something else, which pages must not be mixed with.
	ErrForeign = errors.New("it holds something else than pages")
)

// Files writes pages below a directory. Whoever reads one meanwhile gets a whole page; a run that was interrupted leaves some of them
// old. It is for one goroutine.
type Files struct {
	root  *os.Root
	wrote map[string]bool
}

// Open returns a writer for a directory that is empty or holds pages of an earlier run.
func Open(root *os.Root) (*Files, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	if _, err := root.Lstat(Marker); err != nil && len(entries) > 0 {
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, foreign(root)
	}
	if err := foreign(root); errors.Is(err, ErrDocuments) { // written there since
		return nil, err
	}
	f := &Files{root, map[string]bool{}}
	if err := root.MkdirAll("keysets", 0o755); err != nil {
		return nil, err
	}
	return f, f.Add(Marker, []byte("keypost export --html has made these pages, and replaces them.\n"))
}

// foreign returns what is wrong with a directory that is not one of pages alone.
func foreign(root *os.Root) error {
	err := fs.WalkDir(root.FS(), ".", func(_ string, e fs.DirEntry, err error) error {
		if err == nil && (e.Name() == ".well-known" || e.Name() == "keys.json") {
			return ErrDocuments
		}
		return err
	})
	if err != nil {
		return err
	}
	return ErrForeign
}

// Add writes one file.
func (f *Files) Add(name string, content []byte) error {
	const temporary = ".keypost-page.tmp"
	if err := f.root.WriteFile(temporary, content, 0o644); err != nil {
		return err
	}
	f.wrote[name] = true
	return f.root.Rename(temporary, name)
}

// Written returns the names of the pages that were written, in their order.
func (f *Files) Written() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(f.wrote)), func(name string) bool { return name == Marker })
}

// Write writes a page of a form and its twin.
func (f *Files) Write(p any) error {
	var name func(suffix string) string
	switch p := p.(type) {
	case List:
		name = func(suffix string) string { return "index" + suffix }
	case KeySet:
		name = func(suffix string) string { return KeySetName(p.Name, suffix) }
	}
	html, err := HTML(p)
	if err != nil {
		return err
	}
	twin, err := JSON(p)
	return errors.Join(err, f.Add(name(".html"), html), f.Add(name(".json"), twin))
}

// Done removes the pages of an earlier run that were not written by this one: of key sets that are not in the store any more.
func (f *Files) Done() error {
	var errs []error
	for _, dir := range []string{".", "keysets"} {
		entries, err := fs.ReadDir(f.root.FS(), dir)
		errs = append(errs, err)
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			page := strings.HasSuffix(name, ".html") || strings.HasSuffix(name, ".json")
			if page && !f.wrote[name] && (dir == "keysets" || strings.HasPrefix(name, "index")) {
				errs = append(errs, f.root.Remove(name))
			}
		}
	}
	return errors.Join(errs...)
}
