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
	"github.com/keypost/keypost/provision/webidentity"
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
				out[fmt.Sprintf("%s with %s as %s", sub, aud, role.Name)] = webidentity.Assume(t.Context(), s.client, s.account.RoleARN(role.Name), token).Severity == finding.OK
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
// is asked for. It takes no permission away either.
func TestARunTakesNoExchangeAway(t *testing.T) {
	t.Parallel()
	var good, applied int
	for seed := range uint64(5) {
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
	if good < 40 || applied < 10 {
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
