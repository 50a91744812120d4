package aws_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/policy"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/scene"
)

// migration is a world with a cluster that trusts the old issuer, as ccoctl makes it, and the move of it.
func (w *world) migration(t *testing.T) (*scene.Plane, aws.MigrateOptions) {
	t.Helper()
	key := storetest.SyntheticRSA(t, 11)
	client, err := awsiam.Open(t.Context(), awsiam.Options{Config: w.Config()})
	must(t, err)
	account, err := client.Account(t.Context())
	must(t, err)
	audiences, owner := []string{"openshift", "sts.amazonaws.com"}, awsiam.OwnedBy("prod-a")
	provider, err := client.PlanProvider(t.Context(), account, awsiam.Provider{URL: oldURL, ClientIDs: audiences, Owner: owner})
	must(t, err)
	roles, err := client.PlanRoles(t.Context(), awsiam.Trust{ProviderARN: account.ProviderARN(oldURL), Issuer: oldURL, Audiences: audiences},
		[]awsiam.Role{{Name: "prod-a-ns-a", Subjects: []string{"system:serviceaccount:ns:a"}, Owner: owner}})
	must(t, err)
	must(t, provider.Apply(t.Context(), 1, nop))
	must(t, roles.Apply(t.Context(), 1, nop))
	w.writes()
	p := scene.NewPlane(t, key, oldURL)
	return p, aws.MigrateOptions{
		Options: aws.Options{
			Options: w.Options("aws"), Config: w.Config(), Region: "us-east-1", ClientIDs: audiences[1:], Usual: true,
		},
		Move: install.Move{
			Old: oldURL, Cluster: p.Access(t),
			OldKeys: func(context.Context) ([]keystore.VerificationKey, error) { return []keystore.VerificationKey{key}, nil },
		},
	}
}

// The old issuer's trust goes only when no token of it can be in use any more.
func TestMigration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, o := w.migration(t)
	if _, err := aws.FinishMigration(t.Context(), o); err == nil || w.writes() != 0 {
		t.Errorf("finished before it began: %v", err)
	}
	o.Mode = install.Preview
	moved, err := aws.Migrate(t.Context(), o)
	must(t, err)
	scene.Held(t, shown(t, moved.Preview), "+ create key set prod-a ("+issuerURL+")", "+ key ", "+ create IAM OIDC identity provider", "~ update IAM role prod-a-ns-a")
	if w.writes() != 0 || w.published(t) != 0 {
		t.Fatal("a preview changed something")
	}
	o.Mode = install.Apply
	w.Reported()
	moved, err = aws.Migrate(t.Context(), o)
	must(t, err)
	scene.Held(t, w.Reported(), "line Moving from issuer "+oldURL+" to "+issuerURL, "line Key set prod-a with 1 key of "+oldURL+" stored", "is served with key", "Trust policy of Role prod-a-ns-a updated")
	if moved.OpenShift || !moved.Known {
		t.Errorf("migrated %+v", moved)
	}
	s := w.State()
	if trust := s.Roles[0].Trust; len(s.Providers) != 2 || !strings.Contains(trust, oldURL[8:]) || !strings.Contains(trust, issuerURL[8:]) {
		t.Errorf("the account holds %+v", s)
	}
	for _, provider := range s.Providers { // the old one's audiences are carried over
		if len(provider.ClientIDs) != 2 {
			t.Errorf("provider %+v", provider)
		}
	}
	w.writes()
	w.finish(t, p, o)
}

func (w *world) finish(t *testing.T, p *scene.Plane, o aws.MigrateOptions) {
	t.Helper()
	if _, err := aws.FinishMigration(t.Context(), o); !closed(err, gate.GateSigning) || w.writes() != 0 {
		t.Errorf("the cluster still signs as the old issuer: %v", err)
	}
	p.SignsAs(issuerURL)
	if _, err := aws.FinishMigration(t.Context(), o); !closed(err, gate.GateUndeclared) {
		t.Errorf("it is unknown how long tokens live: %v", err)
	}
	o.TokenLifetime = time.Hour
	_, err := aws.FinishMigration(t.Context(), o)
	e, _ := errors.AsType[*keystore.NotYetError](err)
	if !closed(err, gate.GateTokens) || time.Until(e.Opens) > time.Hour+policy.ClockSkew || time.Until(e.Opens) < time.Hour {
		t.Fatalf("tokens of the old issuer may be in use: %v", err)
	}
	o.Mode = install.Preview
	w.writes()
	preview, err := aws.FinishMigration(t.Context(), o)
	if err != nil || preview.Gate == nil || w.writes() != 0 {
		t.Errorf("a preview names the gate and changes nothing: %+v, %v", preview, err)
	}
	scene.Held(t, shown(t, preview.Preview), "~ update IAM role prod-a-ns-a", "- delete IAM OIDC identity provider")

	w.switchedLongAgo(t)
	o.Mode = install.Apply
	_, err = aws.FinishMigration(t.Context(), o)
	must(t, err)
	if s := w.State(); len(s.Providers) != 1 || !strings.HasSuffix(s.Providers[0].ARN, issuerURL[7:]) || strings.Contains(s.Roles[0].Trust, oldURL[8:]) {
		t.Errorf("left %+v", s)
	}
}

// switchedLongAgo has the switch be two hours ago, so that the gate is open: its time is in a tag of the old provider.
func (w *world) switchedLongAgo(t *testing.T) {
	t.Helper()
	client, err := awsiam.Open(t.Context(), awsiam.Options{Config: w.Config()})
	must(t, err)
	account, err := client.Account(t.Context())
	must(t, err)
	_, err = client.SetMovedAt(t.Context(), account.ProviderARN(oldURL), time.Now().Add(-2*time.Hour))
	must(t, err)
}

// A move that would leave tokens untrusted stops before anything is changed.
func TestMigrateRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(t *testing.T, w *world, p *scene.Plane, o *aws.MigrateOptions)
		is     func(error) bool
	}{
		"an audience is left out": {func(_ *testing.T, _ *world, _ *scene.Plane, o *aws.MigrateOptions) { o.Usual = false }, is(install.LostAudience)},
		"the old keys cannot be read": {func(_ *testing.T, _ *world, _ *scene.Plane, o *aws.MigrateOptions) {
			o.OldKeys = func(context.Context) ([]keystore.VerificationKey, error) { return nil, errors.New("no route") }
		}, is(install.OldKeysUnread)},
		"another cluster": {func(_ *testing.T, _ *world, p *scene.Plane, _ *aws.MigrateOptions) {
			p.SignsAs("https://else.example.com")
		}, is(install.WrongCluster)},
		"the key set does not have a key": {func(t *testing.T, w *world, _ *scene.Plane, _ *aws.MigrateOptions) { w.store1(t, "theirs", issuerURL) }, is(install.KeyNotPublished)},
		"another account":                 {func(_ *testing.T, _ *world, _ *scene.Plane, o *aws.MigrateOptions) { o.Account = "999999999999" }, is(install.WrongAccount)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p, o := w.migration(t)
			tt.change(t, w, p, &o)
			if _, err := aws.Migrate(t.Context(), o); !tt.is(err) {
				t.Errorf("%T %v", err, err)
			}
			if n := w.writes(); n > 0 {
				t.Errorf("%d calls wrote", n)
			}
		})
	}
}

func closed(err error, gate gate.Gate) bool {
	e, closed := errors.AsType[*keystore.NotYetError](err)
	return closed && e.Gate == gate
}

func nop(plan.Action, []string, error) {}
