package azure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// movedAtTag returns the name of the tag, on the resource group of the identities, that keeps when the switch of an installation
// away from an old issuer was first seen complete. Installations may share the group, and one may move again: the time of
// another move would open the gate of this one at once.
func movedAtTag(installation, old string) string {
	return "keypost.dev_moved-at_" + suffixed(folded(installation), folded(installation)+"\n"+old)
}

// MigrateOptions say from which issuer a live cluster moves to which.
type MigrateOptions struct {
	Options // of the new issuer
	install.Move
}

// Migrated is what a run of [Migrate] or [FinishMigration] did.
type Migrated struct {
	Preview *plan.Preview         // with mode Preview
	KeySet  keystore.KeySet       // that has the keys; only Migrate sets it, without mode Preview
	Gate    *keystore.NotYetError // with mode Preview: what FinishMigration would wait for; nil if nothing
}

// Migrate publishes the keys of the old issuer under the new one, and gives every identity of the installation a second
// federated credential for each that it has for the old issuer. Azure then takes tokens of both. Each run does what is still to
// be done.
func Migrate(ctx context.Context, o MigrateOptions) (Migrated, error) {
	r, err := newMigration(ctx, o)
	if err != nil {
		return Migrated{}, err
	}
	keys, err := r.MovedKeys(ctx, o.Move, []string{o.Audience})
	if err != nil {
		return Migrated{}, err
	}
	for _, k := range keys.Keys {
		if err := checkKey(k); err != nil {
			return Migrated{}, err
		}
	}
	p, err := r.planMove(ctx, o.Old) // before anything is published: it also shows whether every credential fits
	if err != nil {
		return Migrated{}, err
	}
	if o.Mode == install.Preview {
		v := p.Preview().After(keys.Changes()...)
		return Migrated{Preview: &v}, nil
	}
	if err := r.PublishMoved(ctx, keys); err != nil {
		return Migrated{}, err
	}
	if p, err = r.planMove(ctx, o.Old); err != nil { // again: the wait was long enough for others to change an identity
		return Migrated{}, err
	}
	if !p.Empty() { // a new move, whose switch is still to come, whatever an earlier one has left
		if err := r.forgetSwitch(ctx, o.Old); err != nil {
			return Migrated{}, err
		}
	}
	return Migrated{KeySet: keys.Stored}, r.Apply(ctx, p, r.o.parallel())
}

// newMigration checks what is wanted before anybody is called, then identifies the subscription.
func newMigration(ctx context.Context, o MigrateOptions) (*run, error) {
	r := newRun(o.Options)
	if err := o.check(nil); err != nil {
		return nil, err
	}
	if sameIssuer(o.Old, o.IssuerURL) {
		return nil, fmt.Errorf("the old issuer %s and the new one %s differ at most by letter case or a slash at the end: clients take one for the "+
			"other, so the cluster cannot move between them", o.Old, o.IssuerURL)
	}
	if o.Store.Check != nil {
		if err := o.Store.Check(); err != nil {
			return nil, err
		}
	}
	if err := r.identify(ctx); err != nil {
		return nil, err
	}
	r.Line("Moving from issuer %s to %s", o.Old, o.IssuerURL)
	return r, nil
}

// moving is an identity of the installation with its federated credentials.
type moving struct {
	identityState
	credentials []credential
}

// takes reports whether the identity takes tokens of an issuer.
func (m moving) takes(issuer string) bool {
	return slices.ContainsFunc(m.credentials, func(c credential) bool { return c.issuer == issuer })
}

// moving reads the identities. An error says so if none of them has to do with the move: nothing would be moved then, and the
// cluster switched all the same.
func (r *run) moving(ctx context.Context, old string) ([]moving, error) {
	identities, _, err := r.ours(ctx)
	if err != nil {
		return nil, err
	}
	all, err := each(identities, func(s identityState) (moving, error) {
		have, err := r.readCredentials(ctx, r.o.OIDCGroup, s.name)
		return moving{s, have}, err
	})
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(all, func(m moving) bool { return m.takes(old) || m.takes(r.IssuerURL) }) {
		return all, nil
	}
	return nil, fmt.Errorf("no managed identity of %s in resource group %s takes tokens of %s: is the name, the group or the old issuer another one?",
		r.Name, r.o.OIDCGroup, old)
}

// second returns the credentials for the new issuer that stand beside those for the old one. Subjects and audiences are these.
func second(have []credential, old, issuer string) []credential {
	var want []credential
	for _, c := range have {
		if c.issuer == old {
			c.issuer = issuer
			want = append(want, c)
		}
	}
	return want
}

// planMove plans the second credentials.
func (r *run) planMove(ctx context.Context, old string) (plan.Plan, error) {
	all, err := r.moving(ctx, old)
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := r.planEach(all, func(identity string, have []credential) ([]cloud.Step, error) {
		about, err := r.compare(have, second(have, old, r.IssuerURL), false)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", identityThing, identity, err)
		}
		return r.putSteps(identity, have, about.put), nil
	})
	for _, m := range all {
		if !m.takes(old) && !m.takes(r.IssuerURL) {
			p.Warnings = append(p.Warnings, fmt.Sprintf("identity %s takes tokens of neither %s nor %s, and is not moved", m.name, old, r.IssuerURL))
		}
	}
	return p, err
}

