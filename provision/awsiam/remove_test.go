package awsiam_test

import (
	"context"
	"fmt"
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

// What another owns too, or only shares, is neither changed nor deleted, and anyone who asks for that is told.
func TestWhatAnotherOwnsTooIsLeftAlone(t *testing.T) {
	t.Parallel()
	const otherKey = "openshift.io/cloud-credential-operator/c9"
	for name, tt := range map[string]struct{ key, value string }{
		"of create-role":     {"keypost.dev/owned", "owned"},
		"of another cluster": {otherKey, "owned"},
		"shared, by the tag": {ownKey, "shared"},
	} {
		for _, provider := range []bool{false, true} {
			run(t, fmt.Sprintf("%s, provider %t", name, provider), func(t *testing.T) {
				w := newWorld(t, fakeaws.Options{})
				d := w.cluster(1)
				w.mustRun(t, d)
				if provider {
					w.tagProvider(t, d.trust.ProviderARN, tt.key, tt.value)
				} else {
					w.tagRole(t, d.roles[0].Name, tt.key, tt.value)
				}
				before := w.picture()
				_, err := w.plan(t.Context(), d)
				if !is(err, awsiam.OthersThing) && !is(err, awsiam.NotOwned) {
					t.Errorf("create: %v", err)
				}
				if _, err := w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1", IssuerURL: issuer, Strand: true}); provider && err == nil {
					t.Error("the issuer's provider would be deleted")
				}
				p, err := w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1"})
				if tt.value == "owned" {
					if err == nil || !strings.Contains(err.Error(), "another owner's tag too") || w.picture() != before {
						t.Errorf("delete: %v\n%s", err, shown(p))
					}
					return
				}
				apply(t, p, err)
				if st := w.State(); provider && len(st.Providers) != 1 || !provider && len(st.Roles) != 1 {
					t.Errorf("left\n%s", w.picture())
				}
			})
		}
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
		"tags":  {func(t *testing.T, w *world, role, _ string) { w.tagRole(t, role, ownKey, "shared") }, "changed hands"},
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
