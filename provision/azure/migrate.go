package azure

import (
	"context"
	"fmt"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure/iam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

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
	p, err := r.PlanMove(ctx, o.Old) // before anything is published: it also shows whether every credential fits
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
	if p, err = r.PlanMove(ctx, o.Old); err != nil { // again: the wait was long enough for others to change an identity
		return Migrated{}, err
	}
	if !p.Empty() { // a new move, whose switch is still to come, whatever an earlier one has left
		if err := (iam.Switch{Run: r.Run, Old: o.Old}).Forget(ctx); err != nil {
			return Migrated{}, err
		}
	}
	return Migrated{KeySet: keys.Stored}, r.Apply(ctx, p, iam.Parallel)
}

// newMigration checks what is wanted before anybody is called, then identifies the subscription.
func newMigration(ctx context.Context, o MigrateOptions) (*run, error) {
	r := newRun(o.Options)
	if err := check(o.Options, nil); err != nil {
		return nil, err
	}
	if iam.SameIssuer(o.Old, o.IssuerURL) {
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

// FinishMigration takes the old issuer's credentials away, once no token of it can be in use. Before that, the error is the
// [*keystore.NotYetError] of [install.Run.MayFinish].
func FinishMigration(ctx context.Context, o MigrateOptions) (Migrated, error) {
	r, err := newMigration(ctx, o)
	if err != nil {
		return Migrated{}, err
	}
	p, err := r.PlanFinish(ctx, o.Old)
	if err != nil {
		return Migrated{}, err
	}
	var done Migrated
	if !p.Empty() {
		if done.Gate, err = r.MayFinish(ctx, o.Move, []string{o.Audience}, iam.Switch{Run: r.Run, Old: o.Old}); err != nil {
			return Migrated{}, err
		}
	}
	if done.Preview, err = r.CarryOut(ctx, p, iam.Parallel); err != nil || o.Mode != install.Apply {
		return done, err
	}
	return done, (iam.Switch{Run: r.Run, Old: o.Old}).Forget(ctx) // also where a run that was killed had no time to
}
