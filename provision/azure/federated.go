package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

const (
	credentialsThing  = "federated credentials of"
	credentialsAction = identityAction + "federatedIdentityCredentials/"
)

// readCredentials returns the federated credentials of an identity that is there. One list costs less of what Azure allows than a call
// for each.
func (r *run) readCredentials(ctx context.Context, group, identity string) ([]credential, error) {
	return arm.All(ctx, arm.PagesOf(r.Client, credentialsAction+"read", r.Credentials.NewListPager(group, identity, nil)),
		func(p armmsi.FederatedIdentityCredentialsClientListResponse) []*armmsi.FederatedIdentityCredential {
			return p.Value
		},
		func(v armmsi.FederatedIdentityCredential) credential {
			q := arm.Deref(v.Properties)
			return credential{arm.Deref(v.Name), arm.Deref(q.Issuer), arm.Deref(q.Subject), strings.Join(arm.Values(q.Audiences), " ")}
		})
}

// comparison is what leads from the federated credentials of an identity to those that are wanted.
type comparison struct {
	put    []credential // each takes the place of the one of its name, if there is one
	remove []credential // whose accounts nobody names any more
	found  []credential
	kept   []credential // for the wanted issuer, and nobody wants them
	leaves string       // an issuer whose tokens a wanted subject's identity would take no more; empty for none
}

// compare compares by what Entra compares: issuer and subject, letter by letter. What is there stays, also for another issuer: a cluster
// may still sign as that one. With Prune one for this issuer that nobody wants goes, and an audience that was asked for takes the place of
// another. With instead a credential for another issuer becomes the wanted one, where the subject's tokens are taken only of that one.
func (r *run) compare(have, want []credential, instead bool) (comparison, error) {
	var c comparison
	used := map[string]bool{} // names of those that stay, or are written
	for _, w := range want {
		at := slices.IndexFunc(have, func(h credential) bool { return h.issuer == w.issuer && h.subject == w.subject })
		switch {
		case at >= 0 && (have[at].audience == w.audience || r.o.Usual || !r.o.Prune):
			w = have[at]
			c.found = append(c.found, w)
		case at >= 0:
			w.name = have[at].name
			c.put = append(c.put, w)
		default:
			at = slices.IndexFunc(have, func(h credential) bool { return h.subject == w.subject })
			if instead && at >= 0 {
				w.name, c.leaves = have[at].name, have[at].issuer
			} else {
				w.name = unused(have, w)
			}
			c.put = append(c.put, w)
		}
		used[folded(w.name)] = true
	}
	for _, h := range have {
		ours := sameIssuer(h.issuer, r.IssuerURL)
		switch {
		case used[folded(h.name)]:
		case slices.Contains(r.o.Drop, h.issuer) || ours && r.o.Prune:
			c.remove = append(c.remove, h)
		case ours:
			c.kept = append(c.kept, h)
		}
	}
	n := len(have)
	for _, w := range c.put {
		if under(have, w.name) == nil {
			n++
		}
	}
	if n > credentialCount {
		return c, fmt.Errorf("it would have %d federated credentials, and Azure allows %d: delete those that nobody needs", n, credentialCount)
	}
	return c, nil
}

// unused returns a name for a credential that is not there: its own, unless another credential has that.
func unused(have []credential, w credential) string {
	name := w.name
	for under(have, name) != nil {
		name = suffixed(name, name+" "+w.issuer+" "+w.subject)
	}
	return name
}

// under returns the credential of a name; nil if there is none.
func under(have []credential, name string) *credential {
	at := slices.IndexFunc(have, func(h credential) bool { return sameName(h.name, name) })
	if at < 0 {
		return nil
	}
	return &have[at]
}

// tokensOf names the tokens that a credential takes, where an issuer is wanted.
func tokensOf(c credential, issuer string) string {
	if c.issuer == issuer {
		return c.subject
	}
	return c.subject + " of " + c.issuer
}

// sameIssuer reports whether one URL is the other, or what a typing error made of it: Entra takes no token for that.
func sameIssuer(a, b string) bool {
	return sameName(strings.TrimRight(a, "/"), strings.TrimRight(b, "/"))
}

