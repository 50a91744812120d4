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
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
)

// Callers are the users and groups of the machine that may have tokens signed.
type Callers struct {
	UIDs []uint32
	GIDs []uint32
}

func (c Callers) may(who *unix.Ucred) bool {
	return slices.Contains(c.UIDs, who.Uid) || slices.Contains(c.GIDs, who.Gid)
}

// Listen makes a Unix socket. It makes the directory with mode 0700 if there is none, and returns an error if others than its owner and
// group can reach into it. It returns an error for an abstract socket, which every process of the network namespace can reach, unless
// abstract is true. A socket that a killed process has left is replaced.
func Listen(ctx context.Context, path string, abstract bool) (net.Listener, error) {
	if strings.HasPrefix(path, "@") {
		if !abstract {
			return nil, fmt.Errorf("socket %s: every process of the network namespace can reach an abstract socket; give a path, or set socket.abstract", path)
		}
		return new(net.ListenConfig).Listen(ctx, "unix", path)
	}
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the socket's directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the socket's directory: %w", err)
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
	if err := os.Chmod(path, 0o660); err != nil { //nolint:gosec // the directory and the caller's user decide
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
		return fmt.Errorf("%s is there and is no socket; move it away", path)
	}
	if c, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
		return errors.Join(fmt.Errorf("another process answers on %s; stop it first", path), c.Close())
	}
	return os.Remove(path)
}

// peers lets only callers in, by what the kernel says of the process at the other end. A kube-apiserver speaks no TLS on the socket.
type peers struct {
	callers Callers
	refused prometheus.Counter
}

type peerInfo struct{ credentials.CommonAuthInfo }

func (peerInfo) AuthType() string { return "peer" }

var errCaller = errors.New("this user may have no tokens signed")

// ServerHandshake is part of credentials.TransportCredentials.
func (p peers) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	who, err := peerOf(c)
	if err != nil || !p.callers.may(who) {
		p.refused.Inc()
		return nil, nil, errors.Join(errCaller, err)
	}
	return c, peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

func peerOf(c net.Conn) (who *unix.Ucred, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("it is no Unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return who, errors.Join(err, failed)
}

// ClientHandshake is part of credentials.TransportCredentials.
func (peers) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("a signer calls nobody")
}

// Info is part of credentials.TransportCredentials.
func (peers) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peer"}
}

// Clone is part of credentials.TransportCredentials.
func (p peers) Clone() credentials.TransportCredentials { return p }

// OverrideServerName is part of credentials.TransportCredentials.
func (peers) OverrideServerName(string) error { return nil }
