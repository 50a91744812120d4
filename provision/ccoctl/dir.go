package ccoctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/keypost/keypost/internal/durable"
	"github.com/keypost/keypost/internal/text"
)

// CheckDir returns an error if the output directory at dir (empty for the current one) cannot be made, or if another user can replace what
// is in it. It changes nothing: a run that makes things in a cloud first would then have them, and not the files that name them.
func CheckDir(dir string) error {
	dir = filepath.Clean(dir)
	if err := checkDir(dir); err != nil {
		return fmt.Errorf("output directory %s: %w", dir, err)
	}
	return nil
}

func checkDir(dir string) error {
	if _, err := os.Stat(filepath.Dir(dir)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its parent does not exist; make it first (mkdir -p %s)", text.Quoted(filepath.Dir(dir)))
	}
	for _, name := range []string{".", ManifestsDir, TLSDir} {
		stat := os.Lstat // a symbolic link would let its owner choose where manifests and keys go
		if name == "." {
			stat = os.Stat // who runs this has chosen that link
		}
		info, err := stat(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s in it is not a directory; move it away", name)
		}
		if err := checkOwner(filepath.Join(dir, name), info); err != nil {
			return err
		}
	}
	for _, name := range []string{PrivateKeyName, SigningKeyName} {
		for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
			file := filepath.Join(dir, filepath.FromSlash(name))
			info, err := stat(file)
			if err != nil {
				continue // who reads it says so
			}
			if err := checkOwner(file, info); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOwner returns an error if another user has made a file or directory, or may write to it: that user would sign the cluster's tokens, or
// say which roles its components have. It is what ssh asks of its files (ssh_config(5)). In a directory with the sticky bit nobody replaces
// the files of others. Root takes a directory of another user, as in a container it writes to what its user has mounted; and by sudo it
// takes the files of who became root, as git does (https://git-scm.com/docs/git-config, safe.directory).
func checkOwner(file string, info fs.FileInfo) error {
	st, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return nil
	}
	me, mode := os.Geteuid(), info.Mode()
	owners := []string{"0", strconv.Itoa(me)}
	if me == 0 {
		owners = append(owners, os.Getenv("SUDO_UID"))
	}
	mine := slices.Contains(owners, fmt.Sprint(st.Uid)) || me == 0 && mode.IsDir()
	open := mode.Perm()&0o002 != 0 && mode&fs.ModeSymlink == 0 && (!mode.IsDir() || mode&fs.ModeSticky == 0)
	if mine && !open {
		return nil
	}
	return fmt.Errorf("another user of this machine can replace the cluster's keys and manifests there: %s has the owner %d and the mode %04o; "+
		"choose a directory of your own, or, if you know that it is: chown %d %s && chmod go-w %[5]s", file, st.Uid, mode.Perm(), me, text.Quoted(file))
}

// writer writes below root. Temporary files are hidden, so that `cp manifests/*` takes none along.
func writer(root *os.Root) durable.Writer {
	return durable.Writer{FS: durable.Root{Root: root}, Owner: "keypost-output"}
}

// MakeDir creates the directory at dir and the directories subs in it, with mode 0700, unless they exist; the parent of dir must exist. It
// removes the temporary files of an interrupted run, so two runs must not write into one directory at the same time.
func MakeDir(dir string, subs ...string) error {
	if err := CheckDir(dir); err != nil {
		return err
	}
	all := append([]string{"."}, subs...)
	for _, sub := range all {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	root, err := os.OpenRoot(filepath.Clean(dir))
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // read only
	for _, sub := range all {
		if err := writer(root).RemoveTemps(root, sub, 0); err != nil {
			return err
		}
	}
	return nil
}

// Line returns the line of the log that reports that f was written into dir.
func (f File) Line(dir string) string { return f.log + filepath.Join(dir, filepath.FromSlash(f.Name)) }

// Write puts files into an output directory, which it makes with [ManifestsDir], and replaces those of the same names. Each is complete and
// durable under a temporary name before the first is renamed, so that none is ever seen half written, and what can fail fails before
// anything is changed. It does not replace what is not a file.
func Write(dir string, files ...File) error {
	if err := MakeDir(dir, ManifestsDir); err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Clean(dir))
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // the files are closed and synced, each on its own
	var staged []*durable.Staged
	defer func() {
		for _, s := range staged {
			_ = s.Remove() // there only if something failed; else the next run removes it
		}
	}()
	failed := func(f File, err error) error {
		return fmt.Errorf("write %s: %w", filepath.Join(dir, filepath.FromSlash(f.Name)), err)
	}
	dirs := map[string]bool{}
	for _, f := range files {
		info, err := root.Lstat(f.Name)
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New("it is not a regular file; move it away")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed(f, err)
		}
		w := writer(root)
		w.Mode = f.Mode
		s, err := w.Stage(f.Name, f.Data)
		if err != nil {
			return failed(f, err)
		}
		staged, dirs[path.Dir(f.Name)] = append(staged, s), true
	}
	for i, f := range files {
		if err := staged[i].Rename(); err != nil {
			return failed(f, err)
		}
	}
	for dir := range dirs {
		if err := writer(root).SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}
