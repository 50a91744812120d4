package install

import (
	"context"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/plan"
)

// MigrateOptions say from which issuer a live cluster moves to which.
type MigrateOptions struct {
	Target
	Store  KeyStore
	Report func(Event)
	Mode   Mode // Apply or Preview

	Name     string // of the installation, and of the new issuer's key set if one has to be made
	Old, New string // issuer URLs; the cluster's tokens have Old before the move
	Dev      bool   // New's URL may have a port, and waits are short
	Site     Site   // of New
	Policy   keystore.Policy

	OldKeys       OldKeys
	Cluster       cluster.Access // Kubeconfig is empty if the cluster cannot be asked
	TokenLifetime time.Duration  // the longest of a token for AWS that is declared; 0 for none

	ClientIDs   []string
	Usual       bool // nobody asked for these ClientIDs: New takes those of Old too
	Thumbprints []string
	Ownership
	MaxTrustLength int
}

// OldKeys are the keys that the old issuer publishes.
type OldKeys struct {
	Source string // for messages
	Read   func(context.Context) ([]keystore.VerificationKey, error)
}

// Migrated is what a run of [Migrate] or [FinishMigration] did.
type Migrated struct {
	Preview *plan.Preview         // with mode Preview
	Gate    *keystore.NotYetError // with mode Preview: what FinishMigration would wait for; nil if nothing

	// OpenShift reports whether the cluster is one; Known whether it was asked. Only Migrate sets them.
	OpenShift, Known bool
}

// migration is one run of [Migrate] or [FinishMigration].
type migration struct {
	*run
	o         MigrateOptions
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
	keys, err := m.movedKeys(ctx)
	if err != nil {
		return Migrated{}, err
	}
	p, err := m.plan(ctx) // before anything is published: it also shows whether every statement fits
	if err != nil {
		return Migrated{}, err
	}
	if o.Mode == Preview {
		v := p.Preview().After(keys.changes()...)
		return Migrated{Preview: &v}, nil
	}
	if err := m.publishMoved(ctx, keys); err != nil {
		return Migrated{}, err
	}
	if p, err = m.plan(ctx); err != nil { // again: the wait was long enough for others to change a role
		return Migrated{}, err
	}
	if err := m.apply(ctx, p); err != nil {
		return Migrated{}, err
	}
	done := Migrated{OpenShift: true}
	if o.Cluster.Kubeconfig != "" {
		done.Known = true
		_, done.OpenShift, err = cluster.ChosenIssuer(ctx, o.Cluster)
	}
	return done, err
}

// newMigration checks what is wanted before anybody is called, then identifies the account and completes the audiences.
func newMigration(ctx context.Context, o MigrateOptions, finishing bool) (*migration, error) {
	m := &migration{run: newRun(o.Report, o.Store), o: o, finishing: finishing}
	if err := awsiam.Check(m.provider(), m.move().To, nil); err != nil {
		return nil, err
	}
	if o.Store.Check != nil {
		if err := o.Store.Check(); err != nil {
			return nil, err
		}
	}
	if err := m.identify(ctx, o.Target, o.New); err != nil {
		return nil, err
	}
	if err := m.carryClientIDs(ctx); err != nil {
		return nil, err
	}
	m.line("Moving from issuer %s to %s", o.Old, o.New)
	return m, nil
}

// carryClientIDs adds the audiences of the old issuer's provider to those of the new one: some pod asks for each, and some
// role may want it. A list that somebody asked for and that leaves one out is refused, as the tokens would be.
func (m *migration) carryClientIDs(ctx context.Context) error {
	old := m.account.ProviderARN(m.o.Old)
	registered, err := m.client.ClientIDs(ctx, old)
	if err != nil {
		return err
	}
	m.o.ClientIDs = slices.Clone(m.o.ClientIDs)
	for _, id := range registered {
		if slices.Contains(m.o.ClientIDs, id) {
			continue
		}
		if !m.o.Usual && !m.finishing {
			return &LostAudienceError{OldProviderARN: old, NewIssuer: m.o.New, Audience: id}
		}
		m.o.ClientIDs = append(m.o.ClientIDs, id)
	}
	return awsiam.Check(m.provider(), m.move().To, nil)
}

func (m *migration) provider() awsiam.Provider {
	return awsiam.Provider{
		URL: m.o.New, ClientIDs: m.o.ClientIDs, Thumbprints: m.o.Thumbprints,
		Owner: awsiam.OwnedBy(m.o.Name), Tags: m.o.Tags, Adopt: m.o.Adopt, Tighten: m.o.Tighten, Port: m.o.Dev,
	}
}

func (m *migration) move() awsiam.Move {
	trust := func(url string) awsiam.Trust {
		t := awsiam.Trust{Issuer: url, Audiences: m.o.ClientIDs, MaxLength: m.o.MaxTrustLength, Port: m.o.Dev}
		if m.account.ID != "" {
			t.ProviderARN = m.account.ProviderARN(url)
		}
		return t
	}
	return awsiam.Move{Name: m.o.Name, From: trust(m.o.Old), To: trust(m.o.New), Adopt: m.o.Adopt}
}

func (m *migration) plan(ctx context.Context) (plan.Plan, error) {
	provider, err := m.client.PlanProvider(ctx, m.account, m.provider())
	if err != nil {
		return provider, err
	}
	roles, err := m.client.PlanMove(ctx, m.move())
	return provider.Then(roles), err
}
