package iam

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

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
	Expires     string            `json:"expireTime"` // of a deleted one: when it is gone for good
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
	w.out = &sent{}
	w.vacant = have != nil && have.State == deleted || s.pool != nil && s.pool.State == deleted
	d, err := c.decideProvider(p, w, have)
	if err == nil {
		err = s.refused
	}
	if err != nil {
		return plan.Plan{}, err
	}
	change := plan.Change{Verb: plan.Update, Thing: providerThing, Name: p.ProviderName(w.Pool, w.ID)}
	found := fmt.Sprintf("Workload identity provider %s already exists in pool %s", w.ID, w.Pool)
	if have == nil {
		change.Verb = plan.Create
	} else if have.State != deleted {
		d.notes = append([]string{found}, d.notes...)
	}
	stage := c.rest.API.Stage(change, d.steps, func(ctx context.Context) ([]cloud.Step, error) {
		have, err := c.readProvider(ctx, p, w.Pool, w.ID)
		if err != nil {
			return nil, err
		}
		d, err := c.decideProvider(p, w, have)
		return d.steps, err
	})
	if w.vacant && have != nil && have.OIDC != nil {
		sayBack(stage, w.ID, have)
	}
	planned := plan.Of(d.notes, cloud.OrFound(stage, found))
	planned.Warnings, planned.Extra = d.warnings, d.extra
	return planned, nil
}

// sayBack makes an error of the actions of a stage, which bring a provider back, say that it may be there as it was: an undelete
// changes nothing, and nothing says that Google changes a provider that is deleted.
func sayBack(stage plan.Stage, id string, was *providerState) {
	for i, a := range stage {
		stage[i].Do = func(ctx context.Context) ([]string, error) {
			lines, err := a.Do(ctx)
			if err != nil {
				err = fmt.Errorf("%w; provider %s may be back as it was, which takes %s: run this again, or delete the provider", err, id, was.takes())
			}
			return lines, err
		}
	}
}

// decision holds the steps from what is there to what is wanted, and what the reader should know.
type decision struct {
	steps           []cloud.Step
	notes, warnings []string
	extra           []string // what is there beyond what is wanted, and stays
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
	if have.OIDC.Issuer != w.IssuerURL && !w.Adopt && !w.Show && !w.vacant {
		return decision{}, rest.Problemf(OtherIssuer, "%s %s trusts the issuer %s, and not %s as asked: changed, it would take no token of %s any more, "+
			"and every workload of that cluster would lose access%s", providerThing, w.ID, have.OIDC.Issuer, w.IssuerURL, have.OIDC.Issuer, w.out.strayed(have))
	}
	var d decision
	if have.State == deleted {
		k := providerCall(p.ProviderName(w.Pool, w.ID), "UndeleteWorkloadIdentityPoolProvider", "undelete")
		k.Method, k.Path, k.Body = "POST", k.Path+":undelete", struct{}{}
		d.steps = append(d.steps, c.rest.ChangeStep(k, fmt.Sprintf("Workload identity provider %s was deleted, undeleting it", w.ID), undeleted))
	}
	set := patch{}
	if text := w.describe(have.Description, ours); text != have.Description {
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
		jwks := ""
		if keys {
			jwks, _ = upload(w.JWKS) // it was asked before
		}
		k := set.toProvider(p, w)
		k.Again = c.unchanged(p, w, have, func(now *providerState) bool {
			next, err := c.decideProvider(p, w, now)
			return keys && sameKeys(jwks, now.OIDC.JWKS) || err == nil && len(next.steps) == 0
		})
		step := c.rest.ChangeStep(k, line, set.diff...).Changed("workload identity provider " + w.ID)
		if keys {
			step = w.out.by(step, jwks)
		}
		d.steps = append(d.steps, step)
	}
	return d, nil
}

// toProvider returns the call that changes a provider.
func (p patch) toProvider(of Project, w Provider) rest.Call {
	return p.call(providerCall(of.ProviderName(w.Pool, w.ID), "PatchWorkloadIdentityPoolProvider", "update"))
}

