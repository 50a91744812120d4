package install

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/provision/ccoctl"
)

// PublicKey is the verification key of a cluster whose private key is kept elsewhere.
type PublicKey struct {
	File string // where it was read; for messages
	Key  keystore.VerificationKey
}

// CreateKeyPair generates, in o.Dir, the key pair that a cluster signs its tokens with, and puts the private half where
// the installer takes it from. Key files that exist are used and never overwritten.
func CreateKeyPair(o Options) error {
	r := NewRun(&o)
	if err := ccoctl.CheckDir(r.Dir); err != nil {
		return err
	}
	k, err := findKeyPair(o.Dir)
	if err != nil {
		return err
	}
	if err := r.completeKeyPair(&k); err != nil {
		return err
	}
	return r.installSigningKey(k)
}

// keyPair is the cluster's key: a pair of files, or only a public key.
type keyPair struct {
	private, public string // paths; private is empty when the cluster's private key is elsewhere
	signer          signingkey.Private
	key             keystore.VerificationKey // zero until the pair is generated
	complete        bool                     // both files are there
}

// missing reports whether the pair has to be generated.
func (k keyPair) missing() bool { return k.key.ID() == "" }

// path returns the path of a file of the output directory, relative if the directory's is.
func path(dir, name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }

// findKeyPair looks for the pair of an earlier run.
func findKeyPair(dir string) (keyPair, error) {
	k := keyPair{private: path(dir, ccoctl.PrivateKeyName), public: path(dir, ccoctl.PublicKeyName)}
	public, publicErr := regular.Read(k.public, pubkey.MaxSize)
	if publicErr != nil && !errors.Is(publicErr, fs.ErrNotExist) {
		return k, publicErr
	}
	signer, err := signingkey.Load(k.private)
	switch {
	case errors.Is(err, fs.ErrNotExist) && publicErr == nil:
		return k, &Error{Problem: HalfKeyPair, File: k.public, Err: fmt.Errorf("%s is there without its private half %s", k.public, k.private)}
	case errors.Is(err, fs.ErrNotExist):
		return k, checkInstalled(dir, k)
	case err != nil:
		return k, err
	}
	k.signer, k.key, k.complete = signer, signer.Public(), publicErr == nil
	if k.complete {
		keys, err := pubkey.Parse(k.public, public)
		if err != nil {
			return k, err
		}
		if len(keys) != 1 || !keys[0].Equal(k.key) {
			return k, Refuse(KeyPairMismatch, "%s and %s are not the two halves of one key", k.private, k.public)
		}
	}
	return k, checkInstalled(dir, k)
}

// checkInstalled refuses another cluster's signing key in the installer's place now, before anything is made.
func checkInstalled(dir string, k keyPair) error {
	installed := path(dir, ccoctl.SigningKeyName)
	signer, err := signingkey.Load(installed)
	if err != nil || !k.missing() && signer.Public().Equal(k.key) {
		return nil // another problem with the file shows when it is written
	}
	return Refuse(OtherSigningKey, "%s holds another signing key than %s", installed, k.private)
}

// completeKeyPair writes what is missing of the pair.
func (r *Run) completeKeyPair(k *keyPair) error {
	if k.private == "" {
		r.Line("Reading public key")
		return nil
	}
	if err := ccoctl.MakeDir(r.Dir); err != nil {
		return err
	}
	if k.missing() {
		return r.generateKeyPair(k)
	}
	r.Line("Using existing RSA keypair found at %s", k.private)
	if mode, open := signingkey.OpenToOthers(k.private); open {
		r.Warn("the private key %s can be read by other users of this machine (mode %04o); chmod 600 %s, and consider whether it was", k.private,
			mode, text.Quoted(k.private))
	}
	if k.complete {
		return nil
	}
	r.Line("Writing public key to %s", k.public) // an earlier run was stopped before it
	k.complete = true
	return k.signer.WritePublic(k.public)
}

func (r *Run) generateKeyPair(k *keyPair) error {
	r.Line("Generating RSA keypair")
	signer, err := signingkey.Generate(signingkey.RSA4096)
	if err != nil {
		return err
	}
	r.Line("Writing private key to %s", k.private)
	r.Line("Writing public key to %s", k.public)
	if err := signer.Write(signingkey.Paths{Private: k.private, Public: k.public}); err != nil {
		return err
	}
	k.signer, k.key, k.complete = signer, signer.Public(), true
	return nil
}

// installSigningKey puts the private half where the installer takes it from. A key that is kept elsewhere stays there.
func (r *Run) installSigningKey(k keyPair) error {
	if err := ccoctl.MakeDir(r.Dir, ccoctl.TLSDir); err != nil || k.private == "" {
		return err
	}
	r.Line("Copying signing key for use by installer")
	return k.signer.Install(path(r.Dir, ccoctl.SigningKeyName))
}

// OnePublicKey returns the one key of a file.
func OnePublicKey(file string, keys []keystore.VerificationKey) (*PublicKey, error) {
	if len(keys) != 1 {
		return nil, fmt.Errorf("read public keys from %s: it holds %d keys; a new cluster signs with one", file, len(keys))
	}
	return &PublicKey{File: file, Key: keys[0]}, nil
}