// planCredentials plans the federated credentials of an identity, all in one action: Azure takes one write at a time for an
// identity. A new identity, which others do not find everywhere yet, has none.
func (r *run) planCredentials(i identity, have []credential, isNew bool) (add, remove plan.Stage, about comparison, err error) {
	instead := r.owner == installation(r.Name) // its identities are one cluster's; those of workloads may be several clusters'
	about, err = r.compare(have, i.credentials, instead)
	if err != nil {
		return nil, nil, about, fmt.Errorf("%s %s: %w", identityThing, i.name, err)
	}
	read := func(steps func(have []credential, about comparison) []cloud.Step) cloud.Remaining {
		return func(ctx context.Context) ([]cloud.Step, error) {
			have, err := r.readCredentials(ctx, r.o.OIDCGroup, i.name)
			if err != nil && (!isNew || !arm.IsMissing(err)) {
				return nil, err
			}
			about, err := r.compare(have, i.credentials, instead)
			if err == nil {
				err = r.refuseIssuer(i.name, about) // somebody may have written it since it was planned
			}
			return steps(have, about), err
		}
	}
	puts := func(have []credential, about comparison) []cloud.Step { return r.putSteps(i.name, have, about.put) }
	deletes := func(_ []credential, about comparison) []cloud.Step { return r.deleteSteps(i.name, about.remove) }
	change := plan.Change{Verb: plan.Update, Thing: credentialsThing, Name: i.name}
	remove = r.stage(change, deletes(have, about), read(deletes))
	if len(have) == 0 {
		change.Verb = plan.Create
	}
	return r.stage(change, puts(have, about), read(puts)), remove, about, r.refuseIssuer(i.name, about)
}

// told returns what there is to say of the federated credentials of an identity.
func (r *run) told(i identity, about comparison) (said plan.Plan) {
	for _, f := range about.found {
		if r.Mode != install.Preview { // where they would hide what differs
			said.Notes = append(said.Notes, "Found existing federated identity credential "+r.credentialID(i.name, f.name))
		}
		if f.audience != r.o.Audience {
			said.Extra = append(said.Extra, fmt.Sprintf("identity %s takes tokens of %s for the audience %s, and not %s; --audience %s --prune changes it",
				i.name, f.subject, f.audience, r.o.Audience, r.o.Audience))
		}
	}
	for _, k := range about.kept {
		said.Extra = append(said.Extra, fmt.Sprintf("identity %s takes tokens of %s too, which nobody asked for; --prune takes it away", i.name,
			tokensOf(k, r.IssuerURL)))
	}
	for _, c := range about.remove {
		said.Warnings = append(said.Warnings, fmt.Sprintf("identity %s no longer takes tokens of %s", i.name, tokensOf(c, r.IssuerURL)))
	}
	if old := about.leaves; old != "" {
		w := fmt.Sprintf("identity %s takes no tokens of the issuer %s any more: every workload of that cluster loses access", i.name, old)
		if !r.o.Adopt {
			w += "; without --adopt this is refused"
		}
		said.Warnings = append(said.Warnings, w)
	}
	return said
}

// refuseIssuer returns an error for an identity that would leave an issuer, unless it is to be adopted or it is only shown: a live
// cluster, made under the same name, may sign as that one.
func (r *run) refuseIssuer(identity string, about comparison) error {
	old := about.leaves
	if old == "" || r.o.Adopt || r.Mode == install.Preview {
		return nil
	}
	return problem(OtherIssuer, "%s %s trusts the issuer %s, and not %s as asked: changed, it would take no token of %s any more, and every workload "+
		"of that cluster would lose access", identityThing, identity, old, r.IssuerURL, old)
}

func (r *run) credentialID(identity, name string) string {
	return r.identityID(identity) + "/federatedIdentityCredentials/" + name
}

// String returns a credential as a diff shows it.
func (c credential) String() string {
	return fmt.Sprintf("%s: %s of %s for %s", c.name, c.subject, c.issuer, c.audience)
}

// putSteps returns the steps that write credentials.
func (r *run) putSteps(identity string, have, put []credential) []cloud.Step {
	var steps []cloud.Step
	for _, w := range put {
		in := armmsi.FederatedIdentityCredential{Properties: &armmsi.FederatedIdentityCredentialProperties{
			Issuer: &w.issuer, Subject: &w.subject, Audiences: []*string{&w.audience}}}
		step := cloud.Step{Key: w.String(), Diff: []string{"+ " + w.String()},
			Line: "Created federated identity credential " + r.credentialID(identity, w.name),
			Call: r.Writing(credentialsAction+"write", func(ctx context.Context) (any, error) {
				return r.Credentials.CreateOrUpdate(ctx, r.o.OIDCGroup, identity, w.name, in, nil)
			})}
		if was := under(have, w.name); was != nil {
			step.Diff = []string{"- " + was.String(), step.Diff[0]}
			step.Line = "Updated federated identity credential " + r.credentialID(identity, w.name)
			step = step.Changed(fmt.Sprintf("federated identity credential %s of %s", w.name, identity))
		}
		steps = append(steps, step)
	}
	return steps
}

// deleteSteps returns the steps that delete credentials.
func (r *run) deleteSteps(identity string, remove []credential) []cloud.Step {
	var steps []cloud.Step
	for _, w := range remove {
		steps = append(steps, cloud.Step{Key: w.String(), Diff: []string{"- " + w.String()},
			Line: "Deleted federated identity credential " + r.credentialID(identity, w.name),
			Call: r.Deleting(credentialsAction+"delete", func(ctx context.Context) (any, error) {
				return r.Credentials.Delete(ctx, r.o.OIDCGroup, identity, w.name, nil)
			})})
	}
	return steps
}
