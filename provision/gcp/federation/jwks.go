package federation

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/key"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/rest"
)

// upload returns the keys of a JWKS to upload. The error is about keys that Google would refuse at the first exchange only.
func upload(jwks []byte) ([]keystore.VerificationKey, error) {
	keys, err := pubkey.Parse("the JWKS to upload", jwks)
	if err != nil {
		return nil, err
	}
	if len(keys) > keystore.MaxRotating {
		return nil, fmt.Errorf("%d keys to upload: Google takes %d", len(keys), keystore.MaxRotating)
	}
	for _, k := range keys {
		if !party.Takes("gcp", k.Alg()) {
			return nil, fmt.Errorf("key %s to upload is for %s: Google takes keys for RS256 and ES256 only", k.ID(), k.Alg())
		}
	}
	return keys, nil
}

// keyIDs returns the IDs of the keys of a JWKS, which may have none.
func keyIDs(jwks []byte) []string {
	if len(jwks) == 0 {
		return nil
	}
	keys, err := pubkey.Parse("", jwks)
	if err != nil {
		return []string{"in a form that cannot be read"}
	}
	var kids []string
	for _, k := range keys {
		kids = append(kids, string(k.ID()))
	}
	return kids
}

// holdsKeys reports whether a provider holds these keys. What it holds is read as strictly as gates read it: in a form that readers take
// differently it may have other keys for Google, and is to be replaced.
func holdsKeys(want []keystore.VerificationKey, held string) bool {
	have, err := pubkey.Parse("the upload", []byte(held))
	return err == nil && key.Same(want, have)
}

// ProviderID names a provider of any project.
type ProviderID struct{ Project, Pool, Provider string } // Project is an ID or a number

// ParseProvider reads a provider's full name: projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/ID.
func ParseProvider(name string) (ProviderID, error) {
	m := regexp.MustCompile(`^projects/([^/]+)/locations/global/workloadIdentityPools/([^/]+)/providers/([^/]+)$`).FindStringSubmatch(name)
	if m == nil || CheckPoolID("pool", m[2]) != nil || CheckPoolID("provider", m[3]) != nil {
		return ProviderID{}, fmt.Errorf("%q is not the name of a provider (projects/PROJECT/locations/global/workloadIdentityPools/POOL/providers/PROVIDER)", name)
	}
	return ProviderID{Project: m[1], Pool: m[2], Provider: m[3]}, nil
}

// String returns the full name.
func (p ProviderID) String() string {
	return strings.Join([]string{"projects", p.Project, "locations/global/workloadIdentityPools", p.Pool, "providers", p.Provider}, "/")
}

// UploadedKeys returns a provider with what was uploaded to it. One that is disabled, or whose pool takes no token, has keys like any other:
// they count once it is enabled. The error of one that is not there, or that is deleted, has the problem [rest.NoProvider]; of one
// that is deleted the installation is returned all the same.
func (c *Client) UploadedKeys(ctx context.Context, pool, provider string) (Registered, error) {
	have, err := c.readUploaded(ctx, pool, provider)
	if err != nil {
		return Registered{Installation: have.installation()}, err
	}
	refused := have.usable(provider)
	p, err := c.Project(ctx)
	if err != nil {
		return Registered{}, err
	}
	of, err := c.readPool(ctx, p, pool)
	switch {
	case rest.Is(err, rest.Denied): // anyone who may not read pools is told nothing of them
	case err != nil:
		return Registered{}, err
	default:
		refused = cmp.Or(of.usable(pool), refused)
	}
	return have.registered(refused), nil
}

// readUploaded returns a provider for OIDC that is there, and an error for one that is deleted, for good or for now.
func (c *Client) readUploaded(ctx context.Context, pool, provider string) (*providerState, error) {
	p, err := c.Project(ctx)
	if err != nil {
		return nil, err
	}
	have, err := c.readProvider(ctx, p, pool, provider)
	if err != nil {
		return nil, err
	}
	if have.isDeleted() {
		return have, rest.Problemf(rest.NoProvider, "%s %s of pool %s is deleted: it takes no token, and has the keys of before if somebody brings it back; "+
			"take it out of the policy when nobody will do so any more, at the latest when Google keeps it no longer (%s)",
			providerThing, provider, pool, have.Expires.UTC().Format(time.RFC3339))
	}
	if have == nil || have.OIDC == nil {
		return nil, rest.Problemf(rest.NoProvider, "there is no %s %s for OIDC in pool %s of project %s", providerThing, provider, pool, p.ID)
	}
	return have, nil
}

// UploadKeys gives a provider exactly the keys w.JWKS, and reads them back until they are there. It reports whether it had to write.
// Of w only JWKS, Pool, ID, IssuerURL, Owner and Adopt are looked at. A provider that is not the owner's, unless it is adopted, that
// trusts another issuer, or whose keys Google fetches, is not changed: that is an error. Whose it is, its description says: the key set's
// that it names, or else the installation's. One that ccoctl made is the owner's if it bears the owner's name.
func (c *Client) UploadKeys(ctx context.Context, w Provider) (changed bool, err error) {
	want, err := upload(w.JWKS)
	if err != nil {
		return false, err
	}
	first := "" // what it had when it was first read
	made, err := c.Rest.API.Converge(ctx, func(ctx context.Context) ([]cloud.Step, error) {
		p, err := c.Project(ctx)
		if err != nil {
			return nil, err
		}
		have, err := c.readUploaded(ctx, w.Pool, w.ID)
		if err != nil {
			return nil, err
		}
		if have.OIDC.Issuer != w.IssuerURL { // it was another one when that was decided; our keys would count for its tokens
			return nil, rest.Problemf(rest.OtherIssuer, "%s %s trusts the issuer %s by now, and not %s, whose keys these are", providerThing, w.ID,
				have.OIDC.Issuer, w.IssuerURL)
		}
		if holdsKeys(want, have.OIDC.JWKS) {
			return nil, nil
		}
		if !w.Adopt && !w.Owner.holds(w.ID, have.Description) {
			return nil, w.Owner.NotOwned(providerThing, w.ID, have.Description)
		}
		if have.OIDC.JWKS == "" {
			return nil, fmt.Errorf("%s %s has no uploaded keys: Google fetches those that the issuer publishes", providerThing, w.ID)
		}
		if first = cmp.Or(first, have.OIDC.JWKS); have.OIDC.JWKS != first { // ours may be the older ones
			return nil, fmt.Errorf("somebody else has changed the uploaded keys of %s %s meanwhile: run this again", providerThing, w.ID)
		}
		set := rest.Patch{}
		set.Add("oidc.jwksJson", string(w.JWKS))
		return []cloud.Step{c.Rest.ChangeStep(p.changed(w, set), "uploaded")}, nil
	})
	return len(made) > 0, err
}
