package awsiam_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakeaws"
)

const ownKey = "openshift.io/cloud-credential-operator/c1"

func mark(key, value string) []types.Tag {
	return []types.Tag{{Key: aws.String(key), Value: aws.String(value)}}
}

func (w *world) tagRole(t *testing.T, role, key, value string) {
	t.Helper()
	must(t, second(w.hand.TagRole(t.Context(), &iam.TagRoleInput{RoleName: aws.String(role), Tags: mark(key, value)})))
}

func (w *world) tagProvider(t *testing.T, arn, key, value string) {
	t.Helper()
	must(t, second(w.hand.TagOpenIDConnectProvider(t.Context(),
		&iam.TagOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(arn), Tags: mark(key, value)})))
}

func (w *world) setTrust(t *testing.T, role, trust string) {
	t.Helper()
	must(t, second(w.hand.UpdateAssumeRolePolicy(t.Context(),
		&iam.UpdateAssumeRolePolicyInput{RoleName: aws.String(role), PolicyDocument: aws.String(trust)})))
}

// remake deletes a role and makes another of the same name, trust and inline policy.
func (w *world) remake(t *testing.T, name string, tags []types.Tag) {
	t.Helper()
	old, role := w.role(t, name), aws.String(name)
	must(t, second(w.hand.DeleteRolePolicy(t.Context(), &iam.DeleteRolePolicyInput{RoleName: role, PolicyName: role})))
	must(t, second(w.hand.DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: role})))
	must(t, second(w.hand.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: role, AssumeRolePolicyDocument: aws.String(old.Trust), Tags: tags})))
	must(t, second(w.hand.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: role, PolicyName: role,
		PolicyDocument: aws.String(old.Inline[name])})))
}

// moved is a cluster whose roles trust two issuers.
func (w *world) moved(t *testing.T, roles int) (desired, awsiam.Move) {
	t.Helper()
	d := w.cluster(roles)
	w.mustRun(t, d)
	m := w.move(t, d)
	p, err := w.client.PlanMove(t.Context(), m)
	apply(t, p, err)
	return d, m
}

// A role or provider that another owns too loses only our tag and our statements, whichever way it is deleted. One whose tag says
// "shared" is not touched.
func TestWhatAnotherOwnsTooIsNotDeleted(t *testing.T) {
	t.Parallel()
	const otherKey = "openshift.io/cloud-credential-operator/c9"
	for name, tt := range map[string]struct{ key, value, trust string }{
		"of create-role":      {"keypost.dev/owned", "owned", ""},
		"of another cluster":  {otherKey, "owned", ""},
		"trusts nobody else":  {otherKey, "owned", "alone"},
		"shared, by the tag":  {ownKey, "shared", "both"},
		"another, both trust": {otherKey, "owned", "both"},
	} {
		run(t, name, func(t *testing.T) {
			w := newWorld(t, fakeaws.Options{})
			d, m := w.moved(t, 2)
			role, arn := d.roles[0].Name, d.trust.ProviderARN
			w.tagRole(t, role, tt.key, tt.value)
			w.tagProvider(t, m.To.ProviderARN, otherKey, "owned")
			must(t, second(w.hand.UntagOpenIDConnectProvider(t.Context(), &iam.UntagOpenIDConnectProviderInput{
				OpenIDConnectProviderArn: aws.String(m.To.ProviderARN), TagKeys: []string{ownKey}})))
			if tt.trust == "alone" {
				w.setTrust(t, role, strings.ReplaceAll(w.role(t, role).Trust, m.To.ProviderARN, arn))
			}
			before := w.role(t, role)
			p, err := w.client.PlanPrune(t.Context(), "c1", []string{d.roles[1].Name}, false)
			if err != nil || !p.Empty() {
				t.Errorf("prune: %v\n%s", err, shown(p))
			}
			p, err = w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1"})
			apply(t, p, err)
			st := w.State()
			if len(st.Roles) != 1 || len(st.Providers) != 1 || st.Providers[0].ARN != m.To.ProviderARN {
				t.Fatalf("left\n%s", w.picture())
			}
			after := st.Roles[0]
			if ours := tt.value == "owned"; (after.Tags[ownKey] != "") == ours || !maps.Equal(after.Inline, before.Inline) ||
				strings.Contains(after.Trust, `"`+arn+`"`) == (ours && tt.trust != "alone") {
				t.Errorf("was %+v\nis %+v", before, after)
			}
			p, err = w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1"})
			if err != nil || !p.Empty() {
				t.Errorf("again: %v\n%s", err, shown(p))
			}
		})
	}
}

// A provider that another owns too stays, with its trust; only our tag goes.
func TestAProviderOfTwoOwnersIsNotDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		w.mustRun(t, d)
		w.tagProvider(t, d.trust.ProviderARN, "openshift.io/cloud-credential-operator/c9", "owned")
		p, err := w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1"})
		apply(t, p, err)
		if st := w.State(); len(st.Providers) != 1 || st.Providers[0].Tags[ownKey] != "" || len(st.Roles) > 0 {
			t.Errorf("left\n%s", w.picture())
		}
	})
}

