package awsiam_test

import (
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/plan"
)

// Some of each of a list, at least one.
func some(r *mathrand.Rand, of ...string) []string {
	of = slices.Clone(of)
	r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	return of[:1+r.IntN(len(of))]
}

// anyInstallation is one that somebody may ask for.
func (w *world) anyInstallation(r *mathrand.Rand) desired {
	d := w.cluster(2)
	d.provider.ClientIDs = some(r, "openshift", "sts.amazonaws.com", "vault")
	d.trust.Audiences, d.trust.Usual = some(r, "openshift", "sts.amazonaws.com", "vault"), r.IntN(2) == 0
	for i := range d.roles {
		d.roles[i].Boundary, d.roles[i].Exact = "", true
		d.roles[i].Subjects = some(r, serviceAccounts...)
		d.roles[i].Policy = policy(some(r, "ec2:DescribeInstances", "ec2:RunInstances", "s3:GetObject")...)
	}
	return d
}

var serviceAccounts = []string{"system:serviceaccount:ns:a", "system:serviceaccount:ns:b", "system:serviceaccount:ns:c"}

// exchanges returns which service account gets into which role with which audience.
func (s *stage) exchanges(t *testing.T, roles []awsiam.Role) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, sub := range serviceAccounts {
		for _, aud := range []string{"openshift", "sts.amazonaws.com", "vault"} {
			s.claims["sub"], s.claims["aud"] = sub, []string{aud}
			token := s.token(t)
			for _, role := range roles {
				out[fmt.Sprintf("%s with %s as %s", sub, aud, role.Name)] = s.client.Assume(t.Context(), s.account.RoleARN(role.Name), token).Severity == finding.OK
			}
		}
	}
	return out
}

// byHand changes a trust policy as people do.
func (s *stage) byHand(t *testing.T, r *mathrand.Rand, role string) {
	t.Helper()
	sub := serviceAccounts[r.IntN(len(serviceAccounts))]
	statements := []string{
		statement("Allow", `"StringEquals":{"oidc.example.com/c1:sub":"`+sub+`"}`), // ccoctl's
		statement("Allow", `"StringLike":{"oidc.example.com/c1:sub":"system:serviceaccount:ns:*"}`),
		statement("Allow", `"StringEquals":{"oidc.example.com/c1:aud":"vault","oidc.example.com/c1:sub":"`+sub+`"}`),
		statement("Deny", `"StringEquals":{"oidc.example.com/c1:sub":"`+sub+`"}`),
	}
	was := `"Statement":[`
	s.setTrust(t, role, strings.Replace(s.world.role(t, role).Trust, was, was+statements[r.IntN(len(statements))]+",", 1))
}

// A run without Prune, Tighten or Adopt never turns an exchange that succeeded into one that fails, whatever was there and whatever
// is asked for. Nor does it take a permission away.
func TestARunTakesNoExchangeAway(t *testing.T) {
	t.Parallel()
	var good, applied int
	for seed := range uint64(25) {
		r := mathrand.New(mathrand.NewPCG(seed, 11))
		s := newStage(t, nil)
		first := s.anyInstallation(r)
		s.mustRun(t, first)
		for _, role := range first.roles {
			if r.IntN(2) == 0 {
				s.byHand(t, r, role.Name)
			}
		}
		for range 3 {
			next := s.anyInstallation(r)
			before, rights := s.exchanges(t, next.roles), s.rights()
			p, err := s.plan(t.Context(), next)
			if err != nil {
				continue
			}
			apply(t, p, nil)
			applied++
			after := s.exchanges(t, next.roles)
			for what, was := range before {
				if was {
					good++
				}
				if was && !after[what] {
					t.Errorf("seed %d: %s no longer:\n%s", seed, what, shown(p))
				}
			}
			s.noLess(t, seed, rights)
		}
	}
	if good < 200 || applied < 50 {
		t.Errorf("%d runs, %d exchanges succeeded: the test shows little", applied, good)
	}
}

