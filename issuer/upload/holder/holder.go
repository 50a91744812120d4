// Package holder has the relying parties that hold an upload, a file each, as [upload.Holder]. It promises that a credential comes from
// the environment and goes only to the server that the environment names: a key set chooses an object there, never a server.
//
// A new one is one file, its line in Kinds, its form in keystore/party, a scene in holder_test.go, and make references.
package holder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/upload"
	"github.com/keypost/keypost/keystore"
)

// Kind is a kind of upload.
type Kind struct {
	Name    string                                               // as a policy has it, before -upload:
	Title   string                                               // for people
	Needs   string                                               // what a run has to be given, for people
	Untried bool                                                 // written from the vendor's documentation, and run only against a stand-in
	Open    func(context.Context, Target) (upload.Holder, error) // calls nobody that a mistyped place would call
}

// Target is an upload that a key set's policy names.
type Target struct {
	Place  string
	Set    keystore.KeySet
	Getenv func(string) string // credentials, and which server they are for
	Files  string              // the directory of files; empty for none
	Adopt  bool                // it is to hold the keys also where it is marked as another's, or as nobody's
}

// Kinds returns all kinds except gcp, which provision/gcp has.
func Kinds() []Kind { return []Kind{anthropic(), databricks(), file(), openai(), vault()} }

// fetches is the error about a relying party that holds no upload. sign is what shows it.
func fetches(sign string) error {
	return fmt.Errorf("%s, so it fetches the keys by itself, and no upload counts: name it without -upload in the policy, or give it keys first", sign)
}

// remote is one object of a vendor's API.
type remote struct {
	*api
	url string
	// parse returns what an answer says of the object.
	parse func(doc []byte) (upload.Held, error)
	// body returns a request that gives the object the keys of a JWKS. doc is the answer that was read last.
	body func(doc, jwks []byte) (request, error)
	// again is how long after a write the same is written once more; zero for never.
	again time.Duration

	doc []byte
	was string // the issuer that was read last
}

// Read implements [upload.Holder].
func (r *remote) Read(ctx context.Context) (upload.Held, error) {
	doc, date, err := r.do(ctx, request{method: "GET", url: r.url})
	if e, is := errors.AsType[*statusError](err); is && e.code == 404 {
		return upload.Held{}, &upload.RefusedError{Err: err}
	}
	if err != nil {
		return upload.Held{}, err
	}
	held, err := r.parse(doc)
	if err != nil {
		return upload.Held{}, r.hidden(err)
	}
	held.Issuer = text.Hide(held.Issuer, r.secret)
	held.Date, r.doc, r.was = date, doc, held.Issuer
	return held, nil
}

// Upload implements [upload.Holder].
func (r *remote) Upload(ctx context.Context, jwks []byte) error {
	err := r.write(ctx, jwks)
	if err != nil || r.again == 0 {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(r.again):
		return r.write(ctx, jwks)
	}
}

func (r *remote) write(ctx context.Context, jwks []byte) error {
	was := r.was
	held, err := r.Read(ctx) // somebody may have changed it since: what is written comes from the latest answer
	if err == nil && held.Issuer != was {
		err = errors.New("its issuer was changed meanwhile")
	}
	if err != nil {
		return err
	}
	q, err := r.body(r.doc, jwks)
	if err != nil {
		return err
	}
	_, _, err = r.do(ctx, q)
	return err
}