// unchanged returns what is asked before a change of a provider, decided from what it was, is sent again. Google may take it minutes later, and
// somebody else may change the provider in between; the API has no etag for providers. So it is read: one that an earlier request has changed, as
// made reports, is left, other keys end the change, and anything else is decided anew.
func (c *Client) unchanged(p Project, w Provider, from *providerState, made func(now *providerState) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		now, err := c.readProvider(ctx, p, w.Pool, w.ID)
		if err != nil || reflect.DeepEqual(now, from) {
			return err
		}
		m := &rest.Meanwhile{Answer: cloud.NotYet, Err: fmt.Errorf("%s %s has changed since it was read", providerThing, w.ID)}
		switch {
		case now == nil || now.OIDC == nil || from.OIDC == nil:
		case made(now):
			m.Answer = cloud.Perhaps
		case now.OIDC.JWKS != from.OIDC.JWKS:
			m.Answer, m.Err = cloud.Refused, fmt.Errorf("somebody else has changed the uploaded keys of %s %s while Google did not take the change, so it was not made: run this again", providerThing, w.ID)
		}
		return m
	}
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

// loss warns of what a change of a provider's issuer takes away.
func (w Provider) loss(issuer string) string {
	lost := fmt.Sprintf("provider %s takes no tokens of the issuer %s any more: every workload of that cluster loses access", w.ID, issuer)
	if !w.Adopt {
		lost += "; without --adopt this is refused"
	}
	return lost
}

