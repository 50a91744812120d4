package awsiam_test

import (
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

func TestARunMakesWhatIsWantedAndTheNextChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(3)
		w.mustRun(t, d)
		got := w.role(t, "c1-openshift-1-cloud-credentials")
		if got.Boundary != boundary || got.Tags["openshift.io/cloud-credential-operator/c1"] != "owned" || got.Tags["Name"] != "c1" ||
			got.Tags["team"] != "a" ||
			got.Inline["c1-openshift-1-cloud-credentials"] != string(d.roles[1].Policy) || got.Description != d.roles[1].Description {
			t.Errorf("made %+v", got)
		}
		w.ResetCalls()
		w.mustPlanNothing(t, d)
		if n := len(w.Calls()); n > 1+4*len(d.roles) {
			t.Errorf("%d calls to find out that nothing differs: %v", n, counts(w.Calls()))
		}
	})
}

func TestEveryDriftIsSeenAndRepaired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.messy()
		w.mustRun(t, d)
		before := w.picture()
		w.disarrange(t, d)
		p, err := w.plan(t.Context(), d)
		for _, want := range []string{
			"- tag team=b", "+ permissions boundary " + boundary, "- permissions boundary arn:aws:iam::aws:policy/x",
			`"StringLike":{"oidc.example.com/c1:sub":"*"}`, `loses a permission: {"Effect":"Allow","Action":"a:B","Resource":"*"}`,
			`+ {"Effect":"Allow","Action":["ec2:DescribeInstances","ec2:RunInstances"],"Resource":"*"}`, "+ managed policy " + readOnly,
			"+ client ID openshift", "- client ID more", "- thumbprint " + strings.Repeat("b", 40), "+ tag team=a",
		} {
			if !strings.Contains(shown(p), want) {
				t.Errorf("%v: the plan does not say %q:\n%s", err, want, shown(p))
			}
		}
		apply(t, p, err)
		w.mustPlanNothing(t, d)
		if after := w.picture(); after != before {
			t.Errorf("before\n%s\nafter\n%s", before, after)
		}
	})
}

func TestWhatOthersMadeIsNotTouched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		w.mustRun(t, d)
		other := w.cluster(1)
		other.provider.Owner, other.roles[0].Owner = awsiam.OwnedBy("c2"), awsiam.OwnedBy("c2")
		before := w.picture()
		if _, err := w.client.PlanProvider(t.Context(), w.account, other.provider); err == nil || !strings.Contains(err.Error(),
			"belongs to c1") || !is(err, awsiam.OthersThing) {
			t.Errorf("provider of another cluster: %v", err)
		}
		if _, err := w.client.PlanRoles(t.Context(), other.trust, other.roles); err == nil || !strings.Contains(err.Error(), "belongs to c1") {
			t.Errorf("role of another cluster: %v", err)
		}
		if after := w.picture(); after != before {
			t.Errorf("a refusal changed\n%s\nto\n%s", before, after)
		}
		other.provider.Adopt, other.roles[0].Adopt = true, true
		if _, err := w.client.PlanProvider(t.Context(), w.account, other.provider); !is(err, awsiam.OthersThing) {
			t.Errorf("another cluster's provider is adopted: %v", err)
		}
		if _, err := w.client.PlanRoles(t.Context(), other.trust, other.roles); !is(err, awsiam.OthersThing) {
			t.Errorf("another cluster's role is adopted: %v", err)
		}
		role := aws.String(d.roles[0].Name)
		must(t, second(w.hand.UntagRole(t.Context(), &iam.UntagRoleInput{RoleName: role, TagKeys: []string{ownKey}})))
		must(t, second(w.hand.UntagOpenIDConnectProvider(t.Context(), &iam.UntagOpenIDConnectProviderInput{
			OpenIDConnectProviderArn: aws.String(d.trust.ProviderARN), TagKeys: []string{ownKey}})))
		w.mustRun(t, other)
		w.mustPlanNothing(t, other)
		if got := w.role(t, *role); got.Tags["openshift.io/cloud-credential-operator/c2"] != "owned" {
			t.Errorf("nobody's role is not adopted: %v", got.Tags)
		}
	})
}

func TestPruneDeletesRolesWhoseRequestIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{PageSize: 2})
		d := w.cluster(4)
		d.roles[2].ManagedPolicies = []string{"arn:aws:iam::aws:policy/ReadOnlyAccess"}
		w.mustRun(t, d)
		app := d.roles[0]
		app.Name, app.Owner = "c1-app", awsiam.OwnedByKeypost()
		alien := app
		alien.Name, alien.Owner = "c1-alien", awsiam.OwnedBy("c1-alien")
		p, err := w.client.PlanRoles(t.Context(), d.trust, []awsiam.Role{app, alien})
		apply(t, p, err)
		w.ResetCalls()
		p, err = w.client.PlanPrune(t.Context(), "c1", []string{d.roles[0].Name, d.roles[1].Name}, false)
		if n := counts(w.Calls())["GetRole"]; n > 4 {
			t.Errorf("%d roles were read to find out whose they are", n)
		}
		apply(t, p, err)
		var names []string
		for _, r := range w.State().Roles {
			names = append(names, r.Name)
		}
		if want := []string{"c1-alien", "c1-app", d.roles[0].Name, d.roles[1].Name}; !slices.Equal(names, want) {
			t.Errorf("left %q, want %q", names, want)
		}
	})
}

func TestDeleteTakesWhatBearsTheNameAndNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(3)
		d.roles[2].ManagedPolicies = []string{"arn:aws:iam::aws:policy/ReadOnlyAccess"}
		w.mustRun(t, d)
		app := d.roles[0]
		app.Name, app.Owner = "app", awsiam.OwnedByKeypost()
		p, err := w.client.PlanRoles(t.Context(), d.trust, []awsiam.Role{app})
		apply(t, p, err)

		p, err = w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1"})
		if !slices.Contains(p.Notes, "role app stays, and keeps a statement for the deleted provider "+d.trust.ProviderARN) {
			t.Errorf("notes %q", p.Notes)
		}
		apply(t, p, err)
		if st := w.State(); len(st.Providers) != 0 || len(st.Roles) != 1 || st.Roles[0].Name != "app" {
			t.Errorf("left\n%s", w.picture())
		}
		apply(t, p, nil) // the same plan again: what is gone is gone
		p, err = w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1"})
		if err != nil || !p.Empty() {
			t.Errorf("a second deletion: %v\n%s", err, shown(p))
		}
	})
}

// What may be ours and cannot be read stops a deletion before it begins; a role of another name does not.
func TestWhatMayNotBeReadStopsADeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		w.mustRun(t, d)
		other := w.cluster(1)
		other.provider.Owner, other.provider.URL = awsiam.OwnedBy("c2"), oldIssuer
		other.trust.ProviderARN, other.trust.Issuer = w.account.ProviderARN(oldIssuer), oldIssuer
		other.roles[0].Name, other.roles[0].Owner = "c2-x", awsiam.OwnedBy("c2")
		w.mustRun(t, other)
		denied := map[string]bool{}
		w.Fault(func(c fakeaws.Call) fakeaws.Fault {
			if strings.HasPrefix(c.Action, "Get") && (denied[c.Params["RoleName"]] || denied[c.Params["OpenIDConnectProviderArn"]]) {
				return fakeaws.Fail(http.StatusForbidden, "AccessDenied", "not for you")
			}
			return fakeaws.Fault{}
		})
		deleted := func() (plan.Plan, error) {
			return w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1"})
		}
		for thing, permission := range map[string]string{d.roles[0].Name: "iam:GetRole", d.trust.ProviderARN: "iam:GetOpenIDConnectProvider"} {
			denied[thing] = true
			if p, err := deleted(); err == nil || !strings.Contains(err.Error(), thing) || !strings.Contains(err.Error(), permission) {
				t.Errorf("%s: %v\n%s", thing, err, shown(p))
			}
			delete(denied, thing)
		}
		denied[d.roles[0].Name] = true
		if _, err := w.client.PlanPrune(t.Context(), "c1", nil, false); err == nil || !strings.Contains(err.Error(), "iam:GetRole") {
			t.Errorf("prune: %v", err)
		}
		m := w.move(t, d)
		if p, err := w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1", IssuerURL: issuer}); err == nil || !strings.Contains(err.Error(), "iam:GetRole") {
			t.Errorf("an issuer: %v\n%s", err, shown(p))
		}
		m.Adopt = true
		if p, err := w.client.PlanMove(t.Context(), m); !is(err, awsiam.OthersRoles) {
			t.Errorf("move: %v\n%s", err, shown(p))
		}
		delete(denied, d.roles[0].Name)
		denied["c2-x"] = true
		p, err := deleted()
		apply(t, p, err)
		if st := w.State(); len(st.Roles) != 1 || st.Roles[0].Name != "c2-x" {
			t.Errorf("left\n%s", w.picture())
		}
	})
}

