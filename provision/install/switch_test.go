package install_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/scene"
)

const oldIssuer = "https://old.example.com/prod-a"

// record keeps the time of a switch, and what was written.
type record struct {
	at    time.Time
	wrote []time.Time
}

func (r *record) MovedAt(context.Context) (time.Time, error) { return r.at, nil }

func (r *record) SetMovedAt(_ context.Context, at time.Time) ([]string, error) {
	r.wrote = append(r.wrote, at)
	return []string{"recorded"}, nil
}

// The time of a switch is recorded when it is first seen, taken back if the cluster was switched back, and left alone by a preview.
func TestTheTimeOfASwitch(t *testing.T) {
	long := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		signs  string
		since  time.Time
		mode   install.Mode
		writes string // "now" or "never", for the zero time
		gate   gate.Gate
	}{
		{name: "first seen", signs: scene.IssuerURL, writes: "now", gate: gate.GateTokens},
		{name: "seen long ago", signs: scene.IssuerURL, since: long},
		{name: "not switched", signs: oldIssuer, gate: gate.GateSigning},
		{name: "switched back", signs: oldIssuer, since: long, writes: "never", gate: gate.GateSigning},
		{name: "first seen by a preview", mode: install.Preview, signs: scene.IssuerURL, gate: gate.GateTokens},
		{name: "switched back, seen by a preview", mode: install.Preview, signs: oldIssuer, since: long, gate: gate.GateSigning},
	} {
		t.Run(tt.name, func(t *testing.T) {
			around := scene.New(t)
			plane := scene.NewPlane(t, storetest.Key(t), tt.signs)
			plane.Pods = asking(3) // which is longer than what is declared
			o := around.Options()
			o.Mode, o.Store = tt.mode, install.KeyStore{}
			kept := &record{at: tt.since}
			shut, err := install.NewRun(&o).MayFinish(t.Context(), install.Move{Old: oldIssuer, Cluster: plane.Access(t), TokenLifetime: time.Hour}, []string{"openshift"}, kept)
			closed, _ := errors.AsType[*keystore.NotYetError](err)
			if (shut != nil) != (tt.gate != "" && tt.mode == install.Preview) {
				t.Errorf("gate %v beside error %v", shut, err)
			}
			if shut != nil {
				closed = shut
			}
			if (err != nil) != (tt.gate != "" && shut == nil) || tt.gate != "" && (closed == nil || closed.Gate != tt.gate) {
				t.Errorf("error %v, gate %v, want gate %q", err, shut, tt.gate)
			}
			if tt.gate == gate.GateTokens && closed != nil && closed.Terms[0].Duration != 3*time.Hour {
				t.Errorf("it waits for %+v", closed.Terms)
			}
			var wrote []string
			for _, at := range kept.wrote {
				switch {
				case at.IsZero():
					wrote = append(wrote, "never")
				case time.Since(at) < time.Minute:
					wrote = append(wrote, "now")
				default:
					wrote = append(wrote, at.String())
				}
			}
			if strings.Join(wrote, " ") != tt.writes {
				t.Errorf("recorded %q, want %q", wrote, tt.writes)
			}
			if told := around.Reported(); strings.Contains(told, "recorded") != (tt.writes != "") {
				t.Errorf("it told %q", told)
			}
		})
	}
}

// asking is a list of one pod, whose token for OpenShift lives for so many hours.
func asking(hours int) string {
	return fmt.Sprintf(`{"items":[{"metadata":{"namespace":"ns","name":"pod"},"spec":{"volumes":[{"name":"t","projected":{"sources":[`+
		`{"serviceAccountToken":{"path":"token","audience":"openshift","expirationSeconds":%d}}]}}]}}]}`, hours*3600)
}

// A new key set's policy has the longest lifetime that is known, and none that nobody knows.
func TestTheLongestLifetimeCounts(t *testing.T) {
	hours := func(n int) *keystore.Duration {
		if n == 0 {
			return nil
		}
		return keystore.DurationPtr(time.Duration(n) * time.Hour)
	}
	for _, tt := range []struct{ policy, declared, asked, want int }{ // in hours; 0 is none
		{want: 0},
		{asked: 1, want: 1},
		{policy: 2, want: 2},
		{policy: 2, asked: 1, want: 2},
		{policy: 2, asked: 2, want: 2},
		{policy: 2, asked: 3, want: 3},
		{policy: 3, declared: 2, want: 2}, // what is declared for the move takes the policy's place
		{declared: 2, asked: 3, want: 3},
		{declared: 2, asked: 1, want: 2},
	} {
		around := scene.New(t)
		key := storetest.Key(t)
		plane := scene.NewPlane(t, key, oldIssuer)
		if tt.asked > 0 {
			plane.Pods = asking(tt.asked)
		}
		o := around.Options()
		o.Policy.TokenLifetime = hours(tt.policy)
		p, err := install.NewRun(&o).MovedKeys(t.Context(), install.Move{Old: oldIssuer, Cluster: plane.Access(t), TokenLifetime: time.Duration(tt.declared) * time.Hour,
			OldKeys: func(context.Context) ([]keystore.VerificationKey, error) { return []keystore.VerificationKey{key}, nil }}, []string{"openshift"})
		must(t, err)
		if got := p.Policy.TokenLifetime; (got == nil) != (tt.want == 0) || got != nil && *got != *hours(tt.want) {
			t.Errorf("%+v: lifetime %v", tt, got)
		}
	}
}

