package iam

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/internal/rest"
	"github.com/keypost/keypost/provision/plan"
)

const providerThing = "workload identity provider"

// subjectMapping makes a token's subject the principal's, as ccoctl does: it is the one mapping that is needed.
const (
	subjectAttribute = "google.subject"
	subjectMapping   = "assertion.sub"
)

// everyToken is the condition that every token fulfils, which is none.
const everyToken = "true"

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
	return present[providerState](ctx, c, providerCall(p.ProviderName(pool, provider), "GetWorkloadIdentityPoolProvider", "get"))
}

// planProvider plans the way to the provider that is wanted.
func (c *Client) planProvider(p Project, wanted Wanted, s *snapshot) (plan.Plan, error) {
	w, have := *wanted.Provider, s.provider
	if wanted.Pool == nil {
		if err := s.pool.usable(w.Pool); err != nil {
			return plan.Plan{}, err
		}
	}
	w.vacant = have.isDeleted() || s.pool.isDeleted()
	if have != nil && have.OIDC != nil {
		w.held = &have.OIDC.JWKS
	}
	t := subject{thing: providerThing, name: p.ProviderName(w.Pool, w.ID), found: fmt.Sprintf("Workload identity provider %s already exists in pool %s", w.ID, w.Pool),
		missing: have == nil, deleted: have.isDeleted()}
	return planOne(c, t, have, func(ctx context.Context) (*providerState, error) { return c.readProvider(ctx, p, w.Pool, w.ID) },
		func(have *providerState) (decision, error) { return c.decideProvider(p, w, have) })
}

// refuse returns the error about a change that is made only with Adopt. A plan that is to be shown has it as a warning.
func (d *decision) refuse(w Provider, err error) error {
	if !w.Show {
		return err
	}
	d.warnings = append(d.warnings, err.Error()+"; without --adopt this is refused")
	return nil
}

// decideProvider returns the steps from have to w. The error reports another owner, or a provider of another kind.
func (c *Client) decideProvider(p Project, w Provider, have *providerState) (decision, error) {
	if have == nil {
		return c.createProvider(p, w)
	}
	ours := w.Owner.takes(have.Description)
	if !ours && !w.Adopt {
		return decision{}, w.Owner.notOwned(providerThing, w.ID, have.Description)
	}
	if have.OIDC == nil {
		return decision{}, fmt.Errorf("%s %s of pool %s is not for OIDC: use another name", providerThing, w.ID, w.Pool)
	}
	var d decision
	if have.isDeleted() {
		k := providerCall(p.ProviderName(w.Pool, w.ID), "UndeleteWorkloadIdentityPoolProvider", "undelete")
		k.Method, k.Path, k.Body = "POST", k.Path+":undelete", struct{}{}
		d.steps = append(d.steps, c.rest.ChangeStep(k, fmt.Sprintf("Workload identity provider %s was deleted, undeleting it", w.ID), undeleted))
	}
	set := patch{}
	if text := w.describe(have.Description); text != have.Description {
		set.add("description", text, replaced("description ", have.Description, text)...)
	}
	if have.Disabled {
		set.add("disabled", false, "- disabled")
	}
	if err := d.compareTrust(p, w, have, &set); err != nil {
		return decision{}, err
	}
	keys, err := d.compareKeys(w, have, &set)
	if err != nil {
		return decision{}, err
	}
	if len(set.mask) > 0 {
		if w.vacant && !have.Disabled {
			d.warnings = append(d.warnings, fmt.Sprintf("provider %s comes back as it was, and until the call after that it takes %s; if this run is stopped in between, run it again: "+
				"where that is refused, the refusal says how to go on", w.ID, have.takes()))
		}
		line := fmt.Sprintf("workload identity provider %s updated", w.ID)
		if keys {
			line += " with new JWK set"
		}
		d.steps = append(d.steps, c.rest.ChangeStep(set.toProvider(p, w), line, set.diff...).Changed("workload identity provider "+w.ID))
	}
	return d, nil
}

// toProvider returns the call that changes a provider. The API has no etag for providers: sent again minutes later, the call could undo
// what somebody else has changed meanwhile.
func (p patch) toProvider(of Project, w Provider) rest.Call {
	k := p.call(providerCall(of.ProviderName(w.Pool, w.ID), "PatchWorkloadIdentityPoolProvider", "update"))
	k.Once = true
	return k
}

