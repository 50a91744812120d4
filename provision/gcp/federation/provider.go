package federation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/rest"
)

const providerThing = "workload identity provider"

// subjectMapping makes a token's subject the principal's, as ccoctl does: it is the one mapping that is needed.
const (
	subjectAttribute = "google.subject"
	subjectMapping   = "assertion.sub"
)

// everyToken is the condition that every token fulfils, which is none.
const everyToken = "true"

// Provider is an OIDC provider of a pool as it should be: there, enabled, not deleted.
type Provider struct {
	Pool, ID      string
	IssuerURL     string
	Audiences     []string          // that tokens may carry
	KeepAudiences bool              // what an existing provider takes beside Audiences stays
	Condition     string            // attribute condition, CEL; empty leaves what is there
	Mapping       map[string]string // of attributes beside the subject; those that it does not name stay as they are
	JWKS          []byte            // the keys to upload, so that Google never calls the issuer; nil: Google fetches them
	KeySet        string            // whose keys JWKS are, so that it may upload to the provider; empty for the one of the owner's name
	UsualKeys     bool              // no JWKS is a default: a provider that has uploaded keys is refused
	Owner         Owner             // as in Pool
	Adopt         bool              // take over a provider that is somebody else's, or that trusts another issuer; and replace its copy of keys

	vacant bool // it was deleted when it was planned for: nobody lives by the issuer that it had
}

// providerState is a provider as IAM shows it.
type providerState struct {
	Description string            `json:"description"`
	State       string            `json:"state"`
	Expires     time.Time         `json:"expireTime"` // of a deleted one: when it is gone for good
	Disabled    bool              `json:"disabled"`
	Mapping     map[string]string `json:"attributeMapping"`
	Condition   string            `json:"attributeCondition"`
	OIDC        *struct {
		Issuer    string   `json:"issuerUri"`
		Discovery string   `json:"discoveryUri"` // of the document that names the keys; empty for where OpenID Connect has it
		Audiences []string `json:"allowedAudiences"`
		JWKS      string   `json:"jwksJson"`
	} `json:"oidc"` // nil of a provider for something else, such as AWS or SAML
}

func (s *providerState) isDeleted() bool { return s != nil && s.State == deleted }

// providerCall is a call about a provider, by its full name, or about those of a pool.
func providerCall(path, name, verb string) rest.Call {
	return rest.Call{Service: rest.IAM, Name: name, Needs: "iam.workloadIdentityPoolProviders." + verb, Path: path}
}

// readProvider returns nil for a provider that is not there.
func (c *Client) readProvider(ctx context.Context, p Project, pool, provider string) (*providerState, error) {
	return rest.Present[providerState](ctx, c.Rest, providerCall(p.ProviderName(pool, provider), "GetWorkloadIdentityPoolProvider", "get"))
}

// decision is a decision about a provider that is there, with what is to be changed.
type decision struct {
	cloud.Decision
	set rest.Patch
}

// decideProvider returns the steps from have to w. The error reports another owner, or a provider of another kind.
func (c *Client) decideProvider(p Project, w Provider, have *providerState) (cloud.Decision, error) {
	if have == nil {
		return c.createProvider(p, w)
	}
	ours := w.Owner.Takes(have.Description)
	if !ours && !w.Adopt {
		return cloud.Decision{}, w.Owner.NotOwned(providerThing, w.ID, have.Description)
	}
	if have.OIDC == nil {
		return cloud.Decision{}, fmt.Errorf("%s %s of pool %s is not for OIDC: use another name", providerThing, w.ID, w.Pool)
	}
	var d decision
	if have.isDeleted() {
		k := providerCall(p.ProviderName(w.Pool, w.ID), "UndeleteWorkloadIdentityPoolProvider", "undelete")
		k.Method, k.Path, k.Body = "POST", k.Path+":undelete", struct{}{}
		d.Steps = append(d.Steps, c.Rest.ChangeStep(k, fmt.Sprintf("Workload identity provider %s was deleted, undeleting it", w.ID), rest.Undeleted))
	}
	if text := w.describe(have.Description); text != have.Description {
		d.set.Add("description", text, rest.Replaced("description ", have.Description, text)...)
	}
	if have.Disabled {
		d.set.Add("disabled", false, "- disabled")
	}
	if err := d.compareTrust(p, w, have); err != nil {
		return cloud.Decision{}, err
	}
	keys, err := d.compareKeys(w, have)
	if err != nil {
		return cloud.Decision{}, err
	}
	if len(d.set.Mask) > 0 {
		if w.vacant && !have.Disabled {
			d.Warnings = append(d.Warnings, fmt.Sprintf("provider %s comes back as it was, with the issuer %s and the keys that were uploaded to it, until the next call changes it; "+
				"if this run stops in between, run it again with --adopt", w.ID, have.OIDC.Issuer))
		}
		line := fmt.Sprintf("workload identity provider %s updated", w.ID)
		if keys {
			line += " with new JWK set"
		}
		d.Steps = append(d.Steps, c.Rest.ChangeStep(p.changed(w, d.set), line, d.set.Diff...).Changed("workload identity provider "+w.ID))
	}
	return d.Decision, nil
}

