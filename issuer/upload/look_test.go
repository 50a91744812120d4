package upload

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore/storetest"
)

// What a copy holds is recorded with the keys of strangers, and stays as it is; they are told of after somebody else has replaced them.
func TestLookChangesNothing(t *testing.T) {
	w, c := newWorld(t, named()), empty()
	w.add()
	w.synced(c)
	theirs := storetest.KeySet(t, "theirs")
	key := storetest.Key(t)
	theirs, err := theirs.Add(storetest.Change(0), key)
	if err != nil {
		t.Fatal(err)
	}
	published := slices.Clone(c.jwks)
	if c.jwks, err = issuer.RenderJWKS(theirs); err != nil {
		t.Fatal(err)
	}
	s := w.load()
	uploads := c.uploads
	r, err := w.u.Look(t.Context(), s, party, Reading{JWKS: c.jwks, Issuer: own})
	if err != nil || !slices.Contains(r.Strangers, key.ID()) || r.Uploaded || c.uploads != uploads {
		t.Errorf("%v, strangers %q, %d uploads", err, r.Strangers, c.uploads-uploads)
	}
	c.jwks = published
	if r, err := w.sync(c); err != nil || len(r.Strangers) > 0 {
		t.Errorf("%v, strangers %q", err, r.Strangers)
	}
	if told := w.copy().Intrusion(); !strings.Contains(told, string(key.ID())) {
		t.Errorf("the record says %q of %s", told, key.ID())
	}
}

// Another issuer's copy is none of ours: none of its keys is a stranger's.
func TestLookAtAnotherIssuers(t *testing.T) {
	w := newWorld(t, named())
	w.add()
	s := w.load()
	jwks, err := issuer.RenderJWKS(s)
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.u.Look(t.Context(), s, party, Reading{JWKS: jwks, Issuer: "https://oidc.example.com/another"})
	if _, is := errors.AsType[*RefusedError](err); !is || len(r.Strangers) > 0 {
		t.Errorf("%v, strangers %q", err, r.Strangers)
	}
}
