package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// MigrateOptions say which live cluster is to move to another issuer. ProviderID is that of the new issuer's provider; empty for one
// made of Name and the issuer URL, the same in every run.
type MigrateOptions struct {
	Options // of the new issuer; with Upload its provider gets a copy of the keys
	install.Move
	From     string            // ID of the provider that the cluster's credential files name; empty for Name
	Accounts RequestedAccounts // that the cluster has
}

// Migrated is how a live cluster goes on from the old provider to the new one. Every list is in the order of the requests, or by
// email.
type Migrated struct {
	Preview  *plan.Preview // with mode Preview; everything else is zero then
	KeySet   keystore.KeySet
	Copy     string // as in [Created]
	Project  federation.Project
	Pool     string // ID
	From, To string // IDs of the old provider and of the new one

	Components []Component // whose Secrets were written, and name the new provider
}

// Component reads a credential file from a Secret.
type Component struct {
	Namespace       string // of the Secret and of the service accounts
	Secret          string
	File            string // path of the Secret's manifest
	ServiceAccounts []string
}

// Migrate publishes the keys of the old issuer under the new one, makes a provider for that in the pool of the old one, and
// writes the Secrets that name it. The old provider, the accounts and the cluster stay as they are: a credential file names one
// provider, and a provider takes one issuer, so that each component has to be moved by itself. Each run does what is still to be
// done.
func Migrate(ctx context.Context, o MigrateOptions) (Migrated, error) {
	m, err := newMigration(ctx, o)
	if err != nil {
		return Migrated{}, err
	}
	keys, err := m.MovedKeys(ctx, m.Move, slices.Concat([]string{componentAudience}, m.to.Audiences))
	if err != nil {
		return Migrated{}, err
	}
	if keys.Copied {
		m.to.KeySet = string(keys.Stored.Name())
		if m.to.JWKS, err = keys.JWKS(); err != nil {
			return Migrated{}, err
		}
	}
	for _, k := range keys.Keys {
		if err := checkKey(k); err != nil {
			return Migrated{}, err
		}
	}
	p, err := m.plan(ctx) // before anything is published: it also shows whether the accounts are there
	if err != nil {
		return Migrated{}, err
	}
	if o.Mode == install.Preview {
		v := p.Preview().After(keys.Changes()...)
		return Migrated{Preview: &v}, nil
	}
	keys.Settled = keys.Found() && p.Empty()
	if err := m.PublishMoved(ctx, keys); err != nil {
		return Migrated{}, err
	}
	if err := m.Apply(ctx, p, iam.Parallel); err != nil {
		return Migrated{}, err
	}
	return m.result(keys.Stored)
}

// migration is one run of [Migrate].
type migration struct {
	*run
	install.Move
	set    requestSet
	dir    string // of the requests
	fromID string
	from   federation.Provider // the old provider
	to     federation.Provider
}

// newMigration checks what is wanted before anybody is called, then reads the provider by which the cluster lives.
func newMigration(ctx context.Context, o MigrateOptions) (*migration, error) {
	o.From = cmp.Or(o.From, o.Name)
	if o.ProviderID == "" {
		o.ProviderID = federation.SecondProviderID(o.Name, o.IssuerURL)
	}
	m := &migration{run: newRun(o.Options), Move: o.Move, fromID: o.From, dir: o.Accounts.Dir}
	var err error
	if m.set, err = readRequests(m.o, o.Accounts); err != nil {
		m.Lines(m.set.skipped)
		return nil, err
	}
	m.set.wanted.All = false // what the pool has beside them is told in the result
	m.to = *m.o.provider(nil, "")
	m.to.Audiences = []string{componentAudience} // until those of the old one are read
	checks := []error{m.set.wanted.Check(), federation.CheckPoolID("workload identity provider", o.From)}
	if o.From == o.ProviderID {
		checks = append(checks, fmt.Errorf("the old provider and the new one are both %s: a provider takes one issuer", o.From))
	}
	if o.Store.Check != nil {
		checks = append(checks, o.Store.Check())
	}
	checks = append(checks, m.CheckDir(o.Old, o.IssuerURL))
	if err := errors.Join(checks...); err != nil {
		return nil, err
	}
	if err := m.identify(ctx); err != nil {
		return nil, err
	}
	if m.Copied = o.Upload; m.Copied {
		m.nameCopy()
	}
	m.Lines(m.set.skipped)
	m.Line("Moving from issuer %s to %s", o.Old, o.IssuerURL)
	return m, m.readOld(ctx)
}

// readOld reads the provider by which the cluster lives. The new one takes the same tokens, but for their issuer: audiences,
// attributes and condition are the old one's.
func (m *migration) readOld(ctx context.Context) error {
	old, err := m.client.Predecessor(ctx, m.to.Pool, m.fromID, m.Old)
	if err != nil {
		return err
	}
	if old.JWKS != nil && m.o.UsualKeys {
		return fmt.Errorf("provider %s has a copy of the keys; say --key-storage-method pool-jwk-file for another copy, or --key-storage-method "+
			"public-bucket to have Google fetch them from %s", m.fromID, m.IssuerURL)
	}
	m.from, m.to.Mapping, m.to.Condition, m.to.Audiences = old, old.Mapping, old.Condition, old.Audiences
	return nil
}

// plan plans the new provider. The accounts must be as the requests ask for: without its binding no component would get on with
// either provider.
func (m *migration) plan(ctx context.Context) (plan.Plan, error) {
	p, err := m.client.Plan(ctx, iam.Wanted{Provider: &m.to})
	if err != nil {
		return plan.Plan{}, err
	}
	accounts, err := m.client.Plan(ctx, iam.Wanted{Accounts: &m.set.wanted})
	if err != nil {
		return plan.Plan{}, err
	}
	if !accounts.Empty() {
		return plan.Plan{}, rest.Problemf(rest.AccountsDiffer, "the service accounts of %s are not what the CredentialsRequests in %s ask for (%s): are they those of the "+
			"release that the cluster runs?", m.Name, m.dir, accounts.Stages[0][0].Change)
	}
	m.set.emails = accounts.Emails
	p.Warnings = slices.Concat(p.Warnings, accounts.Warnings)
	return p.Plan, nil
}

// result writes the Secrets of the components.
func (m *migration) result(set keystore.KeySet) (Migrated, error) {
	done := Migrated{KeySet: set, Project: m.project, Pool: m.to.Pool, From: m.fromID, To: m.to.ID}
	if m.o.Upload {
		done.Copy = m.copyParty()
	}
	files, requests := m.secrets(m.set), m.set.requests
	written := files[:0:0]
	for i, q := range requests {
		if !q.HasIdentity() {
			done.Components = append(done.Components, Component{q.SecretNamespace, q.SecretName, m.Path(files[i].Name), q.ServiceAccounts})
			written = append(written, files[i])
		}
	}
	return done, m.WriteFiles(written...)
}
