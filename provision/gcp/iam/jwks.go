package iam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/internal/rest"
)

// uploadLimit is how many keys a provider takes (google.iam.v1, Oidc.jwks_json).
const uploadLimit = keystore.MaxRotating

// jwk is a verification key with the members that an upload may have; Google refuses all others.
type jwk struct {
	Kty string `json:"kty"`
	Alg string `json:"alg,omitempty"`
	Use string `json:"use,omitempty"`
	Kid string `json:"kid"`
	N   string `json:"n,omitempty"`
	E   string `json:"e,omitempty"`
	Crv string `json:"crv,omitempty"`
	X   string `json:"x,omitempty"`
	Y   string `json:"y,omitempty"`

	D json.RawMessage `json:"d,omitempty"` // of a private key, which is refused
}

func readKeys(jwks []byte) ([]jwk, error) {
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(jwks, &set); err != nil {
		return nil, errors.New("the keys to upload are no JWKS") // the error may quote them
	}
	return set.Keys, nil
}

// upload returns the JWKS in the form that Google takes: RSA and P-256 keys, at most eight, with no members but those of a
// verification key. What Google does not look at before the first exchange, it makes sure of here.
func upload(jwks []byte) (string, error) {
	keys, err := readKeys(jwks)
	if err != nil {
		return "", err
	}
	if len(keys) == 0 || len(keys) > uploadLimit {
		return "", fmt.Errorf("%d keys to upload: Google takes 1 to %d", len(keys), uploadLimit)
	}
	for _, k := range keys {
		rsa := k.Kty == "RSA" && k.N != "" && k.E != "" && (k.Alg == "" || k.Alg == "RS256")
		ec := k.Kty == "EC" && k.Crv == "P-256" && k.X != "" && k.Y != "" && (k.Alg == "" || k.Alg == "ES256")
		switch {
		case k.D != nil:
			return "", errors.New("the keys to upload include a private key")
		case k.Kid == "":
			return "", errors.New("a key to upload has no ID (kid)")
		case !rsa && !ec:
			return "", fmt.Errorf("key %s to upload: Google takes keys for RS256 and ES256 only", k.Kid)
		}
	}
	return string(rest.JSON(map[string][]jwk{"keys": keys})), nil
}

// keyIDs returns the IDs of the keys of a JWKS; none if it is none.
func keyIDs(jwks []byte) []string {
	keys, _ := readKeys(jwks) // what is no JWKS has no keys
	var kids []string
	for _, k := range keys {
		kids = append(kids, k.Kid)
	}
	return kids
}

// sameKeys reports whether two JWKS have the same keys, in whatever order and form. What is held is read as strictly as gates read it: in a
// form that readers take differently it may have other keys for Google, and is to be replaced.
func sameKeys(want, held string) bool {
	x, errX := pubkey.Parse("the keys to upload", []byte(want))
	y, errY := pubkey.Parse("the upload", []byte(held))
	if errX == nil {
		return errY == nil && slices.Equal(prints(x), prints(y))
	}
	return sameMembers(want, held)
}

func prints(keys []keystore.VerificationKey) []string {
	var all []string
	for _, k := range keys {
		all = append(all, fmt.Sprintf("%q %s %s", k.ID(), k.Alg(), k.Fingerprint()))
	}
	slices.Sort(all)
	return all
}

// lostKeys returns the IDs of the keys of held, by their material, that want has not.
func lostKeys(want, held string) (lost []string) {
	x, errX := pubkey.Parse("the keys to upload", []byte(want))
	y, errY := pubkey.Parse("the upload", []byte(held))
	if errX != nil || errY != nil {
		if lost = keyIDs([]byte(held)); len(lost) == 0 {
			return []string{"in a form that nobody can read"}
		}
		return lost // in a form that no gate takes: whose they are is not known
	}
	has := prints(x)
	for i, key := range y {
		if !slices.Contains(has, prints(y[i : i+1])[0]) {
			lost = append(lost, text.OneLine(string(key.ID()), 100))
		}
	}
	return lost
}

// sameMembers is sameKeys for keys that no gate takes.
func sameMembers(a, b string) bool {
	canonical := func(jwks string) ([]string, bool) {
		keys, err := readKeys([]byte(jwks))
		var out []string
		for _, k := range keys {
			out = append(out, string(rest.JSON(k)))
		}
		slices.Sort(out)
		return out, err == nil
	}
	x, okX := canonical(a)
	y, okY := canonical(b)
	return okX && okY && slices.Equal(x, y)
}

// sent is what a run has uploaded to a provider, empty before.
type sent struct{ jwks string }

// by returns a step that uploads keys, and remembers that it did.
func (s *sent) by(step cloud.Step, jwks string) cloud.Step {
	call := step.Call
	step.Call = func(ctx context.Context) (cloud.Answer, error) {
		answer, err := call(ctx)
		if answer == cloud.Accepted || answer == cloud.Perhaps {
			s.jwks = jwks
		}
		return answer, err
	}
	return step
}

