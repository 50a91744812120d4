package listen

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/keypost/keypost/internal/durable"
	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/listen/internal/chain"
)

// The cache is a directory, in the form of autocert.DirCache: the certificate of a host with its key is a file of the host's name.
const (
	accountFile = "acme_account+key" // the key of the account at the CA
	lockFile    = ".lock"
)

// Prepare makes the cache. It must be called before Watch. A cache that cannot be written would lose each certificate: that is an
// error, unless it holds one that can be served. Then an order that fails tells of it.
func (a *ACME) Prepare() error {
	made := a.onDisk(func() error { return os.MkdirAll(a.dir, 0o700) })
	if err := a.onDisk(a.checkCache); err != nil {
		return err
	}
	serves := slices.ContainsFunc(a.hosts, func(h *acmeHost) bool { return h.inUse.Load() != nil })
	if err := cmp.Or(made, a.onDisk(a.prove)); err != nil && !serves {
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
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is not a directory; name one that holds nothing but certificates", dir)
		case info.Mode().Perm()&0o077 != 0:
			return fmt.Errorf("%s holds private keys but is open to other users of this machine; run chmod 700 %s", dir, text.Quoted(dir))
		}
	}
	return nil
}

// read returns an entry of the cache. One on a file system that hangs is given up on: strangers cause reads, by handshakes that ask
// for a challenge, and each that waits keeps a thread.
func (a *ACME) read(name string) ([]byte, error) {
	file := filepath.Join(a.dir, name)
	return hang.Await(context.Background(), &a.hangs, file, func() ([]byte, error) { return regular.Read(file, chain.MaxPEM) })
}

// put replaces an entry of the cache.
func (a *ACME) put(name string, data []byte) error {
	return durable.Writer{Owner: "acme"}.Replace(filepath.Join(a.dir, name), data)
}

func (a *ACME) remove(name string) error { return os.Remove(filepath.Join(a.dir, name)) }

// lead locks the cache for as long as Watch runs, so that of several replicas one orders. Where another one has it, the error is
// unix.EWOULDBLOCK. The kernel frees it when its process ends.
func (a *ACME) lead() error {
	if a.lock != nil {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(a.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(err, f.Close())
	}
	a.lock = f
	return nil
}

// accountKey returns the key of the account, and makes one where there is none. The cache has it before the CA is told of it.
func (a *ACME) accountKey() (crypto.Signer, error) {
	file := filepath.Join(a.dir, accountFile)
	text, err := a.read(accountFile)
	if errors.Is(err, fs.ErrNotExist) {
		return a.newAccountKey()
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of the ACME account in %s: %w", file, err)
	}
	if block, _ := pem.Decode(text); block != nil {
		if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil { //nolint:forbidigo // the account at the CA, and no signer of tokens
			return key, nil
		}
	}
	// Never what it holds.
	return nil, fmt.Errorf("%s does not hold the key of the ACME account; put it back from a copy, or remove the file, and the next order makes a new account", file)
}

func (a *ACME) newAccountKey() (crypto.Signer, error) {
	fresh, err := newKey()
	if err != nil {
		return nil, err
	}
	text, err := encode(tls.Certificate{PrivateKey: fresh})
	if err != nil {
		return nil, err
	}
	return fresh, a.put(accountFile, text)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// encode returns a key and its chain of certificates as the cache has them.
func encode(c tls.Certificate) ([]byte, error) {
	key, ok := c.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("not an ECDSA key")
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	for _, c := range c.Certificate {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c})...)
	}
	return text, nil
}
