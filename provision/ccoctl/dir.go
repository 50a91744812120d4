package ccoctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/durable"
	"github.com/keypost/keypost/internal/text"
)

// writer writes below root. Temporary files are hidden, so that `cp manifests/*` takes none along.
func writer(root *os.Root) durable.Writer {
	return durable.Writer{FS: durable.Root{Root: root}, Owner: "keypost-output"}
}

// Dir is an output directory.
type Dir struct {
	path string
	subs []string
}

// OpenDir creates the directory at path (empty for the current one) and the directories subs in it, with mode 0700,
// unless they exist; the parent of path must exist. It removes the temporary files of an interrupted run, so two runs
// must not write into one directory at the same time.
func OpenDir(path string, subs ...string) (*Dir, error) {
	d := &Dir{path: filepath.Clean(path), subs: subs}
	if err := d.open(); err != nil {
		return nil, fmt.Errorf("output directory %s: %w", d.path, err)
	}
	return d, nil
}

func (d *Dir) open() error {
	if err := os.Mkdir(d.path, 0o700); errors.Is(err, fs.ErrNotExist) {
		return d.noParent()
	} else if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	root, err := os.OpenRoot(d.path) // refuses what is not a directory
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // read only
	for _, sub := range d.subs {
		if err := root.Mkdir(sub, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := checkSub(root, sub); err != nil {
			return err
		}
	}
	if err := d.checkOwners(); err != nil {
		return err
	}
	return d.removeLeftovers(root)
}

// checkSub returns an error for what is in the place of a directory and is none. A symbolic link would let its owner choose where
// manifests and keys go, and replace them there.
func checkSub(root *os.Root, sub string) error {
	if info, err := root.Lstat(sub); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s in it is not a directory; move it away", sub)
	}
	return nil
}

// CheckDir returns the error with which [OpenDir] or [Dir.Write] would refuse the output directory at path, its manifests or its
// signing key, and changes nothing: a run that makes things in a cloud first would then have them, and not the files that name them.
func CheckDir(path string) error {
	d := &Dir{path: filepath.Clean(path), subs: []string{ManifestsDir, TLSDir}}
	if err := d.check(); err != nil {
		return fmt.Errorf("output directory %s: %w", d.path, err)
	}
	return nil
}

func (d *Dir) check() error {
	if _, err := os.Lstat(d.path); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(d.path)); errors.Is(err, fs.ErrNotExist) {
			return d.noParent()
		}
		return nil
	}
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // read only
	for _, sub := range d.subs {
		if err := checkSub(root, sub); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := d.checkOwners(); err != nil {
		return err
	}
	names := []string{SigningKeyName, AuthenticationFile("").Name, AzureWebhookFile("").Name}
	there, err := fs.ReadDir(root.FS(), ManifestsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range there {
		if strings.HasSuffix(e.Name(), secretSuffix) && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, ManifestsDir+"/"+e.Name())
		}
	}
	for _, name := range names {
		if err := d.checkName(root, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (d *Dir) noParent() error {
	return fmt.Errorf("its parent does not exist; make it first (mkdir -p %s)", text.Quoted(filepath.Dir(d.path)))
}

func (d *Dir) removeLeftovers(root *os.Root) error {
	for _, dir := range append([]string{"."}, d.subs...) {
		if err := writer(root).RemoveTemps(root, dir, 0); err != nil {
			return err
		}
	}
	return nil
}

// Path returns the path of a file of the directory: relative if the directory's is.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

// Line returns the line of the log that reports a file which was written.
func (d *Dir) Line(f File) string { return f.log + d.Path(f.Name) }

// Write puts files into the directory and replaces those of the same names. Each is complete and durable under a
// temporary name before the first is renamed, so that none is ever seen half written, and what can fail fails before
// anything is changed. It neither follows symbolic links nor replaces them.
func (d *Dir) Write(files ...File) error {
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // the files are closed and synced, each on its own
	for _, f := range files {
		if err := d.checkName(root, f.Name); err != nil {
			return fmt.Errorf("write %s: %w", d.Path(f.Name), err)
		}
	}
	var staged []*durable.Staged
	defer func() {
		for _, s := range staged {
			_ = s.Remove() // there only if something failed; else the next run removes it
		}
	}()
	for _, f := range files {
		w := writer(root)
		w.Mode = f.Mode
		s, err := w.Stage(f.Name, f.Data)
		if err != nil {
			return fmt.Errorf("write %s: %w", d.Path(f.Name), err)
		}
		staged = append(staged, s)
	}
	for i, f := range files {
		if err := staged[i].Rename(); err != nil {
			return fmt.Errorf("write %s: %w", d.Path(f.Name), err)
		}
	}
	return d.sync(root, files)
}

// longestName is what Linux (NAME_MAX) and macOS allow, in bytes. What stands before a Secret's name in a dry run's files is not
// known where requests are read.
const longestName = 255

// checkName returns an error if no file of that name can be written.
func (d *Dir) checkName(root *os.Root, name string) error {
	if dir := path.Dir(name); dir != "." && !slices.Contains(d.subs, dir) || strings.HasPrefix(path.Base(name), ".") {
		return errors.New("no file of the output directory has this name")
	}
	if n := len(path.Base(name)); n > longestName {
		return fmt.Errorf("the name of the file has %d bytes, and file systems allow %d; use shorter names", n, longestName)
	}
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return errors.New("it is a symbolic link; remove it, or write to where it points")
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file; move it away")
	}
	return nil
}

// sync makes the new names durable.
func (d *Dir) sync(root *os.Root, files []File) error {
	var dirs []string
	for _, f := range files {
		dirs = append(dirs, path.Dir(f.Name))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if err := writer(root).SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}
