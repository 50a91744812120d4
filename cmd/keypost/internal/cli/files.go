package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// ReadFile reads a file, or stdin for "-", of at most limit bytes.
func (f *Factory) ReadFile(file string, limit int64) ([]byte, error) {
	if file == "-" {
		return bounded(f.In, file, limit)
	}
	return ReadPath(file, limit)
}

// ReadPath reads a file of at most limit bytes that the user names. It may be a pipe: a shell makes one for <(command).
func ReadPath(file string, limit int64) ([]byte, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, Reason(err))
	}
	defer func() { _ = opened.Close() }()
	return bounded(opened, file, limit)
}

func bounded(r io.Reader, file string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, Reason(err))
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: it is larger than %d bytes", file, limit)
	}
	return data, nil
}

// endingWith is an input whose reader does not wait for somebody who types nothing more once ctx is done.
type endingWith struct {
	ctx context.Context //nolint:containedctx // io.Reader has no place for it, and both live as long as the run
	r   io.Reader
}

// Read implements io.Reader.
func (e endingWith) Read(p []byte) (int, error) {
	var n int
	var err error
	buffer, done := make([]byte, len(p)), make(chan struct{})
	go func() {
		defer close(done)
		n, err = e.r.Read(buffer)
	}()
	select {
	case <-e.ctx.Done():
		return 0, e.ctx.Err()
	case <-done:
		return copy(p, buffer[:n]), err
	}
}

// Reason returns the system's own error, without the name of its call and of the file, which the message has.
func Reason(err error) error {
	if e, is := errors.AsType[*fs.PathError](err); is {
		return e.Err
	}
	return err
}

// MakeDir makes a directory unless it is there; what begins the message of an error.
func MakeDir(what, dir string, mode fs.FileMode) error {
	err := os.Mkdir(dir, mode)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return WithHint(fmt.Errorf("%s: there is no directory to make it in", what), "mkdir -p %s", Quoted(filepath.Dir(filepath.Clean(dir))))
	case err != nil && !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s: %w", what, Reason(err))
	}
	return nil
}

// maxRoots bounds a file of CA certificates, in bytes: a machine's own has about 250 KB.
const maxRoots = 8 << 20

// ReadRoots reads the CA certificates of --ca-file; nil, the system's, without one.
func ReadRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := ReadPath(file, maxRoots)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("read %s: it holds no certificate in PEM", file)
	}
	return roots, nil
}

// CheckConnect returns an error of usage unless the value of --connect is HOST:PORT or empty.
func CheckConnect(connect string) error {
	if _, _, err := net.SplitHostPort(connect); connect != "" && (err != nil || strings.HasPrefix(connect, ":")) {
		return Usagef("--connect %q: it is not HOST:PORT", connect)
	}
	return nil
}