// changed returns the call that changes a provider. The API has no etag for providers: sent again minutes later, the call could undo
// what somebody else has changed meanwhile.
func (p Project) changed(w Provider, set rest.Patch) rest.Call {
	k := set.Call(providerCall(p.ProviderName(w.Pool, w.ID), "PatchWorkloadIdentityPoolProvider", "update"))
	k.Once = true
	return k
}

func (c *Client) createProvider(p Project, w Provider) (cloud.Decision, error) {
	body, err := w.body()
	if err != nil {
		return cloud.Decision{}, err
	}
	diff := []string{"+ issuer " + w.IssuerURL}
	for _, a := range w.Audiences {
		diff = append(diff, "+ audience "+a)
	}
	if w.Condition != "" {
		diff = append(diff, "+ attribute condition "+w.Condition)
	}
	diff = append(diff, mappingDiff(map[string]string{subjectAttribute: subjectMapping}, w.mapping())...)
	for _, kid := range keyIDs(w.JWKS) {
		diff = append(diff, "+ uploaded key "+kid)
	}
	k := providerCall(p.PoolName(w.Pool)+"/providers", "CreateWorkloadIdentityPoolProvider", "create")
	k.Method, k.Query, k.Body = "POST", rest.Query("workloadIdentityPoolProviderId", w.ID), body
	step := c.Rest.ChangeStep(k, "workload identity provider created with name "+w.ID, diff...)
	step.Read = true // the next command reads it
	return cloud.Decision{Steps: []cloud.Step{step}}, nil
}

// compareTrust compares whose tokens are taken. The error is about a change that would refuse tokens of a cluster that lives by the provider.
func (d *decision) compareTrust(p Project, w Provider, have *providerState) error {
	if had := have.OIDC.Issuer; had != w.IssuerURL {
		d.set.Add("oidc.issuerUri", w.IssuerURL, rest.Replaced("issuer ", had, w.IssuerURL)...)
		lost := rest.Problemf(rest.OtherIssuer, "%s %s trusts the issuer %s: changed to %s, it takes no token of %s any more, and every workload of that cluster loses access",
			providerThing, w.ID, had, w.IssuerURL, had)
		switch {
		case w.vacant:
		case w.Adopt:
			d.Warnings = append(d.Warnings, lost.Error())
		default:
			return lost
		}
	}
	// Anyone who may write elsewhere on the issuer's host could name other keys there.
	if usual := strings.TrimSuffix(w.IssuerURL, "/") + "/.well-known/openid-configuration"; have.OIDC.Discovery != "" && have.OIDC.Discovery != usual {
		d.set.Add("oidc.discoveryUri", "", rest.Replaced("discovery document ", have.OIDC.Discovery, usual)...)
	}
	d.compareAudiences(p.accepted(w.Pool, w.ID, have), w)
	if diff := mappingDiff(have.Mapping, w.mapping()); len(diff) > 0 {
		mapping := map[string]string{}
		maps.Copy(mapping, have.Mapping) // other attributes are nothing to us
		maps.Copy(mapping, w.mapping())
		d.set.Add("attributeMapping", mapping, diff...)
	}
	switch {
	case w.Condition != "" && w.Condition != have.Condition:
		d.set.Add("attributeCondition", w.Condition, rest.Replaced("attribute condition ", have.Condition, w.Condition)...)
		if w.Condition == everyToken || w.vacant || w.Adopt {
			break
		}
		return fmt.Errorf("with that attribute condition provider %s refuses tokens that do not fulfil %s, and takes some of them now; "+
			"create-workload-identity-provider with --adopt changes it", w.ID, w.Condition)
	case w.Condition == "" && have.Condition != "" && have.Condition != everyToken: // it may be what keeps somebody out
		d.Extra = append(d.Extra, fmt.Sprintf("provider %s has an attribute condition that nobody asked for, and that stays: Google refuses tokens that do not fulfil %s; "+
			"ask for it with --attribute-condition, or for none: --attribute-condition %s", w.ID, have.Condition, everyToken))
	}
	return nil
}