// rights returns the actions that roles' own inline policies have, by role.
func (w *world) rights() map[string][]string {
	out := map[string][]string{}
	for _, r := range w.State().Roles {
		for _, action := range []string{"ec2:DescribeInstances", "ec2:RunInstances", "s3:GetObject", "s3:Get"} {
			if strings.Contains(strings.Join(slices.Collect(maps.Values(r.Inline)), " "), `"`+action+`"`) {
				out[r.Name] = append(out[r.Name], action)
			}
		}
	}
	return out
}

// noLess reports roles that are gone, or that have less than before.
func (w *world) noLess(t *testing.T, seed uint64, before map[string][]string) {
	t.Helper()
	after := w.rights()
	for role, actions := range before {
		for _, a := range actions {
			if !slices.Contains(after[role], a) {
				t.Errorf("seed %d: role %s has %q, and had %s", seed, role, after[role], a)
			}
		}
	}
}

// follow makes a plan and does it; as long as the command line's hint is another flag, with that.
func (w *world) follow(t *testing.T, adopt *bool, prune *bool, planned func() (plan.Plan, error)) (changes int) {
	t.Helper()
	for range 3 {
		p, err := planned()
		switch {
		case err == nil:
			apply(t, p, nil)
			return len(slices.Concat(p.Stages...))
		case is(err, awsiam.NotOwned) || is(err, awsiam.ForeignRoles):
			*adopt = true
		case is(err, awsiam.NeedsPrune):
			*prune = true
		default:
			return 0
		}
	}
	return 0
}

// Whatever B does in A's account, and whichever hint it follows, no role of A may do less, or be assumed by fewer.
func TestNothingOfBTakesFromA(t *testing.T) {
	t.Parallel()
	var changes int
	for seed := range uint64(25) {
		r := mathrand.New(mathrand.NewPCG(seed, 12))
		s := newStage(t, nil)
		a := s.anyInstallation(r)
		s.mustRun(t, a)
		if r.IntN(2) == 0 { // from the time when B could take it over
			s.tagRole(t, a.roles[0].Name, "openshift.io/cloud-credential-operator/c1-openshift", "owned")
		}
		before, rights := s.exchanges(t, a.roles), s.rights()
		b := s.anyInstallation(r)
		b.provider.URL, b.provider.Owner, b.provider.Tighten = newIssuer, awsiam.OwnedBy("c1-openshift"), true
		b.provider.Thumbprints = []string{strings.Repeat("ab", 20)}
		b.trust.Issuer, b.trust.ProviderARN = newIssuer, s.account.ProviderARN(newIssuer)
		b.roles = b.roles[:1+r.IntN(2)]
		for i := range b.roles { // the same names: they are cut after 64 characters
			b.roles[i].Owner, b.roles[i].Prune, b.roles[i].Tighten = b.provider.Owner, r.IntN(2) == 0, r.IntN(2) == 0
		}
		for range 4 {
			var adopt, prune bool
			changes += s.follow(t, &adopt, &prune, map[int]func() (plan.Plan, error){
				0: func() (plan.Plan, error) {
					b.provider.Adopt = adopt
					for i := range b.roles {
						b.roles[i].Adopt, b.roles[i].Prune = adopt, b.roles[i].Prune || prune
					}
					return s.plan(t.Context(), b)
				},
				1: func() (plan.Plan, error) { return s.client.PlanPrune(t.Context(), "c1-openshift", nil, false) },
				2: func() (plan.Plan, error) {
					return s.client.PlanDelete(t.Context(), s.account, awsiam.Deletion{Name: "c1-openshift"})
				},
				3: func() (plan.Plan, error) { // of a workload
					role := b.roles[0]
					role.Owner, role.Adopt, role.Prune = awsiam.OwnedByKeypost(), adopt, true
					return s.client.PlanRoles(t.Context(), b.trust, []awsiam.Role{role})
				},
				4: func() (plan.Plan, error) { // A's issuer is the one to move away from
					return s.client.PlanMove(t.Context(), awsiam.Move{Name: "c1-openshift", From: a.trust, To: b.trust, Adopt: adopt})
				},
			}[r.IntN(5)])
		}
		after := s.exchanges(t, a.roles)
		for what, was := range before {
			if was && !after[what] {
				t.Errorf("seed %d: %s no longer", seed, what)
			}
		}
		s.noLess(t, seed, rights)
	}
	if changes < 10 {
		t.Errorf("B changed %d things: the test shows little", changes)
	}
}
