package listen

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/crypto/acme/autocert"
	"golang.org/x/sys/unix"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/internal/text"
)

// Prepare makes the cache. It must be called before Watch. A cache that cannot be written would lose each certificate: that is an
// error, unless it holds one that can be served. Then Watch tells of it, and orders once it can be written.
func (a *ACME) Prepare() error {
	made := a.onDisk(func() error { return os.MkdirAll(a.dir, 0o700) })
	if err := a.onDisk(a.checkCache); err != nil {
		return err
	}
	locked := a.onDisk(func() error {
		f, err := a.openLock()
		if err != nil {
			return err
		}
		return f.Close()
	})
	if err := cmp.Or(made, locked, a.Writable()); err != nil && !a.Serves() {
		return fmt.Errorf("the certificate cache cannot be written, and holds no certificate to serve meanwhile: let the user that runs keypostd write it: %w", err)
	}
	return nil
}

func (a *ACME) onDisk(call func() error) error {
	return hang.Do(context.Background(), &a.hangs, a.dir, call)
}

// checkCache refuses private keys that other users of this machine can read.
func (a *ACME) checkCache() error {
	for _, dir := range []string{filepath.Dir(a.dir), a.dir} {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return explained(err)
		case !info.IsDir():
			return fmt.Errorf("%s is not a directory; name one that holds nothing but certificates", dir)
		case info.Mode().Perm()&0o077 != 0:
			return fmt.Errorf("%s holds private keys but is open to other users of this machine; run chmod 700 %s", dir, text.Quoted(dir))
		}
	}
	return nil
}

// accountFile is where autocert keeps the key of the account at the CA.
const accountFile = "acme_account+key"

// CheckAccount returns why the key of the account in the cache cannot be read, so that nothing could be ordered, or nil. None is no
// error: the first order makes one.
func (a *ACME) CheckAccount() error {
	file := filepath.Join(a.dir, accountFile)
	text, err := a.cache.Get(context.Background(), accountFile)
	switch {
	case errors.Is(err, autocert.ErrCacheMiss):
		return nil
	case err != nil:
		return fmt.Errorf("read the key of the ACME account in %s: %w", file, explained(err))
	}
	if block, _ := pem.Decode(text); block != nil {
		_, ec := x509.ParseECPrivateKey(block.Bytes)       //nolint:forbidigo // the account at the CA, and no signer of tokens
		_, pkcs1 := x509.ParsePKCS1PrivateKey(block.Bytes) //nolint:forbidigo // the account at the CA, and no signer of tokens
		_, pkcs8 := x509.ParsePKCS8PrivateKey(block.Bytes) //nolint:forbidigo // the account at the CA, and no signer of tokens
		if ec == nil || pkcs1 == nil || pkcs8 == nil {
			return nil
		}
	}
	return fmt.Errorf("%s does not hold the key of the ACME account; put it back from a copy, or remove the file, and the next order makes a new account", file) // never what it holds
}

// explained returns an error of the cache's file system with what to do about it.
func explained(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: run keypostd as the user that the certificate cache belongs to, or give it to the one that runs keypostd (chown -R)", err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: make room on that file system", err)
	}
	return err
}

// Expired returns the certificates in use that have expired by now, each with its host and when.
func (a *ACME) Expired(now time.Time) (all []string) {
	for i, host := range a.hosts {
		if c := a.inUse[i].Load(); c != nil && now.After(c.NotAfter) {
			all = append(all, fmt.Sprintf("%s (at %s)", host, c.NotAfter.UTC().Format(time.RFC3339)))
		}
	}
	return all
}

// Serves reports whether there is a certificate to serve for some host.
func (a *ACME) Serves() bool {
	for i := range a.inUse {
		if a.inUse[i].Load() != nil {
			return true
		}
	}
	return false
}

// Writable returns why this process could not write to the cache, so that nothing could be ordered, or nil. It writes nothing. A cache
// that is not there yet is one that can be made.
func (a *ACME) Writable() error { return a.onDisk(a.writable) }

func (a *ACME) writable() error {
	dir := a.dir
	err := unix.Access(dir, unix.W_OK|unix.X_OK)
	for errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = unix.Access(dir, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return fmt.Errorf("write to %s: %w", dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(a.dir, lockFile), os.O_RDWR, 0) // which may be another user's
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return lock.Close()
}

// watchCache notices that the cache cannot be written, as after a mount has become read-only, long before a certificate is due.
func (a *ACME) watchCache(ctx context.Context, log *zap.Logger) {
	for {
		err := a.Writable()
		switch was := a.stuck.Swap(err != nil); {
		case err != nil && !was:
			log.Warn("certificate cache cannot be written, nothing is ordered until it can", zap.String("cache", a.dir), zap.Error(err))
		case err == nil && was:
			log.Info("certificate cache can be written again", zap.String("cache", a.dir))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}
