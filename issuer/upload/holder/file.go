package holder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/keypost/keypost/internal/durable"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/issuer/upload"
)

// file is a JWKS in a directory, for relying parties that some other program hands it to. That program has to be done before the time
// that a gate counts from the upload is over: what is read back is only the file.
func file() Kind {
	return Kind{Name: "file", Title: "a file", Needs: "--files DIR; what hands the file on has to be done within 24h",
		Open: func(_ context.Context, to Target) (upload.Holder, error) {
			switch {
			case to.Files == "":
				return nil, errors.New("say in which directory uploads to files are: --files DIR")
			case to.Place != string(to.Set.Name())+".json": // nothing in a file says whose it is
				return nil, fmt.Errorf("the file of key set %q is file-upload:%s.json, and no other", to.Set.Name(), to.Set.Name())
			}
			return jwksFile{to.Files, to.Place, to.Set.Issuers()[0].String()}, nil
		}}
}

type jwksFile struct{ dir, name, issuer string }

// Upload implements [upload.Holder].
func (f jwksFile) Upload(_ context.Context, jwks []byte) error {
	root, err := os.OpenRoot(f.dir) // no link leads out of it
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	const everybody = 0o644 // it is public
	return durable.Writer{FS: durable.Root{Root: root}, Owner: "keypost-upload", Mode: everybody}.Replace(f.name, jwks)
}

// Read implements [upload.Holder]. A file that is not there yet holds no key.
func (f jwksFile) Read(context.Context) (upload.Held, error) {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return upload.Held{}, err
	}
	defer func() { _ = root.Close() }()
	b, err := regular.ReadIn(root, f.name, answerSize)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return upload.Held{}, err
	}
	return upload.Held{JWKS: bytes.TrimSpace(b), Issuer: f.issuer}, nil
}