// From what another owns too, no run takes anything.
func TestNothingIsTakenFromWhatAnotherOwnsToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		d.roles[0].Exact = true
		w.mustRun(t, d)
		role := d.roles[0].Name
		w.tagRole(t, role, "openshift.io/cloud-credential-operator/c9", "owned")
		w.tagProvider(t, d.trust.ProviderARN, "openshift.io/cloud-credential-operator/c9", "owned")
		must(t, second(w.hand.AttachRolePolicy(t.Context(), &iam.AttachRolePolicyInput{RoleName: aws.String(role), PolicyArn: aws.String("arn:aws:iam::aws:policy/ReadOnlyAccess")})))
		before := w.picture()
		d.provider.ClientIDs, d.provider.Tighten = []string{"openshift"}, true
		d.roles[0].Prune, d.roles[0].Tighten = true, true
		d.roles[0].Policy, d.roles[0].Subjects = policy("ec2:DescribeInstances"), d.roles[0].Subjects[:1]
		p, err := w.plan(t.Context(), d)
		if len(p.Extra) != 3 {
			t.Errorf("%v\n%s", err, shown(p))
		}
		apply(t, p, err)
		if after := w.picture(); after != before {
			t.Errorf("was\n%s\nis\n%s", before, after)
		}
	})
}

// A role that becomes another's after the plan was made stays whole, policies and all, and is named; the provider,
// which is deleted after the roles, stays too.
func TestARoleThatChangesHandsIsNotDeleted(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, w *world, role string){
		"shared":         func(t *testing.T, w *world, role string) { w.tagRole(t, role, ownKey, "shared") },
		"of create-role": func(t *testing.T, w *world, role string) { w.tagRole(t, role, "keypost.dev/owned", "owned") },
		"untagged": func(t *testing.T, w *world, role string) {
			must(t, second(w.hand.UntagRole(t.Context(), &iam.UntagRoleInput{RoleName: aws.String(role), TagKeys: []string{ownKey}})))
		},
		"remade":                   func(t *testing.T, w *world, role string) { w.remake(t, role, nil) },
		"remade with the same tag": func(t *testing.T, w *world, role string) { w.remake(t, role, mark(ownKey, "owned")) },
	} {
		run(t, name, func(t *testing.T) {
			w := newWorld(t, fakeaws.Options{})
			d := w.cluster(2)
			w.mustRun(t, d)
			p, err := w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1"})
			must(t, err)
			role := d.roles[0].Name
			change(t, w, role)
			before := w.role(t, role)
			err = p.Apply(t.Context(), awsiam.Parallel, ignore)
			if err == nil || !strings.Contains(err.Error(), role) {
				t.Errorf("the refusal does not name %s: %v", role, err)
			}
			if after := w.role(t, role); len(after.Inline) != len(before.Inline) {
				t.Errorf("its policies were\n%v\nand are\n%v", before.Inline, after.Inline)
			}
			if len(w.State().Providers) != 1 {
				t.Error("the provider was deleted although a role that trusts it stays")
			}
		})
	}
}

// A provider with another's tag is refused by the plan; one that gets it after the plan was made is refused by Apply.
func TestAProviderOfAnotherIsNotDeleted(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]awsiam.Deletion{"all": {Name: "c1"}, "issuer": {Name: "c1", IssuerURL: issuer, Strand: true}} {
		run(t, name, func(t *testing.T) {
			w := newWorld(t, fakeaws.Options{})
			world := w.cluster(1)
			w.mustRun(t, world)
			arn := world.trust.ProviderARN
			p, err := w.client.PlanDelete(t.Context(), w.account, d)
			must(t, err)
			w.tagProvider(t, arn, ownKey, "shared")
			if err := p.Apply(t.Context(), awsiam.Parallel, ignore); err == nil || !strings.Contains(err.Error(), arn) {
				t.Errorf("Apply: %v", err)
			}
			p, err = w.client.PlanDelete(t.Context(), w.account, d)
			switch {
			case d.IssuerURL != "" && (err == nil || !strings.Contains(err.Error(), arn)):
				t.Errorf("the plan does not refuse %s: %v\n%s", arn, err, shown(p))
			case d.IssuerURL == "" && strings.Contains(shown(p), "delete IAM OIDC"):
				t.Errorf("the plan deletes it:\n%s", shown(p))
			}
			if len(w.State().Providers) != 1 {
				t.Error("it is gone")
			}
		})
	}
}

