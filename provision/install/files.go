package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/ccoctl"
)

// CheckDir returns an error if no files can be written into the output directory, or, without Adopt, if the directory is another
// cluster's: its manifests would be replaced one by one, and an installer that takes them from there would give that cluster what is this
// one's. The names of the files do not say whose they are: the manifest that has the cluster's issuer URL does. The URL has to be one of
// those given: the last is this cluster's, and those before it are what a move leaves. Without such a manifest the directory is
// nobody's, and with one that cannot be read another cluster's; and an empty URL among those given stands for any. Every verb that writes
// files calls it before it changes anything.
func (r *Run) CheckDir(issuerURLs ...string) error {
	if err := ccoctl.CheckDir(r.Dir); err != nil {
		return err
	}
	if r.Adopt || slices.Contains(issuerURLs, "") {
		return nil
	}
	file := path(r.Dir, ccoctl.AuthenticationFile("").Name)
	had, err := ccoctl.IssuerIn(r.Dir)
	if err != nil {
		return &Error{Problem: OthersDir, File: file, Err: fmt.Errorf("%s cannot be read, so that nothing says whose manifests would be replaced: %w", file, err)}
	}
	if had == "" || slices.Contains(issuerURLs, had) {
		return nil
	}
	return &Error{Problem: OthersDir, File: file, Err: fmt.Errorf("%s has the issuer URL %s, so that the manifests of its cluster would be replaced by those for %s",
		file, text.OneLine(had, 300), issuerURLs[len(issuerURLs)-1])}
}

// WriteFiles writes files into the output directory, all or none, and reports where they are.
func (r *Run) WriteFiles(files ...ccoctl.File) error {
	if err := ccoctl.Write(r.Dir, files...); err != nil {
		return err
	}
	for _, f := range files {
		r.Line("%s", f.Line(r.Dir))
	}
	return nil
}

// Path returns the path of a file of the output directory, relative if the directory's is.
func (r *Run) Path(name string) string { return path(r.Dir, name) }

// writeAuthentication writes the manifest that gives a new cluster its issuer URL.
func (r *Run) writeAuthentication() error {
	if err := r.WriteFiles(ccoctl.AuthenticationFile(r.IssuerURL)); err != nil {
		return err
	}
	r.Line("Issuer URL (serviceAccountIssuer) is %s", r.IssuerURL)
	return nil
}

// Documents are those of an issuer with one key, indented for people.
type Documents struct{ Discovery, JWKS []byte }

// documents returns what keypostd will serve for the key.
func (r *Run) documents(key keystore.VerificationKey) (Documents, error) {
	url, err := keystore.ParseIssuerURL(r.IssuerURL, r.Dev)
	if err != nil {
		return Documents{}, err
	}
	set, err := keystore.New(keystore.Change{At: time.Now()}, keystore.Spec{
		Name: "dry-run", Issuers: []keystore.IssuerURL{url}, Keys: []keystore.VerificationKey{key}, Dev: r.Dev,
	})
	if err != nil {
		return Documents{}, err
	}
	discovery, err := issuer.RenderDiscovery(set, set.Issuers()[0])
	if err != nil {
		return Documents{}, err
	}
	jwks, err := issuer.RenderJWKS(set)
	return Documents{indented(discovery), indented(jwks)}, err
}

// indented returns JSON for people.
func indented(data []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, data, "", "    ") != nil {
		return data
	}
	return b.Bytes()
}