// strayed says of a provider that trusts another issuer that it has the keys that were uploaded to it, which is what comes of a change of its
// issuer between the reading and the upload. The keys alone are written: the issuer with them would take back what somebody has changed. Empty if
// nothing was uploaded: a cluster's own provider for another URL may have the same keys.
func (s *sent) strayed(have *providerState) string {
	if s == nil || s.jwks == "" || !sameKeys(s.jwks, have.OIDC.JWKS) {
		return ""
	}
	return fmt.Sprintf("; it was given that issuer while these keys were uploaded, and has them now, so that whoever signs with them is taken for %s: "+
		"give the provider that issuer's keys at once, or delete it", have.OIDC.Issuer)
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

// Uploaded is what a provider checks tokens with: those of one issuer.
type Uploaded struct {
	JWKS     []byte // nil if Google fetches the keys of the issuer
	Provider Registered
	Disabled bool   // it takes no token until it is enabled
	Pool     string // why no provider of the pool takes a token, "is disabled"; empty if they do, or if nobody may read it; also with the problem [NoProvider]
}

// UploadedKeys returns what was uploaded to a provider. One that is disabled has keys like any other: they count once it is enabled. The
// error about one that is deleted, and that Google still keeps, is an [*UnusableError].
func (c *Client) UploadedKeys(ctx context.Context, pool, provider string) (Uploaded, error) {
	have, err := c.readUploaded(ctx, pool, provider)
	if rest.Is(err, NoProvider) {
		trouble, _ := c.poolTrouble(ctx, pool) // of which the error says nothing
		return Uploaded{Pool: trouble}, err
	}
	if err != nil {
		return Uploaded{}, err
	}
	u := Uploaded{Provider: have.registered(), Disabled: have.Disabled}
	if u.Pool, err = c.poolTrouble(ctx, pool); err != nil {
		return Uploaded{}, err
	}
	if have.OIDC.JWKS != "" {
		u.JWKS = []byte(have.OIDC.JWKS)
	}
	return u, nil
}

// poolTrouble says why no provider of a pool takes a token. Whoever may only change providers is told nothing.
func (c *Client) poolTrouble(ctx context.Context, pool string) (string, error) {
	p, err := c.Project(ctx)
	if err != nil {
		return "", err
	}
	switch of, err := c.readPool(ctx, p, pool); {
	case rest.Is(err, Denied):
		return "", nil
	case err != nil:
		return "", err
	case of == nil:
		return "is not there", nil
	case of.State == deleted:
		return "is deleted", nil
	case of.Disabled:
		return "is disabled", nil
	}
	return "", nil
}

// readUploaded returns a provider for OIDC that is there, deleted neither for good nor for now.
func (c *Client) readUploaded(ctx context.Context, pool, provider string) (*providerState, error) {
	p, err := c.Project(ctx)
	if err != nil {
		return nil, err
	}
	have, err := c.readProvider(ctx, p, pool, provider)
	if err != nil {
		return nil, err
	}
	if have != nil && have.State == deleted {
		return nil, &UnusableError{have.registered(), rest.Problemf(NoProvider, "%s %s of pool %s is deleted: it takes no token, and has the keys of before if somebody brings it back; take it out "+
			"of the policy when nobody will do so any more, at the latest when Google keeps it no longer (%s)", providerThing, provider, pool, wholeSeconds(have.Expires))}
	}
	if have == nil || have.OIDC == nil {
		return nil, rest.Problemf(NoProvider, "there is no %s %s for OIDC in pool %s of project %s", providerThing, provider, pool, p.ID)
	}
	return have, nil
}

// wholeSeconds leaves out what nobody reads of a time; what is no time stays.
func wholeSeconds(when string) string {
	t, err := time.Parse(time.RFC3339, when)
	if err != nil {
		return when
	}
	return t.UTC().Format(time.RFC3339)
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
	out := &sent{}
	made, err := c.rest.API.Converge(ctx, func(ctx context.Context) ([]cloud.Step, error) {
		p, err := c.Project(ctx)
		if err != nil {
			return nil, err
		}
		have, err := c.readUploaded(ctx, w.Pool, w.ID)
		if err != nil {
			return nil, err
		}
		if have.OIDC.Issuer != w.IssuerURL { // it was another one when that was decided; our keys would count for its tokens
			return nil, rest.Problemf(OtherIssuer, "%s %s trusts the issuer %s by now, and not %s, whose keys these are%s", providerThing, w.ID, have.OIDC.Issuer, w.IssuerURL,
				out.strayed(have))
		}
		if sameKeys(want, have.OIDC.JWKS) {
			return nil, nil
		}
		if !w.Adopt && !w.Owner.holds(w.ID, have.Description) {
			return nil, w.Owner.notOwned(providerThing, w.ID, have.Description)
		}
		if have.OIDC.JWKS == "" {
			return nil, fmt.Errorf("%s %s has no uploaded keys: Google fetches those that the issuer publishes", providerThing, w.ID)
		}
		set := patch{}
		set.add("oidc.jwksJson", want)
		k := set.toProvider(p, w)
		k.Again = c.unchanged(p, w, have, func(now *providerState) bool { return sameKeys(want, now.OIDC.JWKS) })
		return []cloud.Step{out.by(c.rest.ChangeStep(k, "uploaded"), want)}, nil
	})
	return len(made) > 0, err
}
