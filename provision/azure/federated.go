package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

const (
	credentialsThing  = "federated credentials of"
	credentialsAction = "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/"
)

// readCredentials returns the federated credentials of an identity that is there. One that this run has made may not be known
// everywhere yet, and has none; of another, which was read before, a 404 does not mean that: a PUT would write over those of a live
// cluster. One list costs less of what Azure allows than a call for each.
func (c *client) readCredentials(ctx context.Context, group, identity string) ([]credential, error) {
	if err := c.turn(ctx, c.Lists, credentialsAction+"read", identity); err != nil {
		return nil, err
	}
	list, err := arm.All(ctx, arm.PagesOf(c.Client, credentialsAction+"read",
		c.Credentials.NewListPager(group, identity, nil)), func(p armmsi.FederatedIdentityCredentialsClientListResponse) []*armmsi.FederatedIdentityCredential {
		return p.Value
	}, stateOfCredential)
	if arm.IsMissing(err) && c.isMade(identity) {
		return nil, nil
	}
	return list, err
}

func stateOfCredential(v armmsi.FederatedIdentityCredential) credential {
	s := credential{name: arm.Deref(v.Name)}
	if q := v.Properties; q != nil {
		s.issuer, s.subject, s.audience = arm.Deref(q.Issuer), arm.Deref(q.Subject), strings.Join(arm.Values(q.Audiences), " ")
	}
	return s
}

// comparison is what leads from the federated credentials of an identity to those that are wanted.
type comparison struct {
	put    []replacement
	remove []credential // whose accounts nobody names any more
	found  []credential
	others []string     // issuers that are trusted too
	kept   []credential // for the wanted issuer, and nobody wants them
	lost   []string     // subjects that are trusted no more, with the issuer if that was spelled otherwise
	leaves []string     // issuers of which a wanted subject's tokens are taken now, and none of the wanted issuer's
}

// replacement is a credential to write, and what is under its name now.
type replacement struct {
	credential
	was *credential
}

// compare compares by what Entra compares: issuer and subject, letter by letter. What is there stays, also for another issuer: a cluster
// may still sign as that one. With Prune one for this issuer that nobody wants goes, and an audience that was asked for takes the place of
// another. With instead a credential for another issuer becomes the wanted one, where the subject's tokens are taken of that one alone.
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
			c.put = append(c.put, replacement{w, &have[at]})
		default:
			put := c.missing(have, w, instead)
			w = put.credential
			c.put = append(c.put, put)
		}
		used[folded(w.name)] = true
	}
	for _, h := range have {
		ours := sameIssuer(h.issuer, r.IssuerURL)
		switch {
		case used[folded(h.name)]:
		case slices.Contains(r.o.Drop, h.issuer) || ours && r.o.Prune:
			c.remove = append(c.remove, h)
			c.lost = append(c.lost, lostOf(h, r.IssuerURL))
		case ours:
			c.kept = append(c.kept, h)
		case !slices.Contains(c.others, h.issuer):
			c.others = append(c.others, h.issuer)
		}
	}
	if n := len(have) + added(c.put); n > credentialCount {
		return c, fmt.Errorf("it would have %d federated credentials, and Azure allows %d: delete those that nobody needs", n, credentialCount)
	}
	return c, nil
}

// missing returns how to make a credential that is wanted and not there. Its name is its own, unless another credential has that.
func (c *comparison) missing(have []credential, w credential, instead bool) replacement {
	if at := slices.IndexFunc(have, func(h credential) bool { return h.subject == w.subject }); instead && at >= 0 {
		if was := have[at].issuer; !slices.Contains(c.leaves, was) {
			c.leaves = append(c.leaves, was)
		}
		w.name = have[at].name
		return replacement{w, &have[at]}
	}
	for slices.ContainsFunc(have, func(h credential) bool { return sameName(h.name, w.name) }) {
		w.name = suffixed(w.name, w.name+" "+w.issuer+" "+w.subject)
	}
	return replacement{w, nil}
}

// lostOf names the tokens of a credential that goes where an issuer is wanted.
func lostOf(c credential, issuer string) string {
	if c.issuer == issuer {
		return c.subject
	}
	return c.subject + " of " + c.issuer
}

func added(put []replacement) int {
	n := 0
	for _, p := range put {
		if p.was == nil {
			n++
		}
	}
	return n
}

