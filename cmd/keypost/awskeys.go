package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/signingkey"
)

func (a *app) awsCreateKeyPair() *cobra.Command {
	f := &awsFlags{}
	cmd := &cobra.Command{
		Use:   "create-key-pair",
		Short: "Make the key pair that a cluster signs its tokens with",
		Long: "Make the key pair that a cluster signs its service account tokens with, and put the private half where the\n" +
			"installer takes it from. Key files that are there already are used and never overwritten.",
		Args: exactly(0),
	}
	f.files(cmd.Flags())
	cmd.RunE = a.awsDo(f, func(_ context.Context, r *awsRun) error {
		keys, err := f.findKeyPair()
		if err != nil {
			return err
		}
		if err := r.makeKeyPair(&keys); err != nil {
			return err
		}
		return r.copySigningKey(keys)
	})
	return cmd
}

// keyPair is the cluster's key: a pair of files, or only a file with the public half.
type keyPair struct {
	private, public string // files; private is empty when the cluster's private key is somewhere else
	signer          signingkey.Private
	key             keystore.VerificationKey
	complete        bool // both files are there
}

// missing tells that the pair has to be generated.
func (k keyPair) missing() bool { return k.key.ID() == "" }

// findKeys looks for the key that the flags mean.
func (r *awsRun) findKeys() (keyPair, error) {
	if r.f.publicKeyFile == "" {
		return r.f.findKeyPair()
	}
	keys, err := r.readKeyFile(r.f.publicKeyFile)
	if err != nil {
		return keyPair{}, err
	}
	if len(keys) != 1 {
		return keyPair{}, fmt.Errorf("read public keys from %s: it holds %d keys; a new cluster signs with one", r.f.publicKeyFile, len(keys))
	}
	return keyPair{public: r.f.publicKeyFile, key: keys[0], complete: true}, nil
}

// findKeyPair looks for a pair of an earlier run. A public key without its private half is an imported one, which a
// new pair must not replace: the cluster would go on signing with the old one.
func (f *awsFlags) findKeyPair() (keyPair, error) {
	k := keyPair{private: f.path(ccoctl.PrivateKeyName), public: f.path(ccoctl.PublicKeyName)}
	public, publicErr := os.ReadFile(k.public)
	if publicErr != nil && !errors.Is(publicErr, fs.ErrNotExist) {
		return k, publicErr
	}
	signer, err := signingkey.Load(k.private)
	switch {
	case errors.Is(err, fs.ErrNotExist) && publicErr == nil:
		return k, withHint(fmt.Errorf("%s is there without its private half %s", k.public, k.private),
			"if the cluster has the private key, say --public-key-file %s; if not, move the file away", k.public)
	case errors.Is(err, fs.ErrNotExist):
		return k, f.checkInstalled(k)
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
			return k, withHint(fmt.Errorf("%s and %s are not the two halves of one key", k.private, k.public), "move away the one that is wrong")
		}
	}
	return k, f.checkInstalled(k)
}

// checkInstalled refuses another cluster's signing key in the installer's place now, and not when all else is done.
func (f *awsFlags) checkInstalled(k keyPair) error {
	path := f.path(ccoctl.SigningKeyName)
	there, err := signingkey.Load(path)
	if err != nil || !k.missing() && there.Public().Equal(k.key) {
		return nil // what else may be wrong with the file is found when it is written
	}
	return withHint(fmt.Errorf("%s holds another signing key than %s", path, k.private), "move it away, or choose another --output-dir")
}

// makeKeyPair writes what is missing of the pair.
func (r *awsRun) makeKeyPair(k *keyPair) error {
	if k.private == "" {
		r.journal.printf("%s", ccoctl.ReadingPublicKey)
		return nil
	}
	if _, err := ccoctl.OpenDir(r.f.outputDir); err != nil {
		return err
	}
	if k.missing() {
		return r.generateKeyPair(k)
	}
	r.journal.printf("%s", ccoctl.KeyPairFound(k.private))
	if mode, open := signingkey.OpenToOthers(k.private); open {
		r.warn("the private key %s can be read by other users of this machine (mode %04o); chmod 600 %s, and consider whether it was", k.private,
			mode, k.private)
	}
	if k.complete {
		return nil
	}
	r.journal.printf("%s", ccoctl.WritingPublicKey(k.public)) // an earlier run was stopped before it
	k.complete = true
	return k.signer.WritePublic(k.public)
}

func (r *awsRun) generateKeyPair(k *keyPair) error {
	r.journal.printf("%s", ccoctl.GeneratingKeyPair)
	signer, err := signingkey.Generate(signingkey.RSA4096)
	if err != nil {
		return err
	}
	r.journal.printf("%s", ccoctl.WritingPrivateKey(k.private))
	r.journal.printf("%s", ccoctl.WritingPublicKey(k.public))
	if err := signer.Write(signingkey.Paths{Private: k.private, Public: k.public}); err != nil {
		return err
	}
	k.signer, k.key, k.complete = signer, signer.Public(), true
	return nil
}

// copySigningKey puts the private half where the installer looks for it. A key that is elsewhere is left there.
func (r *awsRun) copySigningKey(k keyPair) error {
	d, err := ccoctl.OpenDir(r.f.outputDir, ccoctl.TLSDir)
	if err != nil || k.private == "" {
		return err
	}
	r.journal.printf("%s", ccoctl.InstallingKey)
	return k.signer.Install(d.Path(ccoctl.SigningKeyName))
}