// A policy with a new Deny takes permissions away, which only Prune may.
func TestANewDenyNeedsPrune(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		w.mustRun(t, d)
		d.roles[0].Policy = []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":"ec2:RunInstances","Resource":"*"}]}`)
		if _, err := w.plan(t.Context(), d); !is(err, awsiam.NeedsPrune) {
			t.Errorf("a new Deny: %v", err)
		}
	})
}

// ccoctl tags the provider in a second call, and knows no :aud.
func TestWhatCcoctlMadeIsReconciledAndDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		arn := aws.String(d.trust.ProviderARN)
		owned := []types.Tag{{Key: aws.String("openshift.io/cloud-credential-operator/c1"), Value: aws.String("owned")},
			{Key: aws.String("Name"), Value: aws.String("c1")}}
		name := aws.String(d.roles[0].Name)
		ccoctl := `{ "Version": "2012-10-17", "Statement": [ { "Effect": "Allow", "Principal": { "Federated": "` + *arn +
			`" }, "Action": "sts:AssumeRoleWithWebIdentity", ` +
			`"Condition":  { "StringEquals": { "oidc.example.com/c1:sub": [ "system:serviceaccount:openshift-0:operator"  , "system:` +
			`serviceaccount:openshift-0:node" ] } } } ] }`
		_, err := w.hand.CreateOpenIDConnectProvider(t.Context(), &iam.CreateOpenIDConnectProviderInput{Url: aws.String(issuer),
			ClientIDList: []string{"openshift", "sts.amazonaws.com"}})
		if err == nil {
			_, err = w.hand.TagOpenIDConnectProvider(t.Context(), &iam.TagOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, Tags: owned})
		}
		if err == nil {
			_, err = w.hand.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: aws.String(ccoctl), Tags: owned})
		}
		if err == nil {
			_, err = w.hand.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: name, PolicyName: name,
				PolicyDocument: aws.String(string(policy("ec2:RunInstances")))})
		}
		if err != nil {
			t.Fatal(err)
		}
		before := w.picture()
		p, err := w.plan(t.Context(), d)
		if err != nil || !strings.Contains(shown(p), `:aud":["openshift","sts.amazonaws.com"]`) {
			t.Errorf("%v\n%s", err, shown(p))
		}
		if w.picture() != before {
			t.Error("planning changed something")
		}
		apply(t, p, err)
		w.mustPlanNothing(t, d)
		p, err = w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1"})
		apply(t, p, err)
		if w.picture() != "" {
			t.Errorf("left\n%s", w.picture())
		}
	})
}

func TestADeletionMakesFewCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		w.mustRun(t, w.cluster(20))
		w.ResetCalls()
		p, err := w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1"})
		apply(t, p, err)
		if n := len(w.Calls()); n > 110 || len(w.State().Roles) > 0 {
			t.Errorf("%d calls for 20 roles: %v", n, counts(w.Calls()))
		}
	})
}
