package awsiam_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakeaws"
)

// What somebody else changes after a plan was made counts as much as what was there before: these plans would leave a role
// that nobody can assume.

const trustsEC2 = `{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}`

// refused applies a plan that must not change anything.
func (w *world) refused(t *testing.T, p plan.Plan, want string) {
	t.Helper()
	before := w.picture()
	if err := p.Apply(t.Context(), awsiam.Parallel, ignore); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Apply: %v, want %q", err, want)
	}
	if after := w.picture(); after != before {
		t.Errorf("was\n%s\nis\n%s", before, after)
	}
}

func (w *world) deleteProvider(t *testing.T, arn string) {
	t.Helper()
	must(t, second(w.hand.DeleteOpenIDConnectProvider(t.Context(),
		&iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(arn)})))
}

// makeRole makes a role of create-role that trusts the provider of d, and nobody else.
func (w *world) makeRole(t *testing.T, d desired, name string) {
	t.Helper()
	r := d.roles[0]
	r.Name, r.Owner = name, awsiam.OwnedByKeypost()
	p, err := w.client.PlanRoles(t.Context(), d.trust, []awsiam.Role{r})
	apply(t, p, err)
}

// Nothing is taken away for a provider that is gone.
func TestFinishRefusesToMoveToNowhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		_, m := w.moved(t, 1)
		for _, arn := range []string{m.To.ProviderARN, m.From.ProviderARN} {
			w.deleteProvider(t, arn)
			if _, err := w.client.PlanFinish(t.Context(), m); err == nil || !strings.Contains(err.Error(), "there is no IAM OIDC identity provider "+m.To.ProviderARN) {
				t.Errorf("PlanFinish: %v", err)
			}
		}
	})
}

// A role that another cluster makes anew, or takes, after the plan was made is not adopted unseen; and one that was
// planned to be adopted is adopted only from the owner that the plan saw.
func TestAdoptTakesOnlyWhatThePlanShowed(t *testing.T) {
	t.Parallel()
	const otherKey = "openshift.io/cloud-credential-operator/c9"
	for name, change := range map[string]func(t *testing.T, w *world, role string){
		"ours, remade":          func(t *testing.T, w *world, role string) { w.remake(t, role, mark(otherKey, "owned")) },
		"ours, remade as ours":  func(t *testing.T, w *world, role string) { w.remake(t, role, mark(ownKey, "owned")) },
		"ours, changes hands":   func(t *testing.T, w *world, role string) { w.tagRole(t, role, ownKey, "shared") },
		"theirs, remade":        func(t *testing.T, w *world, _ string) { w.remake(t, "theirs", mark("team", "b")) },
		"theirs, changes hands": func(t *testing.T, w *world, _ string) { w.tagRole(t, "theirs", otherKey, "owned") },
	} {
		for way, planned := range map[string]func(ctx context.Context, w *world, m awsiam.Move) (plan.Plan, error){
			"move": func(ctx context.Context, w *world, m awsiam.Move) (plan.Plan, error) {
				return w.client.PlanMove(ctx, m)
			},
			"finish": func(ctx context.Context, w *world, m awsiam.Move) (plan.Plan, error) {
				return w.client.PlanFinish(ctx, m)
			},
		} {
			run(t, name+", "+way, func(t *testing.T) {
				w := newWorld(t, fakeaws.Options{})
				d := w.cluster(1)
				w.mustRun(t, d)
				w.makeRole(t, d, "theirs")
				must(t, second(w.hand.UntagRole(t.Context(), &iam.UntagRoleInput{RoleName: aws.String("theirs"), TagKeys: []string{"keypost.dev/owned"}})))
				m := w.move(t, d)
				m.Adopt = true
				if way == "finish" {
					p, err := w.client.PlanMove(t.Context(), m)
					apply(t, p, err)
					must(t, second(w.hand.UntagRole(t.Context(), &iam.UntagRoleInput{RoleName: aws.String("theirs"), TagKeys: []string{"keypost.dev/owned"}})))
				}
				p, err := planned(t.Context(), w, m)
				must(t, err)
				role := d.roles[0].Name
				change(t, w, role)
				if strings.HasPrefix(name, "theirs") {
					role = "theirs"
				}
				before := w.role(t, role).Trust
				if err := p.Apply(t.Context(), awsiam.Parallel, ignore); err == nil || !strings.Contains(err.Error(), "update IAM role "+role+": ") {
					t.Errorf("Apply: %v", err)
				}
				if after := w.role(t, role).Trust; after != before {
					t.Errorf("the trust policy was\n%s\nand is\n%s", before, after)
				}
				if n := len(w.State().Providers); n != 2 {
					t.Errorf("%d providers are left", n)
				}
			})
		}
	}
}

// A role that was reset to let in the issuer, and to deny others, keeps its statement.
func TestDeleteIssuerRefusesARoleThatDeniesTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		w.mustRun(t, d)
		role := d.roles[0].Name
		reset := strings.Replace(w.role(t, role).Trust, `"Statement":[`, `"Statement":[`+strings.Replace(trustsEC2, "Allow", "Deny", 1)+`,`, 1)
		m := w.move(t, d)
		p, err := w.client.PlanMove(t.Context(), m)
		apply(t, p, err)
		p, err = w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1", IssuerURL: issuer})
		must(t, err)
		w.setTrust(t, role, reset)
		w.refused(t, p, "trusts nobody but "+d.trust.ProviderARN+" now")
	})
}
