package ccoctl

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/keypost/keypost/internal/text"
)

// caller is on whose behalf this program runs.
type caller struct {
	root  bool
	alike []uint32 // users whose files are as good as its own
}

// thisCaller returns the user of this process. Anyone who becomes root by sudo keeps a directory of their own: so git has it
// (https://git-scm.com/docs/git-config, safe.directory).
func thisCaller() caller {
	uid := uint32(os.Geteuid()) //nolint:gosec // it is one of the system's
	c := caller{root: uid == 0, alike: []uint32{0, uid}}
	if before, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32); c.root && err == nil {
		c.alike = append(c.alike, uint32(before))
	}
	return c
}

// standing is what others can do with a file or a directory.
type standing int

const (
	safe       standing = iota
	ofOthers            // it is another user's
	openToAll           // everybody may write to it
	openToSome          // a group of users may write to it
)

// stands returns what others can do with a file or directory of this mode. It is what ssh asks of its files (ssh_config(5)): they are the
// caller's or root's, and nobody else may write to them; with the group that has the user's own number, which distributions with a umask of
// 002 give to each user, as Debian's ssh has it. In a directory with the sticky bit nobody replaces the files of others.
func (c caller) stands(mode fs.FileMode, uid, gid uint32) standing {
	theirs := !slices.Contains(c.alike, uid)
	shared := mode.Perm()
	if mode.IsDir() && mode&fs.ModeSticky != 0 {
		shared = 0
	}
	switch {
	case theirs && !c.root:
		return ofOthers
	case shared&0o002 != 0:
		return openToAll
	case theirs:
		return ofOthers
	case shared&0o020 != 0 && gid != uid:
		return openToSome
	}
	return safe
}

// look returns the standing of the file or directory of an output directory, or of what a link there leads to; safe if there is none.
func (d *Dir) look(name string) (s standing, uid uint32, mode fs.FileMode) {
	for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := stat(d.Path(name))
		if err != nil {
			return safe, 0, 0 // another check tells of it
		}
		st, is := info.Sys().(*syscall.Stat_t)
		link := info.Mode()&fs.ModeSymlink != 0
		if !is || link && d.Path(name) == d.path || !link && !info.IsDir() && !info.Mode().IsRegular() {
			continue // who runs this has chosen that link; and what is not a file is told of by who reads it
		}
		mode = info.Mode()
		if link {
			mode = fs.ModeSymlink // whose permissions say nothing
		}
		if s = thisCaller().stands(mode, st.Uid, st.Gid); s != safe {
			return s, st.Uid, mode
		}
	}
	return safe, 0, 0
}

// directories are those into which keys and manifests go.
func directories() []string { return []string{".", ManifestsDir, TLSDir} }

// checkOwners returns an error if another user has put a private key into the directory, or can replace what is in it: that user would
// sign the cluster's tokens, or say which roles its components have. For root a directory of another user is not an error, as for ssh: in a
// container root writes to what its user has mounted, who owns that and everything below it; see [Shared].
func (d *Dir) checkOwners() error {
	for _, name := range directories() {
		what := "it"
		if name != "." {
			what = name + " in it"
		}
		switch s, uid, mode := d.look(name); {
		case s == ofOthers && !thisCaller().root:
			return fmt.Errorf("%s belongs to another user of this machine (uid %d), who can replace the cluster's keys and manifests there; choose a directory of your own", what, uid)
		case s == openToAll:
			return fmt.Errorf("every user of this machine can replace the cluster's keys and manifests in it, since %s has the mode %04o; chmod o-w %s, or choose a directory below it",
				what, mode.Perm(), text.Quoted(d.Path(name)))
		}
	}
	for _, name := range []string{PrivateKeyName, SigningKeyName} {
		switch s, uid, mode := d.look(name); s {
		case ofOthers:
			return fmt.Errorf("%s belongs to another user of this machine (uid %d), who has the private key then and could sign the cluster's tokens; move it away, "+
				"or, if you know that it is your own, run this as that user, or: chown %d %s", name, uid, os.Geteuid(), text.Quoted(d.Path(name)))
		case openToAll:
			return fmt.Errorf("every user of this machine can replace the private key %s, and perhaps has (mode %04o); if you know that it is still your own: chmod 600 %s",
				name, mode.Perm(), text.Quoted(d.Path(name)))
		}
	}
	return nil
}

// Shared returns a sentence for each of the directories of an output directory that [CheckDir] lets pass and in which somebody else can
// replace keys and manifests: a group, or, for root, its owner.
func Shared(path string) []string {
	d := &Dir{path: filepath.Clean(path)}
	var said []string
	for _, name := range directories() {
		switch s, uid, mode := d.look(name); s {
		case ofOthers:
			said = append(said, fmt.Sprintf("the directory %s belongs to another user of this machine (uid %d), who can replace the cluster's keys and manifests there", d.Path(name), uid))
		case openToSome:
			said = append(said, fmt.Sprintf("a group of users can replace the cluster's keys and manifests in the directory %s (mode %04o); if that is not meant: chmod g-w %s",
				d.Path(name), mode.Perm(), text.Quoted(d.Path(name))))
		case safe, openToAll:
		}
	}
	return said
}
