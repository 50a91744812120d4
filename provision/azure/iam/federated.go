package iam

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

const credentialsThing = "federated credentials of"

// readCredentials returns the federated credentials of an identity that is there. One list costs less of what Azure allows than a call
// for each.
func (r *Run) readCredentials(ctx context.Context, identity string) ([]Credential, error) {
	list, err := arm.List[struct {
		Name       string
		Properties struct {
			Issuer, Subject string
			Audiences       []string
		}
	}](ctx, r.Client, credentials.At(strings.TrimSuffix(r.credentialID(identity, ""), "/")))
	var all []Credential
	for _, c := range list {
		all = append(all, Credential{c.Name, c.Properties.Issuer, c.Properties.Subject, strings.Join(c.Properties.Audiences, " ")})
	}
	return all, err
}

// comparison is what leads from the federated credentials of an identity to those that are wanted.
type comparison struct {
	put    []Credential // each takes the place of the one of its name, if there is one
	remove []Credential // whose accounts nobody names any more
	found  []Credential
	kept   []Credential // for the wanted issuer, and nobody wants them
	leaves string       // an issuer whose tokens a wanted subject's identity would take no more; empty for none
}

// compare compares by what Entra compares: issuer and subject, letter by letter. What is there stays, also for another issuer: a cluster
// may still sign as that one. With Prune one for this issuer that nobody wants goes, and an audience that was asked for takes the place of
// another. With instead a credential for another issuer becomes the wanted one, where the subject's tokens are taken only of that one.
func (r *Run) compare(have, want []Credential, instead bool) (c comparison) {
	used := map[string]bool{} // names of those that stay, or are written
	for _, w := range want {
		at := slices.IndexFunc(have, func(h Credential) bool { return h.Issuer == w.Issuer && h.Subject == w.Subject })
		switch {
		case at >= 0 && (have[at].Audience == w.Audience || r.O.Usual || !r.O.Prune):
			w = have[at]
			c.found = append(c.found, w)
		case at >= 0:
			w.Name = have[at].Name
			c.put = append(c.put, w)
		default:
			at = slices.IndexFunc(have, func(h Credential) bool { return h.Subject == w.Subject })
			if instead && at >= 0 {
				w.Name, c.leaves = have[at].Name, have[at].Issuer
			} else {
				w.Name = unused(have, w)
			}
			c.put = append(c.put, w)
		}
		used[Folded(w.Name)] = true
	}
	for _, h := range have {
		ours := SameIssuer(h.Issuer, r.IssuerURL)
		switch {
		case used[Folded(h.Name)]:
		case slices.Contains(r.O.Drop, h.Issuer) || ours && r.O.Prune:
			c.remove = append(c.remove, h)
		case ours:
			c.kept = append(c.kept, h)
		}
	}
	return c
}

// unused returns a name for a credential that is not there: its own, unless another credential has that.
func unused(have []Credential, w Credential) string {
	name := w.Name
	for under(have, name) != nil {
		name = Suffixed(name, name+" "+w.Issuer+" "+w.Subject)
	}
	return name
}

// under returns the credential of a name; nil if there is none.
func under(have []Credential, name string) *Credential {
	at := slices.IndexFunc(have, func(h Credential) bool { return SameName(h.Name, name) })
	if at < 0 {
		return nil
	}
	return &have[at]
}

// tokensOf names the tokens that a credential takes, where an issuer is wanted.
func tokensOf(c Credential, issuer string) string {
	if c.Issuer == issuer {
		return c.Subject
	}
	return c.Subject + " of " + c.Issuer
}

// SameIssuer reports whether one URL is the other, or what a typing error made of it: Entra takes no token for that.
func SameIssuer(a, b string) bool {
	return SameName(strings.TrimRight(a, "/"), strings.TrimRight(b, "/"))
}

