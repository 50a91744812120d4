package signer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// Callers are the users and primary groups of the machine that may have tokens signed.
type Callers struct {
	UIDs []uint32
	GIDs []uint32
}

func (c Callers) may(who *unix.Ucred) bool {
	return slices.Contains(c.UIDs, who.Uid) || slices.Contains(c.GIDs, who.Gid)
}

// Listen makes a Unix socket, and its directory with mode 0700 if there is none. It returns an error if the directory belongs to another
// user, or if others than its owner and group can reach into it. A socket that a killed process has left is replaced. There is no abstract
// socket: while this process restarts, any user of the machine could make it, and the kube-apiserver would trust their keys.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the socket's directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the socket's directory: %w", err)
	}
	if !info.IsDir() { // anyone who may replace a link decides who answers
		return nil, fmt.Errorf("the socket's directory %s is a link; give the directory itself", dir)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() { // anyone who owns it may put a socket of their own there
		return nil, fmt.Errorf("the socket's directory %s belongs to user %d; it must belong to the user that runs keypost-signer", dir, owner)
	}
	if info.Mode().Perm()&0o027 != 0 {
		return nil, fmt.Errorf("the socket's directory %s has mode %v; run chmod 0700 (or 0750 for a kube-apiserver of another user)", dir, info.Mode().Perm())
	}
	if err := removeLeft(ctx, path); err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // by then another process may serve there
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // the directory and the caller's user decide
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// removeLeft removes a socket on which nobody answers.
func removeLeft(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and is not a socket; move it away", path)
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) { // such as one that is too busy to answer
		return fmt.Errorf("another process answers on %s; stop it first", path)
	}
	return os.Remove(path)
}

// peers is a listener that lets only callers in, by what the kernel says of the process at the other end. A kube-apiserver speaks no TLS
// on the socket.
type peers struct {
	net.Listener
	callers Callers
	refused prometheus.Counter
}

// Accept implements net.Listener.
func (p peers) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if who, err := peerOf(c); err == nil && p.callers.may(who) {
			return c, nil
		}
		p.refused.Inc()
		_ = c.Close() // nobody is told anything
	}
}

func peerOf(c net.Conn) (who *unix.Ucred, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("it is not a Unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return who, errors.Join(err, failed)
}