// late is a cloud during whose first plan somebody else publishes the key set.
type late struct {
	*sky
	publish func()
}

func (l *late) Plan(ctx context.Context) (plan.Plan, error) {
	p, err := l.sky.Plan(ctx)
	if l.publish != nil {
		l.publish()
		l.publish = nil
	}
	return p, err
}

// The relying party gets a copy of what is published when it gets one, and not of what was going to be.
func TestTheCopyIsOfWhatIsPublished(t *testing.T) {
	around := scene.New(t)
	key, second := around.WriteKeys(t), storetest.Key(t)
	o := around.Options()
	l := &late{sky: &sky{store: around.Store, Run: install.NewRun(&o)}}
	l.publish = func() {
		s, err := keystore.New(keystore.Change{At: time.Now()}, keystore.Spec{Name: "theirs", Issuers: storetest.URLs(t, scene.IssuerURL), Dev: true,
			Keys: []keystore.VerificationKey{key, second}, Policy: o.Policy})
		must(t, err)
		must(t, keystore.Create(t.Context(), around.Store, s))
	}
	var copies []string
	keep := func(_ context.Context, stored keystore.KeySet, jwks []byte) error {
		copies = append(copies, string(stored.Name())+" "+string(jwks))
		return nil
	}
	made, err := l.Create(t.Context(), install.CreateOptions{Parallel: 1, TrustPlanned: true, Copy: keep}, l)
	must(t, err)
	if made.KeySet.Name() != "theirs" || len(copies) != 2 || strings.Contains(copies[0], string(second.ID())) || !strings.Contains(copies[1], string(second.ID())) ||
		!strings.Contains(copies[1], string(key.ID())) ||
		!strings.HasPrefix(copies[0], " ") || !strings.HasPrefix(copies[1], "theirs ") {
		t.Errorf("made %s; copies %q", made.KeySet.Name(), copies)
	}
}

// A cluster whose key is retired would sign tokens that are soon trusted no more: nothing is made for it. Neither is anything for one
// whose key is not published, or is another one.
func TestKeysThatMayNotSign(t *testing.T) {
	const past = -1000 * time.Hour
	for _, tt := range []struct {
		name    string
		state   keystore.State
		problem install.Problem
	}{{"active", keystore.Active, 0}, {"next", keystore.Next, 0}, {"retired", keystore.Retired, install.KeyRetired}, {"not published", "", install.KeyNotPublished}, {"revoked", "revoked", install.KeyNotPublished}} {
		t.Run(tt.name, func(t *testing.T) {
			around := scene.New(t)
			key := around.WriteKeys(t)
			first := storetest.Key(t)
			o := around.Options()
			if tt.state == keystore.Active {
				first, key = key, first
			}
			force := keystore.Change{At: time.Now().Add(past), Why: "test", Force: true}
			s, err := keystore.New(force, keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, scene.IssuerURL), Dev: true, Keys: []keystore.VerificationKey{first}, Policy: o.Policy})
			must(t, err)
			if tt.state == "revoked" {
				s, err = s.Add(force, key)
				must(t, err)
				s, err = s.Revoke(force, key.ID(), keystore.RevokeOptions{})
				must(t, err)
			}
			if tt.state == keystore.Next || tt.state == keystore.Retired {
				s, err = s.Add(force, key)
				must(t, err)
			}
			if tt.state == keystore.Retired {
				s, err = s.Retire(force, key.ID(), keystore.Evidence{Statement: "never used"})
				must(t, err)
			}
			must(t, keystore.Create(t.Context(), around.Store, s))
			c := &sky{store: around.Store, Run: install.NewRun(&o), whole: true}
			_, err = c.Create(t.Context(), install.CreateOptions{Parallel: 1, TrustPlanned: true}, c)
			problem := install.Problem(0)
			if e, is := errors.AsType[*install.Error](err); is {
				problem = e.Problem
				if e.KeySet != "prod-a" || strings.Contains(err.Error(), "never comes back") != (tt.state == "revoked") {
					t.Errorf("it names key set %q: %v", e.KeySet, err)
				}
			}
			if (err != nil) != (tt.problem != 0) || problem != tt.problem {
				t.Errorf("error %v", err)
			}
			if called := slices.ContainsFunc(c.calls, func(s string) bool { return strings.HasPrefix(s, "plan") }); called != (err == nil) {
				t.Errorf("calls %q and error %v", c.calls, err)
			}
			if told := around.Reported(); strings.Contains(told, "is next in key set") != (tt.state == keystore.Next) {
				t.Errorf("it told\n%s", told)
			}
		})
	}
}