// Only roles of the name and of create-role lose a statement with an issuer. One of another that trusts two issuers,
// and would not be stranded, keeps its trust and is named.
func TestTheTrustOfAnothersRoleStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d, m := w.moved(t, 2)
		foreign := d.roles[0]
		foreign.Name, foreign.Owner = "foreign", awsiam.OwnedBy("c9")
		p, err := w.client.PlanRoles(t.Context(), d.trust, []awsiam.Role{foreign})
		apply(t, p, err)
		w.setTrust(t, "foreign", w.role(t, d.roles[0].Name).Trust)
		before := w.role(t, "foreign").Trust

		p, err = w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1", IssuerURL: issuer})
		if note := "role foreign (of c9) is not ours: it stays, and keeps a statement for the deleted provider " + d.trust.ProviderARN; !slices.Contains(p.Notes, note) {
			t.Errorf("the notes %q do not say %q", p.Notes, note)
		}
		apply(t, p, err)
		if after := w.role(t, "foreign").Trust; after != before {
			t.Errorf("its trust was\n%s\nand is\n%s", before, after)
		}
		for _, r := range d.roles {
			if trust := w.role(t, r.Name).Trust; strings.Contains(trust, d.trust.ProviderARN) || !strings.Contains(trust, m.To.ProviderARN) {
				t.Errorf("role %s: %s", r.Name, trust)
			}
		}
	})
}

// What somebody else does to a role between plan and Apply counts: neither a trust policy without the other issuer nor
// a role that is another's by then is changed.
func TestTrustIsNotWithdrawnFromWhatHasChanged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(t *testing.T, w *world, role, alone string)
		want   string
	}{
		"trust": {func(t *testing.T, w *world, role, alone string) { w.setTrust(t, role, alone) }, "trusts nobody but "},
		"tags":  {func(t *testing.T, w *world, role, _ string) { w.tagRole(t, role, ownKey, "shared") }, ownKey},
	} {
		for way, planned := range map[string]func(ctx context.Context, w *world, m awsiam.Move) (plan.Plan, error){
			"delete": func(ctx context.Context, w *world, _ awsiam.Move) (plan.Plan, error) {
				return w.client.PlanDelete(ctx, w.account, awsiam.Deletion{Name: "c1", IssuerURL: issuer})
			},
			"finish": func(ctx context.Context, w *world, m awsiam.Move) (plan.Plan, error) {
				return w.client.PlanFinish(ctx, m)
			},
		} {
			run(t, name+", "+way, func(t *testing.T) {
				w := newWorld(t, fakeaws.Options{})
				d := w.cluster(1)
				w.mustRun(t, d)
				role := d.roles[0].Name
				alone := w.role(t, role).Trust
				m := w.move(t, d)
				p, err := w.client.PlanMove(t.Context(), m)
				apply(t, p, err)
				p, err = planned(t.Context(), w, m)
				must(t, err)
				tt.change(t, w, role, alone)
				before := w.picture()
				err = p.Apply(t.Context(), awsiam.Parallel, ignore)
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), role) {
					t.Errorf("Apply: %v, want %s and %q", err, role, tt.want)
				}
				if after := w.picture(); after != before {
					t.Errorf("was\n%s\nis\n%s", before, after)
				}
			})
		}
	}
}

// The same holds for the statement that a move adds.
func TestTrustIsNotAddedToWhatHasChangedHands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		w.mustRun(t, d)
		m, role := w.move(t, d), d.roles[0].Name
		p, err := w.client.PlanMove(t.Context(), m)
		must(t, err)
		w.tagRole(t, role, ownKey, "shared")
		before := w.picture()
		if err := p.Apply(t.Context(), awsiam.Parallel, ignore); err == nil || !strings.Contains(err.Error(), role) {
			t.Errorf("Apply: %v", err)
		}
		if after := w.picture(); after != before {
			t.Errorf("was\n%s\nis\n%s", before, after)
		}
	})
}

// What a prune would delete is listed without it, and nothing else is; a caller who may not list roles learns that.
func TestSurplusIsWhatPruneDeletes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(3)
		w.mustRun(t, d)
		w.tagRole(t, d.roles[0].Name, "keypost.dev/owned", "owned")
		p, err := w.client.PlanPrune(t.Context(), "c1", []string{d.roles[1].Name}, true)
		if want := []string{"role " + d.roles[2].Name + " of c1 is there, and nobody asked for it; --prune deletes it"}; err != nil ||
			!p.Empty() || !slices.Equal(p.Extra, want) {
			t.Errorf("%v, got %q, want %q\n%s", err, p.Extra, want, shown(p))
		}
		w.Fault(func(c fakeaws.Call) fakeaws.Fault {
			if c.Action == "ListRoles" {
				return fakeaws.Fail(http.StatusForbidden, "AccessDenied", "no")
			}
			return fakeaws.Fault{}
		})
		p, err = w.client.PlanPrune(t.Context(), "c1", nil, true)
		if err != nil || len(p.Extra) > 0 || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "were not looked for") {
			t.Errorf("%v, notes %q", err, p.Notes)
		}
	})
}
