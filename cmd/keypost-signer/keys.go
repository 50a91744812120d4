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

// held is where private keys are held: each returns its keys, and an error that says which cannot be used.
type held []func(context.Context) ([]heldKey, error)

// heldKey is a private key and where it is: a file's name, an ARN, or a token.
type heldKey struct {
	signer.Key
	where string
}

func openKeys(ctx context.Context, c config) (held, error) {
	var h held
	if c.Keys != "" {
		h = append(h, from(keyfiles.Open(c.Keys).Keys, func(k keyfiles.Key) string { return k.File }))
	}
	if len(c.KMS) > 0 {
		keys, err := awskms.Open(ctx, os.Getenv, c.KMS)
		if err != nil {
			return nil, err
		}
		h = append(h, from(keys.Keys, awskms.Key.ARN))
	}
	if t := c.PKCS11; t != nil {
		keys, err := pkcs11.Open(pkcs11.Token{Module: t.Module, Label: t.Token, PIN: t.PIN})
		if err != nil {
			return nil, err
		}
		h = append(h, from(keys.Keys, pkcs11.Key.Where))
	}
	return h, nil
}

func from[K signer.Key](list func(context.Context) ([]K, error), where func(K) string) func(context.Context) ([]heldKey, error) {
	return func(ctx context.Context) (all []heldKey, err error) {
		keys, err := list(ctx)
		for _, k := range keys {
			all = append(all, heldKey{k, where(k)})
		}
		return all, err
	}
}

// list returns all keys. The error says which cannot be used.
func (h held) list(ctx context.Context) (all []heldKey, err error) {
	for _, keys := range h {
		some, failed := keys(ctx)
		all, err = append(all, some...), errors.Join(err, failed)
	}
	return all, err
}

func (h held) print(ctx context.Context, stdout io.Writer) error {
	keys, err := h.list(ctx)
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KID\tALG\tWHERE")
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\t%s\n", k.Public().ID(), k.Public().Alg(), k.where)
	}
	return errors.Join(w.Flush(), err)
}
