package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// MigrateOptions say from which issuer a live cluster moves to which.
type MigrateOptions struct {
	Options // of the new issuer; with Usual, it takes the old one's audiences too
	install.Move
}

// Migrated is what a run of [Migrate] or [FinishMigration] did.
type Migrated struct {
	Preview *plan.Preview         // with mode Preview
	KeySet  keystore.KeySet       // that has the keys; only Migrate sets it, without mode Preview
	Gate    *keystore.NotYetError // with mode Preview: what FinishMigration would wait for; nil if nothing

	// OpenShift reports whether the cluster is one; Known whether it was asked. Only Migrate sets them.
	OpenShift, Known bool
}

// migration is one run of [Migrate] or [FinishMigration].
type migration struct {
	*run
	install.Move
	finishing bool
}

// Migrate publishes the keys of the old issuer under the new one, makes the new issuer's provider, and gives every role
// that trusts the old issuer a second statement that trusts the new one. AWS then takes tokens of both. Each run does what
// is still to be done.
func Migrate(ctx context.Context, o MigrateOptions) (Migrated, error) {
	m, err := newMigration(ctx, o, false)
	if err != nil {
		return Migrated{}, err
	}
	keys, err := m.MovedKeys(ctx, m.Move, m.o.ClientIDs)
	if err != nil {
		return Migrated{}, err
	}
	p, err := m.plan(ctx) // before anything is published: it also shows whether every statement fits
	if err != nil && (o.Mode != install.Preview || !ofForeignRoles(err)) {
		return Migrated{}, err
	}
	if o.Mode == install.Preview { // which shows the roles of others as beyond what is wanted
		v := p.Preview().After(keys.Changes()...)
		return Migrated{Preview: &v}, nil
	}
	keys.Settled = keys.Found() && p.Empty()
	if err := m.PublishMoved(ctx, keys); err != nil {
		return Migrated{}, err
	}
	if p, err = m.plan(ctx); err != nil { // again: the wait was long enough for others to change a role
		return Migrated{}, err
	}
	if err := m.Apply(ctx, p, awsiam.Parallel); err != nil {
		return Migrated{}, err
	}
	done := Migrated{OpenShift: true, KeySet: keys.Stored}
	if o.Cluster.Kubeconfig != "" {
		done.Known = true
		_, done.OpenShift, err = cluster.ChosenIssuer(ctx, o.Cluster)
	}
	return done, err
}

// ofForeignRoles reports whether an error is about nothing but roles that are not ours, which a preview shows.
func ofForeignRoles(err error) bool {
	e, is := errors.AsType[*awsiam.Error](err)
	return is && (e.Problem == awsiam.ForeignRoles || e.Problem == awsiam.OthersRoles)
}

// newMigration checks what is wanted before anybody is called, then identifies the account and completes the audiences.
func newMigration(ctx context.Context, o MigrateOptions, finishing bool) (*migration, error) {
	m := &migration{run: newRun(o.Options), Move: o.Move, finishing: finishing}
	if err := awsiam.Check(m.o.provider(), m.move().To, nil); err != nil {
		return nil, err
	}
	if o.Store.Check != nil {
		if err := o.Store.Check(); err != nil {
			return nil, err
		}
	}
	if err := m.identify(ctx); err != nil {
		return nil, err
	}
	if err := m.carryClientIDs(ctx); err != nil {
		return nil, err
	}
	m.Line("Moving from issuer %s to %s", o.Old, o.IssuerURL)
	return m, nil
}

// carryClientIDs adds the audiences of the old issuer's provider to those of the new one: some pod asks for each, and some
// role may want it. A list that somebody asked for and that leaves one out is refused, as the tokens would be.
func (m *migration) carryClientIDs(ctx context.Context) error {
	old := m.account.ProviderARN(m.Old)
	registered, err := m.client.Provider(ctx, old)
	if err != nil || registered == nil {
		return err
	}
	m.o.ClientIDs = slices.Clone(m.o.ClientIDs)
	for _, id := range registered.ClientIDs {
		if slices.Contains(m.o.ClientIDs, id) {
			continue
		}
		if !m.o.Usual && !m.finishing {
			return &install.Error{Problem: install.LostAudience, Provider: old, Audience: id, Err: fmt.Errorf("%s takes tokens for the audience %s, "+
				"which is left out: they would be refused under %s", old, id, m.IssuerURL)}
		}
		m.o.ClientIDs = append(m.o.ClientIDs, id)
	}
	return nil
}

func (m *migration) move() awsiam.Move {
	trust := func(url string) awsiam.Trust {
		t := m.o.trust("")
		t.Issuer, t.Usual = url, false
		if m.account.ID != "" {
			t.ProviderARN = m.account.ProviderARN(url)
		}
		return t
	}
	return awsiam.Move{Name: m.Name, From: trust(m.Old), To: trust(m.IssuerURL), Adopt: m.o.Adopt}
}

func (m *migration) plan(ctx context.Context) (plan.Plan, error) {
	provider, err := m.client.PlanProvider(ctx, m.account, m.o.provider())
	if err != nil {
		return provider, err
	}
	roles, err := m.client.PlanMove(ctx, m.move())
	return provider.Then(roles), err
}

// FinishMigration takes the old issuer's statements and provider away, once no token of it can be in use. Before that,
// the error is the [*keystore.NotYetError] of [install.Run.MayFinish].
func FinishMigration(ctx context.Context, o MigrateOptions) (Migrated, error) {
	m, err := newMigration(ctx, o, true)
	if err != nil {
		return Migrated{}, err
	}
	p, err := m.client.PlanFinish(ctx, m.move())
	if err != nil {
		return Migrated{}, err
	}
	old := m.account.ProviderARN(m.Old)
	there, err := m.client.Provider(ctx, old)
	if err != nil {
		return Migrated{}, err
	}
	var done Migrated
	if there != nil && !p.Empty() { // without it AWS takes no token of the old issuer any more
		if done.Gate, err = m.MayFinish(ctx, m.Move, m.o.ClientIDs, switchRecord{m.client, old}); err != nil {
			return Migrated{}, err
		}
	}
	done.Preview, err = m.carryOut(ctx, p)
	return done, err
}

// switchRecord keeps the time of the switch in a tag of the old issuer's provider.
type switchRecord struct {
	client      *awsiam.Client
	providerARN string
}

func (s switchRecord) MovedAt(ctx context.Context) (time.Time, error) {
	return s.client.MovedAt(ctx, s.providerARN)
}

func (s switchRecord) SetMovedAt(ctx context.Context, at time.Time) ([]string, error) {
	return s.client.SetMovedAt(ctx, s.providerARN, at)
}