// accepted returns the audiences whose tokens a provider takes: without a list of them its own name, in two forms
// (google.iam.v1, Oidc.allowed_audiences).
func (p Project) accepted(pool, provider string, have *providerState) []string {
	if len(have.OIDC.Audiences) > 0 {
		return have.OIDC.Audiences
	}
	own := p.Audience(pool, provider)
	return []string{own, "https:" + own}
}

// compareAudiences compares whom tokens are for.
func (d *decision) compareAudiences(accepted []string, w Provider) {
	audiences := w.Audiences
	surplus := rest.Minus(accepted, w.Audiences)
	if w.KeepAudiences && len(surplus) > 0 {
		audiences = append(slices.Clone(accepted), rest.Minus(w.Audiences, accepted)...)
		d.Notes = append(d.Notes, fmt.Sprintf("provider %s takes tokens for the audience %s too; that stays, unless --prune is given with the whole list of --allowed-audience",
			w.ID, strings.Join(surplus, ", ")))
		surplus = nil
	}
	added := rest.Minus(audiences, accepted)
	if len(surplus)+len(added) > 0 {
		d.set.Add("oidc.allowedAudiences", audiences, rest.Lines("- audience ", surplus, "+ audience ", added)...)
	}
}

// mapping is the attribute mapping that is asked for.
func (w Provider) mapping() map[string]string {
	all := map[string]string{}
	maps.Copy(all, w.Mapping)
	all[subjectAttribute] = subjectMapping
	return all
}

func mappingDiff(have, want map[string]string) []string {
	var diff []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if had := have[name]; had != want[name] {
			diff = append(diff, rest.Replaced(name+" = ", had, want[name])...)
		}
	}
	return diff
}

// compareKeys compares the uploaded keys, and reports whether they are to change. A copy of other keys is left to [Client.UploadKeys],
// whose caller knows which of the two is newer: keys may have been revoked since.
func (d *decision) compareKeys(w Provider, have *providerState) (bool, error) {
	held := have.OIDC.JWKS
	old := keyIDs([]byte(held))
	if w.JWKS == nil {
		if held != "" && w.UsualKeys {
			return false, fmt.Errorf("provider %s has a copy of the keys; say --key-storage-method pool-jwk-file to bring it up to date, "+
				"or --key-storage-method public-bucket to have Google fetch them from %s", w.ID, w.IssuerURL)
		}
		if held != "" {
			d.set.Add("oidc.jwksJson", "", rest.Lines("- uploaded key ", old, "+ keys as published by ", []string{w.IssuerURL})...)
			d.Warnings = append(d.Warnings, fmt.Sprintf("Google fetches the keys of provider %s from %s from now on, and must reach it", w.ID, w.IssuerURL))
		}
		return false, nil
	}
	want, err := upload(w.JWKS)
	if err != nil || holdsKeys(want, held) {
		return false, err
	}
	if held != "" && !w.Adopt && !w.vacant {
		return false, rest.Problemf(rest.OtherCopy, "provider %s holds a copy of other keys than the store publishes: %s", w.ID, text.List(old, 8))
	}
	kids := keyIDs(w.JWKS)
	diff := rest.Lines("- uploaded key ", rest.Minus(old, kids), "+ uploaded key ", rest.Minus(kids, old))
	if held == "" {
		diff = append([]string{"- keys as published by " + w.IssuerURL}, diff...)
	}
	if len(diff) == 0 {
		diff = []string{"~ uploaded keys of the same IDs"}
	}
	d.set.Add("oidc.jwksJson", string(w.JWKS), diff...)
	return true, nil
}

// describe returns what the description of a provider is to be that has one. One that is given a copy of keys says whose copy it is, so
// that each later upload knows it for its own.
func (w Provider) describe(text string) string {
	if !w.Owner.Takes(text) {
		text = w.Owner.Describe(text)
	}
	another := w.KeySet != "" && w.KeySet != w.Owner.name && w.Owner.takesNamed(w.ID, text)
	if w.JWKS != nil && (another || w.Owner.Owns(text)) {
		return w.Owner.marked(text, w.KeySet)
	}
	return text
}

// body is what makes the provider. The error is about the keys to upload.
func (w Provider) body() (map[string]any, error) {
	oidc := map[string]any{"issuerUri": w.IssuerURL, "allowedAudiences": w.Audiences}
	if w.JWKS != nil {
		if _, err := upload(w.JWKS); err != nil {
			return nil, err
		}
		oidc["jwksJson"] = string(w.JWKS)
	}
	body := map[string]any{"displayName": w.ID, "description": w.describe(w.Owner.Describe(Made)), "oidc": oidc,
		"attributeMapping": w.mapping()}
	if w.Condition != "" {
		body["attributeCondition"] = w.Condition
	}
	return body, nil
}

