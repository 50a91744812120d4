// Package keysource reads verification keys from where an operator has them: PEM and JWK files, a JWKS behind a URL, a
// cluster.
package keysource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/provision/cluster"
)

// Flags name where verification keys come from.
type Flags struct {
	files               []string
	JWKS                string // a JWKS file, or an https URL of a JWKS or an issuer
	kubeconfig, context string

	Certificates bool // take the keys of certificates in files too
}

// Register defines the flags.
func (f *Flags) Register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.files, "public-key-file", nil, "PEM or JWK `FILE` with verification keys, - for stdin (repeatable)")
	fs.StringVar(&f.JWKS, "jwks", "", "JWKS `FILE`, or https URL of a JWKS or of an issuer: its keys with their key IDs")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster whose own JWKS is read")
	fs.StringVar(&f.context, "context", "", "context in the kubeconfig (default the current one)")
}

// Given reports whether a flag names a source.
func (f *Flags) Given() bool { return len(f.files) > 0 || f.JWKS != "" || f.kubeconfig != "" }

// Check returns an error of usage unless the flags name exactly one source.
func (f *Flags) Check() error {
	given := 0
	for _, is := range []bool{len(f.files) > 0, f.JWKS != "", f.kubeconfig != ""} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return cli.Usagef("give the keys in one of three ways: --public-key-file FILE, --jwks FILE|URL, or --kubeconfig FILE")
	case f.context != "" && f.kubeconfig == "":
		return cli.Usagef("--context needs --kubeconfig")
	}
	return nil
}

// Material is verification keys and what is known of where they come from.
type Material struct {
	Keys    []keystore.VerificationKey
	Issuer  string // what the source calls itself: a cluster, or an issuer whose discovery document was followed
	Cluster bool
	Listed  bool // the source lists every key it knows, also old ones: a cluster, a JWKS
}

// Read reads the keys that the flags name.
func (f *Flags) Read(ctx context.Context, factory *cli.Factory) (Material, error) {
	switch {
	case f.kubeconfig != "":
		issuer, keys, left, err := cluster.PublicKeys(ctx, f.kubeconfig, f.context)
		warnOf(factory, left)
		return Material{Keys: keys, Issuer: issuer, Cluster: true, Listed: true}, err
	case strings.Contains(f.JWKS, "://"):
		published, err := FetchJWKS(ctx, f.JWKS)
		warnOf(factory, published.Left)
		return Material{Keys: published.Keys, Issuer: published.Issuer, Listed: true}, err
	case f.JWKS != "":
		keys, err := readFile(factory, f.JWKS, f.Certificates)
		return Material{Keys: keys, Listed: true}, err
	}
	return f.readFiles(factory)
}

// Cluster returns which cluster the keys come from; empty if they come from none, or if its namespace kube-system may not be read, which
// is said.
func (f *Flags) Cluster(ctx context.Context, factory *cli.Factory) (keystore.ClusterID, error) {
	if f.kubeconfig == "" {
		return "", nil
	}
	id, err := cluster.ID(ctx, f.kubeconfig, f.context)
	if err != nil && ctx.Err() == nil {
		factory.Warn("which cluster it is was not recorded, so that keypost enroll takes no key of it: %v", err)
		return "", nil
	}
	return id, err
}

// warnOf names the keys that no key set can have, and counts those beyond a few.
func warnOf(factory *cli.Factory, left []pubkey.Left) {
	const named = 3
	for _, l := range left[:min(len(left), named)] {
		factory.Warn("%s", l)
	}
	if more := len(left) - named; more > 0 {
		factory.Warn("%s left out, too", text.Count(more, "more key of such a type was", "more keys of such types were"))
	}
}

// FetchJWKS reads the JWKS that a URL names, of itself or of an issuer.
func FetchJWKS(ctx context.Context, url string) (fetch.Published, error) {
	return fetch.Network{}.Client().JWKS(ctx, url)
}

func (f *Flags) readFiles(factory *cli.Factory) (Material, error) {
	var m Material
	for _, file := range f.files {
		keys, err := readFile(factory, file, f.Certificates)
		if err != nil {
			return m, err
		}
		for _, k := range keys { // two files may have one key; two keys with one ID are refused where they are added
			if !slices.ContainsFunc(m.Keys, k.Equal) {
				m.Keys = append(m.Keys, k)
			}
		}
	}
	return m, nil
}

// ReadFile reads verification keys from a file. Of a private key it takes the public half, and prints that. It refuses a
// certificate, which is more often that of a web server or of a CA.
func ReadFile(f *cli.Factory, file string) ([]keystore.VerificationKey, error) {
	return readFile(f, file, false)
}

// rightFile names the file that holds what a cluster signs with.
const rightFile = "give the public key of the cluster's service account signing key, usually sa.pub"

func readFile(f *cli.Factory, file string, certificates bool) ([]keystore.VerificationKey, error) {
	data, err := f.ReadFile(file, pubkey.MaxSize)
	if err != nil {
		return nil, cli.WithHint(err, rightFile)
	}
	keys, left, private, err := signingkey.PublicHalf(file, data)
	if errors.Is(err, keystore.ErrPrivateKey) && bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return nil, cli.WithHint(err, "give the public JWK, without the private members")
	}
	if err != nil {
		return nil, cli.WithHint(err, rightFile)
	}
	if !certificates && pubkey.HasCertificate(data) {
		return nil, cli.WithHint(fmt.Errorf("read public keys from %s: it holds a certificate, and the owner of its key could sign tokens for every service account", file),
			"%s; if the cluster signs with the key of this certificate: openssl x509 -in %s -noout -pubkey", rightFile, text.Quoted(file))
	}
	warnOf(f, left)
	if private {
		f.Notice("%s holds a private key; only its public half is used", file)
	}
	return keys, nil
}
