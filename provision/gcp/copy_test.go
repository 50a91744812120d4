package gcp_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakegcp"
	"github.com/keypost/keypost/test/keys"
)

// copyOfSite is what a policy calls the copy of the keys that the provider of the site holds.
var copyOfSite = "gcp-upload:" + strings.TrimPrefix(broughtProvider, "//iam.googleapis.com/")

// strange is the JWKS of a key that no store of a test has.
func strange(t *testing.T) string {
	t.Helper()
	key, err := keystore.NewPublic(keys.NewRSA()().Public())
	check(t, err)
	jwks, err := (&install.Publication{Name: "strange", URL: bucket, Keys: []keystore.VerificationKey{key}, Dev: true}).JWKS()
	check(t, err)
	return string(jwks)
}

// only returns the one provider of the site.
func (s *site) only(t *testing.T) fakegcp.Provider {
	t.Helper()
	all := s.State().Providers
	if len(all) != 1 {
		t.Fatalf("there are %d providers: %+v", len(all), all)
	}
	return all[0]
}

// A new key set's policy names the copy where Google has one, and Google where that fetches the keys; the result names the copy likewise.
func TestTheCopyIsNamedWhereThereIsOne(t *testing.T) {
	t.Parallel()
	for _, upload := range []bool{false, true} {
		s := newSite(t)
		s.WriteKeys(t)
		made := s.install(t, func(o *gcp.CreateOptions) { o.Upload = upload })
		want := map[bool]string{false: "gcp", true: copyOfSite}[upload]
		set, _, err := s.Store.Load(t.Context(), "prod-a")
		check(t, err)
		if got := set.Policy().RelyingParties; !slices.Equal(got, []string{want}) {
			t.Errorf("upload %t: the policy names %q, want %s", upload, got, want)
		}
		if (made.Copy == copyOfSite) != upload || !upload && made.Copy != "" {
			t.Errorf("upload %t: the copy is %q", upload, made.Copy)
		}
		if held := s.only(t).OIDC.JWKS; (held != "") != upload {
			t.Errorf("upload %t: the provider holds %q", upload, held)
		}
	}
}

// Of a copy with other keys a run replaces what the check lets it, and one that may not goes no further; one whose check says no does not
// either.
func TestACopyIsReplacedAsTheCheckSays(t *testing.T) {
	t.Parallel()
	older := errors.New("the store is behind")
	for _, tt := range []struct {
		unrecorded bool
		err        error
		want       rest.Problem
	}{
		{false, nil, 0},
		{true, nil, rest.UnknownCopy},
		{false, older, 0},
	} {
		s := newSite(t)
		key := s.WriteKeys(t)
		s.install(t, func(o *gcp.CreateOptions) { o.Upload = true })
		s.provider(t, "oidc.jwksJson", strange(t))
		s.ResetCalls()
		accounts := s.requests(t, usual()...)
		o := gcp.CreateOptions{Options: s.options(), Accounts: &accounts}
		o.Upload = true
		o.CheckUpload = func(context.Context, keystore.KeySet, string) (bool, error) { return tt.unrecorded, tt.err }
		_, err := gcp.Create(t.Context(), o)
		refused := tt.err != nil || tt.want != 0
		if (err != nil) != refused || problemOf(err) != tt.want || tt.err != nil && !errors.Is(err, tt.err) || refused && s.Writes() > 0 {
			t.Errorf("%t, %v: %v after %d writes", tt.unrecorded, tt.err, err, s.Writes())
		}
		if held := s.only(t).OIDC.JWKS; strings.Contains(held, string(key.ID())) == refused {
			t.Errorf("%t, %v: the provider holds %s", tt.unrecorded, tt.err, held)
		}
	}
}