// Registered is a provider as Google has it.
type Registered struct {
	IssuerURL    string
	Audiences    []string // none: its own full name
	JWKS         string   // the copy of the keys that it has; empty if Google fetches them
	Refused      error    // why it takes no token, whatever keys it has; nil if it takes them
	Installation string   // that its description names; empty for none
}

// Provider returns an existing provider of the project, to make accounts for it. The error says what is wrong with one that is
// missing, deleted or disabled, or whose pool is.
func (c *Client) Provider(ctx context.Context, pool, provider string) (Registered, error) {
	p, err := c.Project(ctx)
	if err != nil {
		return Registered{}, err
	}
	of, err := c.readPool(ctx, p, pool)
	if err == nil {
		err = of.usable(pool)
	}
	if err != nil {
		return Registered{}, err
	}
	have, err := c.readProvider(ctx, p, pool, provider)
	if err == nil {
		err = have.usable(provider)
	}
	if err != nil {
		return Registered{}, err
	}
	return have.registered(nil), nil
}

// usable returns an error for a provider that takes no token; nil is one that is not there.
func (s *providerState) usable(provider string) error {
	if s == nil {
		s = &providerState{}
	}
	if err := usable(providerThing, provider, s.State, s.Disabled); err != nil {
		return err
	}
	if s.OIDC == nil {
		return fmt.Errorf("%s %s is not for OIDC", providerThing, provider)
	}
	return nil
}

// installation returns the installation that the description names; empty for none.
func (s *providerState) installation() string {
	if s == nil {
		return ""
	}
	_, name := markOf(s.Description)
	return name
}

func (s *providerState) registered(refused error) Registered {
	return Registered{IssuerURL: s.OIDC.Issuer, Audiences: s.OIDC.Audiences, JWKS: s.OIDC.JWKS, Refused: refused, Installation: s.installation()}
}

// usable returns an error for a pool or a provider that cannot be used; one without a state is not there.
func usable(thing, name, state string, disabled bool) error {
	switch {
	case state == "":
		return fmt.Errorf("there is no %s %s: make it first", thing, name)
	case state != active:
		return fmt.Errorf("%s %s is deleted: make it again, which brings it back", thing, name)
	case disabled:
		return fmt.Errorf("%s %s is disabled: make it again, which enables it", thing, name)
	}
	return nil
}

// Predecessor returns a provider by which a cluster lives whose issuer it trusts, with what it takes: audiences, attributes, condition,
// and the keys that it has a copy of. It returns an error if another provider could not take its place by taking the same.
func (c *Client) Predecessor(ctx context.Context, pool, provider, issuerURL string) (Provider, error) {
	p, err := c.Project(ctx)
	if err != nil {
		return Provider{}, err
	}
	have, err := c.readProvider(ctx, p, pool, provider)
	name := p.ProviderName(pool, provider)
	switch {
	case err != nil:
		return Provider{}, err
	case have == nil || have.State == deleted || have.OIDC == nil:
		return Provider{}, rest.Problemf(rest.NothingToMove, "no cluster lives by the %s %s: it is not there, is deleted or not for OIDC", providerThing, name)
	case have.OIDC.Issuer != issuerURL:
		return Provider{}, rest.Problemf(rest.NothingToMove, "the %s %s trusts the issuer %s, and not %s", providerThing, name, have.OIDC.Issuer, issuerURL)
	case have.Mapping[subjectAttribute] != subjectMapping:
		return Provider{}, fmt.Errorf("the %s %s maps %s to %s, and not to %s: what is bound to the subjects would not be found by the new one", providerThing,
			name, subjectAttribute, have.Mapping[subjectAttribute], subjectMapping)
	case strings.Contains(have.Condition, issuerURL):
		return Provider{}, fmt.Errorf("the %s %s has the attribute condition %s, which names the old issuer and would refuse the new one's tokens: change it first",
			providerThing, name, have.Condition)
	}
	old := Provider{Pool: pool, ID: provider, IssuerURL: issuerURL, Audiences: p.accepted(pool, provider, have), Mapping: have.Mapping, Condition: have.Condition}
	if have.OIDC.JWKS != "" {
		old.JWKS = []byte(have.OIDC.JWKS)
	}
	return old, nil
}