// compareTrust compares whose tokens are taken. The error is about more audiences than Google allows, or about a condition that would
// refuse tokens of a cluster that lives by the provider.
func (d *decision) compareTrust(p Project, w Provider, have *providerState, set *patch) error {
	if have.OIDC.Issuer != w.IssuerURL {
		set.add("oidc.issuerUri", w.IssuerURL, replaced("issuer ", have.OIDC.Issuer, w.IssuerURL)...)
		if !w.vacant {
			d.warnings = append(d.warnings, w.loss(have.OIDC.Issuer))
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
		refused := fmt.Sprintf("with that attribute condition provider %s refuses tokens that do not fulfil %s, and takes some of them now; "+
			"create-workload-identity-provider with --adopt changes it", w.ID, w.Condition)
		if !w.Show {
			return fmt.Errorf("%s; nothing was changed", refused)
		}
		d.warnings = append(d.warnings, refused)
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
	old := keyIDs([]byte(have.OIDC.JWKS))
	if w.JWKS == nil {
		if have.OIDC.JWKS != "" && w.UsualKeys {
			return false, fmt.Errorf("provider %s has a copy of the keys; say --key-storage-method pool-jwk-file to bring it up to date, or --key-storage-method public-bucket to have Google fetch them from %s", w.ID, w.IssuerURL)
		}
		if have.OIDC.JWKS != "" {
			set.add("oidc.jwksJson", "", lines("- uploaded key ", old, "+ keys as published by ", []string{w.IssuerURL})...)
			d.warnings = append(d.warnings, fmt.Sprintf("Google fetches the keys of provider %s from %s from now on, and must reach it", w.ID, w.IssuerURL))
		}
		return false, nil
	}
	want, err := upload(w.JWKS)
	if err != nil || sameKeys(want, have.OIDC.JWKS) {
		return false, err
	}
	kids := keyIDs([]byte(want))
	switch why, lost := w.unknownCopy(want, have), lostKeys(want, have.OIDC.JWKS); {
	case why != "" && !w.Show:
		return false, rest.Problemf(UnknownCopy, "%s: nothing was changed", why)
	case why != "":
		d.warnings = append(d.warnings, why+"; this is refused")
	case w.Replace != "" && have.OIDC.JWKS != "" && len(lost) > 0: // no record tells of them afterwards
		d.warnings = append(d.warnings, fmt.Sprintf("provider %s holds keys that the store does not publish (%s), and nothing says whose they are: they are taken away",
			w.ID, text.List(lost, 3)))
	}
	diff := lines("- uploaded key ", minus(old, kids), "+ uploaded key ", minus(kids, old))
	if have.OIDC.JWKS == "" {
		diff = append([]string{"- keys as published by " + w.IssuerURL}, diff...)
	}
	if len(diff) == 0 {
		diff = []string{"~ uploaded keys of the same IDs"}
	}
	set.add("oidc.jwksJson", want, diff...)
	return true, nil
}

// unknownCopy says why the keys want are not to replace those that the provider holds; empty if they are. One that was deleted had
// nobody who lived by them.
func (w Provider) unknownCopy(want string, have *providerState) string {
	held := have.OIDC.JWKS
	if held == "" || w.Adopt || w.vacant {
		return ""
	}
	switch w.Replace {
	case ReplaceNothing:
		return fmt.Sprintf("provider %s holds a copy of other keys than the store publishes, and nothing says whether the store is behind it: its keys may have been revoked since", w.ID)
	case ReplaceUnrecorded:
		if lost := lostKeys(want, held); len(lost) > 0 {
			return fmt.Sprintf("provider %s holds keys that the store does not publish (%s), and nothing was recorded of that copy: the store may be behind it, or another's",
				w.ID, text.List(lost, 3))
		}
		if more := lostKeys(held, want); len(more) > 0 {
			return fmt.Sprintf("provider %s holds a copy without keys that the store publishes (%s), and nothing was recorded of that copy: the store may be behind it, and they may have been revoked since",
				w.ID, text.List(more, 3))
		}
	}
	return ""
}

// describe returns what the description of a provider is to be that has one. One that is given a copy of keys says of which key set, so that
// each later upload knows it for its own.
func (w Provider) describe(text string, ours bool) string {
	if !ours {
		text = w.Owner.describe(text)
	}
	if w.JWKS == nil && ours || !w.Owner.takesNamed(w.ID, text) {
		return text
	}
	if w.KeySet != "" && w.KeySet != w.Owner.name {
		text = w.Owner.describe(text)
	}
	return w.Owner.marked(text, w.KeySet)
}

// body is what makes the provider. The error is about the keys to upload.
func (w Provider) body() (map[string]any, error) {
	oidc := map[string]any{"issuerUri": w.IssuerURL, "allowedAudiences": w.Audiences}
	if w.JWKS != nil {
		keys, err := upload(w.JWKS)
		if err != nil {
			return nil, err
		}
		oidc["jwksJson"] = keys
	}
	body := map[string]any{"displayName": w.ID, "description": w.describe(made, false), "oidc": oidc,
		"attributeMapping": w.mapping()}
	if w.Condition != "" {
		body["attributeCondition"] = w.Condition
	}
	return body, nil
}

// checkOrganisation returns an error if the organisation lets no such issuer in. Where that cannot be asked, the write will tell:
// the permission for it is not among those that a provisioner must have.
func (c *Client) checkOrganisation(ctx context.Context, p Project, issuer string) error {
	k := rest.Call{Service: rest.ResourceManager, Name: "GetEffectiveOrgPolicy", Needs: "orgpolicy.policy.get", Method: "POST",
		Path: "projects/" + p.ID + ":getEffectiveOrgPolicy", Body: map[string]string{"constraint": rest.IssuerConstraint}}
	var out struct {
		List *struct {
			All     string   `json:"allValues"`
			Allowed []string `json:"allowedValues"`
			Denied  []string `json:"deniedValues"`
		} `json:"listPolicy"`
	}
	if c.rest.Ask(ctx, k, &out) != nil || out.List == nil {
		return nil
	}
	l, exactly := out.List, "is:"+issuer // values may say how they are meant
	denied := slices.Contains(l.Denied, issuer) || slices.Contains(l.Denied, exactly)
	allowed := len(l.Allowed) == 0 || slices.Contains(l.Allowed, issuer) || slices.Contains(l.Allowed, exactly)
	if l.All == "DENY" || denied || !allowed {
		return rest.Problemf(IssuerRefused, "the organisation's policy %s does not let the issuer %s in: its administrator must add that URL to "+
			"the policy's allowed values; nothing was changed", rest.IssuerConstraint, issuer)
	}
	return nil
}

// Registered is a provider as Google has it.
type Registered struct {
	IssuerURL string
	Audiences []string // none: its own full name
	Uploaded  bool     // it has a copy of the keys, and Google does not fetch them

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
	r := Registered{Installation: installationOf(s.Description), KeySet: keySetOf(s.Description)}
	r.Foreign = r.Installation == "" && !Owner{}.takes(s.Description)
	if s.OIDC != nil {
		r.IssuerURL, r.Audiences, r.Uploaded = s.OIDC.Issuer, s.OIDC.Audiences, s.OIDC.JWKS != ""
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
