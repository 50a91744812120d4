// Package export writes the documents that issuers serve as files, for a static server or a bucket. It promises that no
// key of an earlier export vanishes unless the key set lists it as gone, and that no file is ever removed.
package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/keypost/keypost/internal/durable"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
)

// File is one file of an export.
type File struct {
	Name    string `json:"file"`    // below the directory, with slashes: HOST/PATH/keys.json
	Written bool   `json:"written"` // false if it had that content already
}

// ForeignError means that a file is in the way that this package cannot have written.
type ForeignError struct {
	File string
	Why  string
}

func (e *ForeignError) Error() string { return e.File + " " + e.Why }

// DroppedError means that an earlier export has a key that the key set neither has nor lists as gone.
type DroppedError struct {
	File string
	Key  keystore.KeyID
}

func (e *DroppedError) Error() string {
	return fmt.Sprintf("%s has key %s, which the key set neither has nor lists as gone", e.File, e.Key)
}

// Write writes the documents of every issuer URL of s below root: HOST/PATH/.well-known/openid-configuration, keys.json
// and openid/v1/jwks, the bytes that a server answers. It checks every file that is there before it writes the first one.
// The error may be a [*ForeignError] or a [*DroppedError]; after an error of writing, the files returned are done.
func Write(root *os.Root, s keystore.KeySet) ([]File, error) {
	documents, err := render(s)
	if err != nil {
		return nil, err
	}
	for _, d := range documents {
		if d.jwks {
			if err := checkDropped(root, d.name, s); err != nil {
				return nil, err
			}
		}
	}
	var files []File
	for _, d := range documents {
		written, err := replace(root, d.name, d.content)
		if err != nil {
			return files, err
		}
		files = append(files, File{d.name, written})
	}
	return files, nil
}

type document struct {
	name    string
	content []byte
	jwks    bool
}

// render puts each discovery document after the keys, so that no alg is announced before its key.
func render(s keystore.KeySet) ([]document, error) {
	jwks, err := issuer.RenderJWKS(s)
	if err != nil {
		return nil, err
	}
	var all []document
	for _, u := range s.Issuers() {
		discovery, err := issuer.RenderDiscovery(s, u)
		if err != nil {
			return nil, err
		}
		base := u.Host() + u.Path()
		all = append(all,
			document{base + issuer.JWKSPath, jwks, true},
			document{base + issuer.JWKSAliasPath, jwks, true},
			document{base + issuer.DiscoveryPath, discovery, false})
	}
	return all, nil
}

// checkDropped refuses to take a key out of an earlier export that the key set neither has nor lists as gone.
func checkDropped(root *os.Root, file string, s keystore.KeySet) error {
	data, err := regular.ReadIn(root, file, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, regular.ErrUnfit):
		return &ForeignError{file, "is not a file that keypost has written"}
	case err != nil:
		return err
	}
	var set struct {
		Keys *[]struct {
			Kid keystore.KeyID `json:"kid"`
		} `json:"keys"`
	}
	if json.Unmarshal(data, &set) != nil || set.Keys == nil {
		return &ForeignError{file, "exists and is not a JWKS, so that it is unknown which keys it has"}
	}
	for _, k := range *set.Keys {
		_, has := s.Key(k.Kid)
		gone := slices.ContainsFunc(s.Gone(), func(g keystore.Gone) bool { return g.ID == k.Kid })
		if !has && !gone {
			return &DroppedError{file, k.Kid}
		}
	}
	return nil
}

// maxFile bounds what is read of a file of an earlier export, in bytes.
const maxFile = 64 << 20

// replace writes a file whole and durably, unless it has that content already.
func replace(root *os.Root, name string, content []byte) (written bool, err error) {
	if old, err := regular.ReadIn(root, name, maxFile); err == nil && bytes.Equal(old, content) {
		return false, nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return false, err
	}
	w := durable.Writer{FS: durable.Root{Root: root}, Owner: "keypost-export", Mode: 0o644}
	if err := w.Replace(name, content); err != nil {
		return false, fmt.Errorf("write %s: %w", name, err)
	}
	return true, nil
}