// planEach plans a change of the federated credentials of each identity, by the steps from those that it has.
func (r *run) planEach(all []moving, steps func(identity string, have []credential) ([]cloud.Step, error)) (plan.Plan, error) {
	var stage plan.Stage
	for _, m := range all {
		first, err := steps(m.name, m.credentials)
		if err != nil {
			return plan.Plan{}, err
		}
		read := func(ctx context.Context) ([]credential, error) { return r.readCredentials(ctx, r.o.OIDCGroup, m.name) }
		again := then(read, func(have []credential) ([]cloud.Step, error) { return steps(m.name, have) })
		stage = append(stage, r.stage(plan.Change{Verb: plan.Update, Thing: credentialsThing, Name: m.name}, first, again)...)
	}
	return plan.Of(nil, stage), nil
}

// FinishMigration takes the old issuer's credentials away, once no token of it can be in use. Before that, the error is the
// [*keystore.NotYetError] of [install.Run.MayFinish].
func FinishMigration(ctx context.Context, o MigrateOptions) (Migrated, error) {
	r, err := newMigration(ctx, o)
	if err != nil {
		return Migrated{}, err
	}
	p, err := r.planFinish(ctx, o.Old)
	if err != nil {
		return Migrated{}, err
	}
	var done Migrated
	if !p.Empty() {
		if done.Gate, err = r.MayFinish(ctx, o.Move, []string{o.Audience}, switchRecord{r, o.Old}); err != nil {
			return Migrated{}, err
		}
	}
	if done.Preview, err = r.carryOut(ctx, p); err != nil || o.Mode != install.Apply {
		return done, err
	}
	return done, r.forgetSwitch(ctx, o.Old) // also where a run that was killed had no time to
}

// planFinish plans to delete the credentials for the old issuer, each of which must have its second one.
func (r *run) planFinish(ctx context.Context, old string) (plan.Plan, error) {
	all, err := r.moving(ctx, old)
	if err != nil {
		return plan.Plan{}, err
	}
	return r.planEach(all, func(identity string, have []credential) ([]cloud.Step, error) {
		var gone []credential
		for _, c := range have {
			if c.issuer != old {
				continue
			}
			beside := slices.ContainsFunc(have, func(h credential) bool {
				return h.issuer == r.IssuerURL && h.subject == c.subject && h.audience == c.audience
			})
			if !beside {
				return nil, fmt.Errorf("%s %s takes tokens of %s as %s only: move it first", identityThing, identity, c.subject, old)
			}
			gone = append(gone, c)
		}
		return r.deleteSteps(identity, gone), nil
	})
}

// switchRecord keeps the time of the switch in a tag of the identities' resource group.
type switchRecord struct {
	run *run
	old string // issuer URL
}

func (s switchRecord) tag() string { return movedAtTag(s.run.Name, s.old) }

// read returns the group, nil if it is not there, and what is recorded; empty for nothing.
func (s switchRecord) read(ctx context.Context) (*groupState, string, error) {
	g, err := s.run.readGroup(ctx, s.run.o.OIDCGroup)
	if g == nil || err != nil {
		return nil, "", err
	}
	return g, named(g.tags, s.tag())[s.tag()], nil
}

func (s switchRecord) MovedAt(ctx context.Context) (time.Time, error) {
	g, text, err := s.read(ctx)
	if text == "" || err != nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("the tag %s=%s of resource group %s is not a time: take it away, and the wait begins anew", s.tag(), text, g.name)
	}
	return at, nil
}

// SetMovedAt changes that one tag: a write of the group's tags would take away what others wrote since they were read.
func (s switchRecord) SetMovedAt(ctx context.Context, at time.Time) ([]string, error) {
	g, have, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, fmt.Errorf("there is no resource group %s", s.run.o.OIDCGroup)
	}
	if !s.run.owner.owns(g.tags) {
		return nil, s.run.owner.refuse(groupThing+" "+g.name, g.tags)
	}
	operation, value := armresources.TagsPatchOperationMerge, at.UTC().Format(time.RFC3339)
	if at.IsZero() {
		operation, value = armresources.TagsPatchOperationDelete, have
	}
	_, err = s.run.patchTags(s.run.o.groupID(s.run.o.OIDCGroup), operation, map[string]string{s.tag(): value})(ctx)
	return []string{"Updated tags of resource group " + g.id}, err
}

// forgetSwitch takes away what is recorded of the switch away from an issuer.
func (r *run) forgetSwitch(ctx context.Context, old string) error {
	record := switchRecord{r, old}
	_, text, err := record.read(ctx)
	if text == "" || err != nil {
		return err
	}
	lines, err := record.SetMovedAt(ctx, time.Time{})
	if err == nil {
		r.Lines(lines)
	}
	return err
}