// sameIssuer reports whether one URL is the other, or what a typing error made of it: Entra takes no token for that.
func sameIssuer(a, b string) bool {
	return sameName(strings.TrimRight(a, "/"), strings.TrimRight(b, "/"))
}

// planCredentials plans the federated credentials of an identity, all in one action: Azure takes one write at a time for an
// identity.
func (r *run) planCredentials(i identity, have []credential) (add, remove plan.Stage, about comparison, err error) {
	c, group := r.client, r.o.OIDCGroup
	instead := r.owner == installation(r.Name) // its identities are one cluster's; those of workloads may be several clusters'
	about, err = r.compare(have, i.credentials, instead)
	if err != nil {
		return nil, nil, about, fmt.Errorf("%s %s: %w", identityThing, i.name, err)
	}
	read := func(steps func(comparison) []cloud.Step) cloud.Remaining {
		return func(ctx context.Context) ([]cloud.Step, error) {
			var have []credential
			if !c.isBare(hangsFederated, i.name) {
				var err error
				if have, err = c.readCredentials(ctx, group, i.name); err != nil {
					return nil, err
				}
			}
			about, err := r.compare(have, i.credentials, instead)
			if err == nil {
				err = r.refuseIssuer([]leaving{{i.name, about.leaves}}) // somebody may have written it since it was planned
			}
			return steps(about), err
		}
	}
	puts := func(about comparison) []cloud.Step { return c.putSteps(group, i.name, about.put) }
	deletes := func(about comparison) []cloud.Step { return c.deleteSteps(group, i.name, about.remove) }
	change := plan.Change{Verb: plan.Update, Thing: credentialsThing, Name: i.name}
	remove = c.stage(change, deletes(about), read(deletes))
	if len(have) == 0 {
		change.Verb = plan.Create
	}
	return c.stage(change, puts(about), read(puts)), remove, about, nil
}

// notDropped returns a note for each issuer that is to be dropped and that an identity takes no tokens of: perhaps it was mistyped.
func (r *run) notDropped(i identity, have []credential) []string {
	var notes []string
	for _, issuer := range r.o.Drop {
		if !slices.ContainsFunc(have, func(c credential) bool { return c.issuer == issuer }) {
			notes = append(notes, fmt.Sprintf("identity %s takes no tokens of %s", i.name, issuer))
		}
	}
	return notes
}

// otherSubjects lists the credentials that stay and that nobody asked for.
func otherSubjects(identity string, about comparison, issuer string) []string {
	var extra []string
	for _, k := range about.kept {
		extra = append(extra, fmt.Sprintf("identity %s takes tokens of %s too, which nobody asked for; --prune takes it away", identity, lostOf(k, issuer)))
	}
	return extra
}

// otherAudiences lists the credentials that keep another audience than the usual one.
func (r *run) otherAudiences(identity string, found []credential) []string {
	var extra []string
	for _, f := range found {
		if f.audience != r.o.Audience {
			extra = append(extra, fmt.Sprintf("identity %s takes tokens of %s for the audience %s, and not %s; --audience %s --prune changes it",
				identity, f.subject, f.audience, r.o.Audience, r.o.Audience))
		}
	}
	return extra
}

// leaving is an identity that would no longer take tokens of the issuers that it trusts.
type leaving struct {
	identity string
	issuers  []string
}

// refuseIssuer returns an error for identities that would leave an issuer, unless they are to be adopted or it is only shown: a
// live cluster, made under the same name, may sign as that one.
func (r *run) refuseIssuer(all []leaving) error {
	all = slices.DeleteFunc(slices.Clone(all), func(l leaving) bool { return len(l.issuers) == 0 })
	if len(all) == 0 || r.o.Adopt || r.Mode == install.Preview {
		return nil
	}
	old, more := all[0].issuers[0], ""
	if n := len(all) - 1; n > 0 {
		more = fmt.Sprintf(" (and %s likewise)", text.Count(n, "other does", "others do"))
	}
	return problem(OtherIssuer, "%s %s trusts the issuer %s, and not %s as asked%s: changed, it would take no token of %s any more, and every workload "+
		"of that cluster would lose access", identityThing, all[0].identity, old, r.IssuerURL, more, old)
}