func (c *Client) createProvider(p Project, w Provider) (decision, error) {
	body, err := w.body()
	if err != nil {
		return decision{}, err
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
	step := c.rest.ChangeStep(k, "workload identity provider created with name "+w.ID, diff...)
	step.Read = true // the next command reads it
	return decision{steps: []cloud.Step{step}}, nil
}

// compareTrust compares whose tokens are taken. The error is about more audiences than Google allows, or about a change that would
// refuse tokens of a cluster that lives by the provider.
func (d *decision) compareTrust(p Project, w Provider, have *providerState, set *patch) error {
	if had := have.OIDC.Issuer; had != w.IssuerURL {
		set.add("oidc.issuerUri", w.IssuerURL, replaced("issuer ", had, w.IssuerURL)...)
		lost := rest.Problemf(OtherIssuer, "%s %s trusts the issuer %s: changed to %s, it takes no token of %s any more, and every workload of that cluster loses access",
			providerThing, w.ID, had, w.IssuerURL, had)
		switch {
		case w.vacant:
		case w.Adopt:
			d.warnings = append(d.warnings, lost.Error())
		default:
			if err := d.refuse(w, lost); err != nil {
				return err
			}
		}
	}
	// Whoever may write elsewhere on the issuer's host could name other keys there.
	if usual := strings.TrimSuffix(w.IssuerURL, "/") + "/.well-known/openid-configuration"; have.OIDC.Discovery != "" && have.OIDC.Discovery != usual {
		set.add("oidc.discoveryUri", "", replaced("discovery document ", have.OIDC.Discovery, usual)...)
	}
	if err := d.compareAudiences(p.accepted(w.Pool, w.ID, have), w, set); err != nil {
		return err
	}
	if diff := mappingDiff(have.Mapping, w.mapping()); len(diff) > 0 {
		mapping := maps.Clone(have.Mapping) // other attributes are nothing to us
		if mapping == nil {
			mapping = map[string]string{}
		}
		maps.Copy(mapping, w.mapping())
		set.add("attributeMapping", mapping, diff...)
	}
	switch {
	case w.Condition != "" && w.Condition != have.Condition:
		set.add("attributeCondition", w.Condition, replaced("attribute condition ", have.Condition, w.Condition)...)
		if w.Condition == everyToken || w.vacant || w.Adopt {
			break
		}
		return d.refuse(w, fmt.Errorf("with that attribute condition provider %s refuses tokens that do not fulfil %s, and takes some of them now; "+
			"create-workload-identity-provider with --adopt changes it", w.ID, w.Condition))
	case w.Condition == "" && have.Condition != "" && have.Condition != everyToken: // it may be what keeps somebody out
		d.extra = append(d.extra, fmt.Sprintf("provider %s has an attribute condition that nobody asked for, and that stays: Google refuses tokens that do not fulfil %s; "+
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

// compareAudiences compares whom tokens are for. The error is about more audiences than Google allows.
func (d *decision) compareAudiences(accepted []string, w Provider, set *patch) error {
	audiences := w.Audiences
	surplus := minus(accepted, w.Audiences)
	if w.KeepAudiences && len(surplus) > 0 {
		audiences = append(slices.Clone(accepted), minus(w.Audiences, accepted)...)
		d.notes = append(d.notes, fmt.Sprintf("provider %s takes tokens for the audience %s too; that stays, unless --prune is given with the whole list of --allowed-audience",
			w.ID, strings.Join(surplus, ", ")))
		surplus = nil
		if n := len(audiences); n > audienceCount {
			return fmt.Errorf("provider %s would take %d audiences, and Google allows %d: name all that are to stay with --allowed-audience, and add --prune", w.ID, n, audienceCount)
		}
	}
	added := minus(audiences, accepted)
	if len(surplus)+len(added) > 0 {
		set.add("oidc.allowedAudiences", audiences, lines("- audience ", surplus, "+ audience ", added)...)
	}
	return nil
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
			diff = append(diff, replaced(name+" = ", had, want[name])...)
		}
	}
	return diff
}

// compareKeys compares the uploaded keys, and reports whether they are to change.
func (d *decision) compareKeys(w Provider, have *providerState, set *patch) (bool, error) {
	held := have.OIDC.JWKS
	old := keyIDs([]byte(held))
	if w.JWKS == nil {
		if held != "" && w.UsualKeys {
			return false, fmt.Errorf("provider %s has a copy of the keys; say --key-storage-method pool-jwk-file to bring it up to date, "+
				"or --key-storage-method public-bucket to have Google fetch them from %s", w.ID, w.IssuerURL)
		}
		if held != "" {
			set.add("oidc.jwksJson", "", lines("- uploaded key ", old, "+ keys as published by ", []string{w.IssuerURL})...)
			d.warnings = append(d.warnings, fmt.Sprintf("Google fetches the keys of provider %s from %s from now on, and must reach it", w.ID, w.IssuerURL))
		}
		return false, nil
	}
	want, err := upload(w.JWKS)
	if err != nil || sameKeys(want, held) {
		return false, err
	}
	if err := w.checkHeld(held); err != nil {
		return false, err
	}
	if w.Unrecorded && held != "" && !w.Adopt && !w.vacant {
		err := d.refuse(w, rest.Problemf(UnknownCopy, "provider %s holds a copy of other keys than the store publishes (%s), and nothing says whether the store is behind it: "+
			"keys may have been revoked since", w.ID, text.List(old, 8)))
		if err != nil {
			return false, err
		}
	}
	kids := keyIDs(w.JWKS)
	diff := lines("- uploaded key ", minus(old, kids), "+ uploaded key ", minus(kids, old))
	if held == "" {
		diff = append([]string{"- keys as published by " + w.IssuerURL}, diff...)
	}
	if len(diff) == 0 {
		diff = []string{"~ uploaded keys of the same IDs"}
	}
	set.add("oidc.jwksJson", string(w.JWKS), diff...)
	return true, nil
}

// checkHeld returns an error if the keys of a provider are not those that it had when it was first read: ours may be the older ones.
func (w Provider) checkHeld(now string) error {
	if w.held == nil || now == *w.held {
		return nil
	}
	return fmt.Errorf("somebody else has changed the uploaded keys of %s %s meanwhile: run this again", providerThing, w.ID)
}

// describe returns what the description of a provider is to be that has one. One that is given a copy of keys says of which key set, so that
// each later upload knows it for its own.
func (w Provider) describe(text string) string {
	if !w.Owner.takes(text) {
		text = w.Owner.describe(text)
	}
	another := w.KeySet != "" && w.KeySet != w.Owner.name && w.Owner.takesNamed(w.ID, text)
	if w.JWKS != nil && (another || w.Owner.owns(text)) {
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
	body := map[string]any{"displayName": w.ID, "description": w.describe(w.Owner.describe(made)), "oidc": oidc,
		"attributeMapping": w.mapping()}
	if w.Condition != "" {
		body["attributeCondition"] = w.Condition
	}
	return body, nil
}

// Registered is a provider as Google has it.
type Registered struct {
	IssuerURL string
	Audiences []string // none: its own full name
	JWKS      string   // the copy of the keys that it has; empty if Google fetches them
	Disabled  bool     // it takes no token until it is enabled

	Installation string // for which it was made; empty if its description does not say
	KeySet       string // whose keys it has, where its description names one: it is another than that of the installation's name
	Foreign      bool   // it does not say either that ccoctl made it: only --adopt changes it
}

// UnusableError reports a provider that takes no token.
type UnusableError struct {
	Provider Registered // as far as Google still knows it
	Err      error
}

func (e *UnusableError) Error() string { return e.Err.Error() }

func (e *UnusableError) Unwrap() error { return e.Err }

// Provider returns an existing provider of the project, to make accounts for it. The error says what is wrong with one that is
// missing, deleted or disabled, an [*UnusableError], or whose pool is.
func (c *Client) Provider(ctx context.Context, pool, provider string) (Registered, error) {
	p, err := c.Project(ctx)
	if err != nil {
		return Registered{}, err
	}
	of, err := c.expectedPool(ctx, p, pool)
	if err != nil {
		return Registered{}, err
	}
	if err := of.usable(pool); err != nil {
		return Registered{}, err
	}
	have, err := expected(ctx, c, providerThing+" "+provider, func() (*providerState, error) { return c.readProvider(ctx, p, pool, provider) })
	if err != nil {
		return Registered{}, err
	}
	if have == nil {
		have = &providerState{}
	}
	there := have.registered()
	if err := usable(providerThing, provider, have.State, have.Disabled); err != nil {
		return Registered{}, &UnusableError{there, err}
	}
	if have.OIDC == nil {
		return Registered{}, fmt.Errorf("%s %s of pool %s is not for OIDC", providerThing, provider, pool)
	}
	return there, nil
}

// takes says what tokens a provider takes when it is there and enabled.
func (s *providerState) takes() string {
	if s.OIDC == nil {
		return "tokens"
	}
	takes := "tokens of the issuer " + s.OIDC.Issuer
	if kids := keyIDs([]byte(s.OIDC.JWKS)); len(kids) > 0 {
		takes += " by the keys that were uploaded to it, whether or not they are published still: " + text.List(kids, 8)
	}
	return takes
}

func (s *providerState) registered() Registered {
	r := Registered{Disabled: s.Disabled, Foreign: !strings.Contains(s.Description, installationSuffix) && !Owner{}.takes(s.Description)}
	r.KeySet, r.Installation = markOf(s.Description)
	if s.OIDC != nil {
		r.IssuerURL, r.Audiences, r.JWKS = s.OIDC.Issuer, s.OIDC.Audiences, s.OIDC.JWKS
	}
	return r
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
