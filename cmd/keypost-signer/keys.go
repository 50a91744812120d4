package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/keypost/keypost/issuer/signer"
	"github.com/keypost/keypost/issuer/signer/awskms"
	"github.com/keypost/keypost/issuer/signer/keyfiles"
	"github.com/keypost/keypost/issuer/signer/pkcs11"
)

// held is where private keys are held.
type held struct {
	files *keyfiles.Dir
	kms   *awskms.Keys
	token *pkcs11.Keys
}

// heldKey is a private key and where it is: a file's name, an ARN, or a token.
type heldKey struct {
	signer.Key
	where string
}

func openKeys(ctx context.Context, c config) (*held, error) {
	h := &held{}
	if c.Keys != "" {
		h.files = keyfiles.Open(c.Keys)
	}
	if len(c.KMS) > 0 {
		var err error
		if h.kms, err = awskms.Open(ctx, os.Getenv, c.KMS); err != nil {
			return nil, err
		}
	}
	if t := c.PKCS11; t != nil {
		var err error
		if h.token, err = pkcs11.Open(pkcs11.Token{Module: t.Module, Label: t.Token, PIN: t.PIN}); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// list returns all keys. The error says which cannot be used.
func (h *held) list(ctx context.Context) (all []heldKey, err error) {
	if h.files != nil {
		keys, failed := h.files.Keys(ctx)
		err = errors.Join(err, failed)
		for _, k := range keys {
			all = append(all, heldKey{k, k.File})
		}
	}
	if h.kms != nil {
		keys, failed := h.kms.Keys(ctx)
		err = errors.Join(err, failed)
		for _, k := range keys {
			all = append(all, heldKey{k, k.ARN()})
		}
	}
	if h.token != nil {
		keys, failed := h.token.Keys(ctx)
		err = errors.Join(err, failed)
		for _, k := range keys {
			all = append(all, heldKey{k, k.Where()})
		}
	}
	return all, err
}

func (h *held) print(ctx context.Context, stdout io.Writer) error {
	keys, err := h.list(ctx)
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KID\tALG\tWHERE")
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\t%s\n", k.Public().ID(), k.Public().Alg(), k.where)
	}
	return errors.Join(w.Flush(), err)
}