// checkUnknown warns of an issuer URL that no key set of the store has. It returns an error if none of the identities trusts it yet and
// some are to, unless it is to be adopted or is only shown: Azure takes any URL for a federated credential, and whoever gets the name
// of one that was mistyped would be trusted.
func (r *run) checkUnknown(w *world, put int) (warnings []string, err error) {
	if !r.unknown {
		return nil, nil
	}
	says := fmt.Sprintf("no key set of %s has the issuer URL %s, which the identities are to trust: see that it is spelled right, and whose it is",
		r.Store.Name, r.IssuerURL)
	for _, h := range w.hanging {
		if slices.ContainsFunc(h.credentials, func(c credential) bool { return c.issuer == r.IssuerURL }) {
			put = 0
		}
	}
	switch {
	case put > 0 && !r.o.Adopt && r.Mode != install.Preview:
		return nil, problem(UnknownIssuer, "%s", says)
	case put > 0 && !r.o.Adopt:
		says += "; without --adopt this is refused"
	}
	return []string{says}, nil
}

// losses warns of what a change of the issuer takes away.
func (r *run) losses(l leaving) []string {
	var warnings []string
	for _, old := range l.issuers {
		w := fmt.Sprintf("identity %s takes no tokens of the issuer %s any more: every workload of that cluster loses access", l.identity, old)
		if !r.o.Adopt {
			w += "; without --adopt this is refused"
		}
		warnings = append(warnings, w)
	}
	return warnings
}

func (c *client) credentialID(group, identity, name string) string {
	return c.identityID(group, identity) + "/federatedIdentityCredentials/" + name
}

func (c *client) putSteps(group, identity string, put []replacement) []cloud.Step {
	var steps []cloud.Step
	for _, w := range put {
		verb, diff := "Created", []string{}
		if w.was != nil {
			verb = "Updated"
			diff = append(diff, fmt.Sprintf("- %s: %s of %s for %s", w.was.name, w.was.subject, w.was.issuer, w.was.audience))
		}
		diff = append(diff, fmt.Sprintf("+ %s: %s of %s for %s", w.name, w.subject, w.issuer, w.audience))
		step := cloud.Step{Key: fmt.Sprint(w.credential), Diff: diff,
			Line: fmt.Sprintf("%s federated identity credential %s", verb, c.credentialID(group, identity, w.name)),
			Call: func(ctx context.Context) (cloud.Answer, error) {
				return arm.Answer(c.putCredential(ctx, group, identity, w.credential))
			}}
		if w.was != nil {
			step = step.Changed(fmt.Sprintf("federated identity credential %s of %s", w.name, identity))
		}
		steps = append(steps, step)
	}
	return steps
}

func (c *client) putCredential(ctx context.Context, group, identity string, w credential) error {
	if err := c.turn(ctx, c.Writes, credentialsAction+"write", identity); err != nil {
		return err
	}
	_, err := arm.Send(ctx, c.Client, credentialsAction+"write",
		func(ctx context.Context) (armmsi.FederatedIdentityCredentialsClientCreateOrUpdateResponse, error) {
			return c.Credentials.CreateOrUpdate(ctx, group, identity, w.name, armmsi.FederatedIdentityCredential{
				Properties: &armmsi.FederatedIdentityCredentialProperties{Issuer: &w.issuer, Subject: &w.subject, Audiences: []*string{&w.audience}}}, nil)
		})
	return err
}

func (c *client) deleteSteps(group, identity string, remove []credential) []cloud.Step {
	var steps []cloud.Step
	for _, w := range remove {
		steps = append(steps, cloud.Step{Key: fmt.Sprint(w), Diff: []string{fmt.Sprintf("- %s: %s of %s for %s", w.name, w.subject, w.issuer, w.audience)},
			Line: "Deleted federated identity credential " + c.credentialID(group, identity, w.name),
			Call: func(ctx context.Context) (cloud.Answer, error) {
				if err := c.turn(ctx, c.Writes, credentialsAction+"delete", identity); err != nil {
					return cloud.Refused, err
				}
				_, err := arm.Send(ctx, c.Client, credentialsAction+"delete",
					func(ctx context.Context) (armmsi.FederatedIdentityCredentialsClientDeleteResponse, error) {
						return c.Credentials.Delete(ctx, group, identity, w.name, nil)
					})
				return arm.Gone(err)
			}})
	}
	return steps
}