// planCredentials plans the federated credentials of an identity, all in one action: Azure takes one write at a time for an
// identity. A new identity, which others do not find everywhere yet, has none.
func (r *Run) planCredentials(i Identity, have []Credential, isNew bool) (add, remove plan.Stage, about comparison, err error) {
	instead := r.Owner == Installation(r.Name) // its identities are one cluster's; those of workloads may be several clusters'
	about = r.compare(have, i.Credentials, instead)
	read := func(steps func(have []Credential, about comparison) []cloud.Step) cloud.Remaining {
		return func(ctx context.Context) ([]cloud.Step, error) {
			have, err := r.readCredentials(ctx, i.Name)
			if err != nil && (!isNew || !arm.IsMissing(err)) {
				return nil, err
			}
			about := r.compare(have, i.Credentials, instead)
			return steps(have, about), r.refuseIssuer(i.Name, about) // somebody may have written it since it was planned
		}
	}
	puts := func(have []Credential, about comparison) []cloud.Step { return r.putSteps(i.Name, have, about.put) }
	deletes := func(_ []Credential, about comparison) []cloud.Step { return r.deleteSteps(i.Name, about.remove) }
	change := plan.Change{Verb: plan.Update, Thing: credentialsThing, Name: i.Name}
	remove = r.API.Stage(change, deletes(have, about), read(deletes))
	if len(have) == 0 {
		change.Verb = plan.Create
	}
	return r.API.Stage(change, puts(have, about), read(puts)), remove, about, r.refuseIssuer(i.Name, about)
}

// told returns what there is to say of the federated credentials of an identity.
func (r *Run) told(i Identity, about comparison) (said plan.Plan) {
	for _, f := range about.found {
		if r.Mode != install.Preview { // where they would hide what differs
			said.Notes = append(said.Notes, "Found existing federated identity credential "+r.credentialID(i.Name, f.Name))
		}
		if f.Audience != r.O.Audience {
			said.Extra = append(said.Extra, fmt.Sprintf("identity %s takes tokens of %s for the audience %s, and not %s; --audience %s --prune changes it",
				i.Name, f.Subject, f.Audience, r.O.Audience, r.O.Audience))
		}
	}
	for _, k := range about.kept {
		said.Extra = append(said.Extra, fmt.Sprintf("identity %s takes tokens of %s too, which nobody asked for; --prune takes it away", i.Name,
			tokensOf(k, r.IssuerURL)))
	}
	for _, c := range about.remove {
		said.Warnings = append(said.Warnings, fmt.Sprintf("identity %s no longer takes tokens of %s", i.Name, tokensOf(c, r.IssuerURL)))
	}
	if old := about.leaves; old != "" {
		said.Warnings = append(said.Warnings, fmt.Sprintf("identity %s takes no tokens of the issuer %s any more: every workload of that "+
			"cluster loses access", i.Name, old))
	}
	return said
}

// refuseIssuer returns an error for an identity that would leave an issuer, unless it is to be adopted: a live cluster, made under
// the same name, may sign as that one.
func (r *Run) refuseIssuer(identity string, about comparison) error {
	old := about.leaves
	if old == "" || r.O.Adopt {
		return nil
	}
	return arm.Refuse(arm.OtherIssuer, "%s %s trusts the issuer %s, and not %s as asked: changed, it would take no token of %s any more, and every workload "+
		"of that cluster would lose access", IdentityThing, identity, old, r.IssuerURL, old)
}

func (r *Run) credentialID(identity, name string) string {
	return r.IdentityID(identity) + "/federatedIdentityCredentials/" + name
}

// String returns a credential as a diff shows it.
func (c Credential) String() string {
	return fmt.Sprintf("%s: %s of %s for %s", c.Name, c.Subject, c.Issuer, c.Audience)
}

// putSteps returns the steps that write credentials.
func (r *Run) putSteps(identity string, have, put []Credential) []cloud.Step {
	var steps []cloud.Step
	for _, w := range put {
		id := r.credentialID(identity, w.Name)
		step := cloud.Step{Key: w.String(), Diff: []string{"+ " + w.String()}, Line: "Created federated identity credential " + id,
			Call: r.Put(credentials.At(id), map[string]any{"properties": map[string]any{
				"issuer": w.Issuer, "subject": w.Subject, "audiences": []string{w.Audience}}}, nil)}
		if was := under(have, w.Name); was != nil {
			step.Diff = []string{"- " + was.String(), step.Diff[0]}
			step.Line = "Updated federated identity credential " + id
			step = step.Changed(fmt.Sprintf("federated identity credential %s of %s", w.Name, identity))
		}
		steps = append(steps, step)
	}
	return steps
}

// deleteSteps returns the steps that delete credentials.
func (r *Run) deleteSteps(identity string, remove []Credential) []cloud.Step {
	var steps []cloud.Step
	for _, w := range remove {
		id := r.credentialID(identity, w.Name)
		steps = append(steps, cloud.Step{Key: w.String(), Diff: []string{"- " + w.String()}, Line: "Deleted federated identity credential " + id,
			Call: r.Delete(credentials.At(id))})
	}
	return steps
}
