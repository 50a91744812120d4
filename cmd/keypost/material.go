package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/signingkey"
)

// keyFlags say where verification keys come from.
type keyFlags struct {
	files               []string
	jwks                string
	kubeconfig, context string
	caFile              string
}

func (f *keyFlags) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.files, "public-key-file", nil, "PEM or JWK file with verification keys, - for stdin (repeatable)")
	fs.StringVar(&f.jwks, "jwks", "", "JWKS file, or https URL of a JWKS or of an issuer: its keys with their key IDs")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster whose own JWKS is read")
	fs.StringVar(&f.context, "context", "", "context in the kubeconfig (default the current one)")
	fs.StringVar(&f.caFile, "ca-file", "", "PEM file with the CA of an https URL, instead of the system's")
}

func (f *keyFlags) check() error {
	given := 0
	for _, is := range []bool{len(f.files) > 0, f.jwks != "", f.kubeconfig != ""} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return usagef("give the keys in one of three ways: --public-key-file FILE, --jwks FILE|URL, or --kubeconfig FILE")
	case f.context != "" && f.kubeconfig == "":
		return usagef("--context needs --kubeconfig")
	}
	return nil
}

// material is verification keys and what is known of where they come from.
type material struct {
	keys    []keystore.VerificationKey
	issuer  string // what the source calls itself: a cluster, or an issuer whose discovery document was followed
	cluster bool
	listed  bool // the source lists every key it knows, also old ones: a cluster, a JWKS
}

func (a *app) readKeys(ctx context.Context, f keyFlags) (material, error) {
	switch {
	case f.kubeconfig != "":
		issuer, keys, err := cluster.PublicKeys(ctx, f.kubeconfig, f.context)
		return material{keys: keys, issuer: issuer, cluster: true, listed: true}, err
	case strings.Contains(f.jwks, "://"):
		published, err := fetchJWKS(ctx, f.jwks, f.caFile)
		return material{keys: published.Keys, issuer: published.Issuer, listed: true}, err
	case f.jwks != "":
		keys, err := a.readKeyFile(f.jwks)
		return material{keys: keys, listed: true}, err
	}
	return a.readKeyFiles(f.files)
}

func fetchJWKS(ctx context.Context, url, caFile string) (verify.Published, error) {
	roots, err := readRoots(caFile)
	if err != nil {
		return verify.Published{}, err
	}
	return verify.NewClient(roots, nil).ThroughProxy().JWKS(ctx, url)
}

func (a *app) readKeyFiles(files []string) (material, error) {
	var m material
	seen := map[keystore.KeyID]keystore.VerificationKey{}
	for _, file := range files {
		keys, err := a.readKeyFile(file)
		if err != nil {
			return m, err
		}
		for _, k := range keys {
			was, twice := seen[k.ID()]
			if twice && !was.Equal(k) {
				return m, fmt.Errorf("read public keys from %s: its key %s is another one in an earlier file", file, k.ID())
			}
			if !twice {
				seen[k.ID()], m.keys = k, append(m.keys, k)
			}
		}
	}
	return m, nil
}

// readKeyFile reads verification keys; of a private key file only the public half, and says so.
func (a *app) readKeyFile(file string) ([]keystore.VerificationKey, error) {
	data, err := a.readFile(file, pubkey.MaxSize)
	if err != nil {
		return nil, err
	}
	keys, private, err := signingkey.PublicHalf(file, data)
	if errors.Is(err, keystore.ErrPrivateKey) && bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return nil, withHint(err, "give the public JWK, without the private members")
	}
	if err != nil {
		return nil, err
	}
	if since, expired := pubkey.ExpiredSince(data, time.Now()); expired {
		a.warn("%s holds a certificate that expired at %s; its key is used all the same, make sure that it is the one that the cluster signs with", file, stamp(since))
	}
	if private {
		a.notice("%s holds a private key; only its public half is used", file)
	}
	return keys, nil
}

// readFile reads a file, or stdin for "-", of at most limit bytes.
func (a *app) readFile(file string, limit int64) ([]byte, error) {
	r := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, reason(err))
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, reason(err))
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: it is larger than %d bytes", file, limit)
	}
	return data, nil
}

// reason is what the system says is wrong, without the name of its call and of the file, which the message has.
func reason(err error) error {
	if e, is := errors.AsType[*fs.PathError](err); is {
		return e.Err
	}
	return err
}

// readRoots reads the CA certificates of --ca-file; nil, the system's, without one.
func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("read %s: it holds no certificate in PEM", file)
	}
	return roots, nil
}
