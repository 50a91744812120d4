package awsiam_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		var log []string
		p, err := w.plan(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if len(slices.DeleteFunc(w.Calls(), func(c fakeaws.Call) bool { return !c.Write })) > 0 {
			t.Errorf("a plan wrote: %v", w.Calls())
		}
		if err := p.Apply(t.Context(), awsiam.Parallel, func(_ plan.Action, said []string, _ error) { log = append(log, said...) }); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{
			"Identity Provider created with ARN: arn:aws:iam::123456789012:oidc-provider/oidc.example.com/c1",
			"Role arn:aws:iam::123456789012:role/c1-openshift-0-cloud-credentials created",
			"Updated Role policy for Role c1-openshift-2-cloud-credentials",
		} {
			if !slices.Contains(log, line) {
				t.Errorf("nothing says %q: %q", line, log)
			}
		}
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
	const name = "c1-openshift-0-cloud-credentials"
	role := aws.String(name)
	provider := aws.String("arn:aws:iam::123456789012:oidc-provider/oidc.example.com/c1")
	for _, tt := range []struct {
		name string
		hand func(ctx context.Context, c *iam.Client) error
		want string // in the plan
	}{
		{"trust policy", func(ctx context.Context, c *iam.Client) error {
			_, err := c.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: role, PolicyDocument: aws.String(strings.ReplaceAll(
				`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":"ARN"},"Action":"sts:AssumeRoleWithWebIdentity",`+
					`"Condition":{"StringLike":{"oidc.example.com/c1:sub":"*"}}}]}`, "ARN", *provider))})
			return err
		}, "- trust arn:aws:iam::123456789012:oidc-provider/oidc.example.com/c1 when sub StringLike *"},
		{"permissions", func(ctx context.Context, c *iam.Client) error {
			_, err := c.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: role, PolicyName: role,
				PolicyDocument: aws.String(string(policy("*")))})
			return err
		}, "loses a permission: Allow * on *"},
		{"permissions gone", func(ctx context.Context, c *iam.Client) error {
			_, err := c.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: role, PolicyName: role})
			return err
		}, "+ Allow ec2:DescribeInstances, ec2:RunInstances on *"},
		{"boundary", func(ctx context.Context, c *iam.Client) error {
			_, err := c.DeleteRolePermissionsBoundary(ctx, &iam.DeleteRolePermissionsBoundaryInput{RoleName: role})
			return err
		}, "+ permissions boundary " + boundary},
		{"another boundary", func(ctx context.Context, c *iam.Client) error {
			_, err := c.PutRolePermissionsBoundary(ctx, &iam.PutRolePermissionsBoundaryInput{RoleName: role,
				PermissionsBoundary: aws.String("arn:aws:iam::aws:policy/x")})
			return err
		}, "- permissions boundary arn:aws:iam::aws:policy/x"},
		{"role's tag", func(ctx context.Context, c *iam.Client) error {
			_, err := c.TagRole(ctx, &iam.TagRoleInput{RoleName: role, Tags: []types.Tag{{Key: aws.String("team"), Value: aws.String("b")}}})
			return err
		}, "- tag team=b"},
		{"managed policy", func(ctx context.Context, c *iam.Client) error {
			_, err := c.DetachRolePolicy(ctx, &iam.DetachRolePolicyInput{RoleName: role,
				PolicyArn: aws.String("arn:aws:iam::aws:policy/ReadOnlyAccess")})
			return err
		}, "+ managed policy arn:aws:iam::aws:policy/ReadOnlyAccess"},
		{"client ID", func(ctx context.Context, c *iam.Client) error {
			_, err := c.RemoveClientIDFromOpenIDConnectProvider(ctx,
				&iam.RemoveClientIDFromOpenIDConnectProviderInput{OpenIDConnectProviderArn: provider, ClientID: aws.String("openshift")})
			return err
		}, "+ client ID openshift"},
		{"thumbprint", func(ctx context.Context, c *iam.Client) error {
			_, err := c.UpdateOpenIDConnectProviderThumbprint(ctx,
				&iam.UpdateOpenIDConnectProviderThumbprintInput{OpenIDConnectProviderArn: provider, ThumbprintList: []string{strings.Repeat("b",
					40)}})
			return err
		}, "- thumbprint " + strings.Repeat("b", 40)},
		{"provider's tag", func(ctx context.Context, c *iam.Client) error {
			_, err := c.UntagOpenIDConnectProvider(ctx, &iam.UntagOpenIDConnectProviderInput{OpenIDConnectProviderArn: provider,
				TagKeys: []string{"team"}})
			return err
		}, "+ tag team=a"},
		{"role gone", func(ctx context.Context, c *iam.Client) error {
			_, err := c.DetachRolePolicy(ctx, &iam.DetachRolePolicyInput{RoleName: role,
				PolicyArn: aws.String("arn:aws:iam::aws:policy/ReadOnlyAccess")})
			if err == nil {
				_, err = c.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: role, PolicyName: role})
			}
			if err == nil {
				_, err = c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: role})
			}
			return err
		}, "create IAM role " + name},
		{"provider gone", func(ctx context.Context, c *iam.Client) error {
			_, err := c.DeleteOpenIDConnectProvider(ctx, &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: provider})
			return err
		}, "create IAM OIDC identity provider"},
	} {
		run(t, tt.name, func(t *testing.T) {
			w := newWorld(t, fakeaws.Options{})
			d := w.cluster(2)
			d.roles[0].ManagedPolicies = []string{"arn:aws:iam::aws:policy/ReadOnlyAccess"}
			d.roles[0].Prune, d.provider.Tighten = true, true
			d.provider.Thumbprints = []string{strings.Repeat("A", 40)}
			w.mustRun(t, d)
			before := w.picture()
			if err := tt.hand(t.Context(), w.hand); err != nil {
				t.Fatal(err)
			}
			p, err := w.plan(t.Context(), d)
			if err != nil || !strings.Contains(shown(p), tt.want) {
				t.Errorf("%v: the plan does not say %q:\n%s", err, tt.want, shown(p))
			}
			apply(t, p, err)
			w.mustPlanNothing(t, d)
			if after := w.picture(); after != before && tt.name != "description" { // the duration set by hand stays
				t.Errorf("before\n%s\nafter\n%s", before, after)
			}
			if tt.name == "description" && w.role(t, name).MaxSession != 7200 {
				t.Error("setting the description set the session's duration back")
			}
		})
	}
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

func TestAudiencesAreTakenAwayOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(0)
		w.mustRun(t, d)
		d.provider.ClientIDs = []string{"openshift"}
		p, err := w.plan(t.Context(), d)
		if err != nil || !p.Empty() || !strings.Contains(strings.Join(p.Notes, "\n"), "audience sts.amazonaws.com too") {
			t.Errorf("%v\n%s", err, shown(p))
		}
		d.provider.Tighten = true
		w.mustRun(t, d)
		if got := w.State().Providers[0].ClientIDs; !slices.Equal(got, []string{"openshift"}) {
			t.Errorf("client IDs %q", got)
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
		if n := counts(w.Calls())["GetRole"]; n > 0 {
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

func TestDeletingAnIssuerTakesOnlyItsProviderAndStatements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(2)
		w.mustRun(t, d)
		m := w.move(t, d)
		p, err := w.client.PlanMove(t.Context(), m)
		apply(t, p, err)
		only := d.roles[0] // trusts only the first issuer
		only.Name = "c1-only"
		app := only
		app.Name, app.Owner = "app", awsiam.OwnedByKeypost()
		foreign := only
		foreign.Name, foreign.Owner = "foreign", awsiam.OwnedBy("c9")
		p, err = w.client.PlanRoles(t.Context(), d.trust, []awsiam.Role{only, app, foreign})
		apply(t, p, err)

		before := w.picture()
		_, err = w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1", IssuerURL: issuer})
		if !is(err, awsiam.Stranded) || !strings.Contains(err.Error(), ": app (of create-role), c1-only (of c1), foreign (of c9);") {
			t.Errorf("got %v", err)
		}
		if w.picture() != before {
			t.Error("the refusal changed something")
		}

		p, err = w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1", IssuerURL: issuer, Strand: true})
		if !slices.Contains(p.Notes, "role app (of create-role) stays, and keeps a statement for the deleted provider "+d.trust.ProviderARN+": nobody may assume it") {
			t.Errorf("notes %q", p.Notes)
		}
		apply(t, p, err)
		st := w.State()
		if len(st.Providers) != 1 || st.Providers[0].ARN != m.To.ProviderARN || len(st.Roles) != 5 {
			t.Errorf("left\n%s", w.picture())
		}
		for _, r := range st.Roles {
			stays := r.Name == "foreign" || r.Name == "app" || r.Name == "c1-only"
			if trusts := strings.Contains(r.Trust, d.trust.ProviderARN); trusts != stays {
				t.Errorf("role %s: %s", r.Name, r.Trust)
			}
		}
		if p, err = w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1", IssuerURL: issuer}); err != nil || !p.Empty() {
			t.Errorf("again: %v\n%s", err, shown(p))
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
			if (strings.HasSuffix(c.Action, "Tags") || c.Action == "GetRole") && (denied[c.Params["RoleName"]] || denied[c.Params["OpenIDConnectProviderArn"]]) {
				return fakeaws.Fail(http.StatusForbidden, "AccessDenied", "not for you")
			}
			return fakeaws.Fault{}
		})
		deleted := func() (plan.Plan, error) {
			return w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1"})
		}
		for thing, permission := range map[string]string{d.roles[0].Name: "iam:ListRoleTags", d.trust.ProviderARN: "iam:ListOpenIDConnectProviderTags"} {
			denied[thing] = true
			if p, err := deleted(); err == nil || !strings.Contains(err.Error(), thing) || !strings.Contains(err.Error(), permission) {
				t.Errorf("%s: %v\n%s", thing, err, shown(p))
			}
			delete(denied, thing)
		}
		denied[d.roles[0].Name] = true
		if _, err := w.client.PlanPrune(t.Context(), "c1", nil, false); err == nil || !strings.Contains(err.Error(), "iam:ListRoleTags") {
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

// IAM does not delete a role of an instance profile: that is told at once, and stops the deletion before the provider.
func TestARoleInAnInstanceProfileIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(2)
		w.mustRun(t, d)
		role, profile := aws.String(d.roles[1].Name), aws.String("nodes")
		must(t, second(w.hand.AddRoleToInstanceProfile(t.Context(), &iam.AddRoleToInstanceProfileInput{InstanceProfileName: profile, RoleName: role})))
		p, err := w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1"})
		must(t, err)
		start := time.Now()
		if err := p.Apply(t.Context(), 1, ignore); err == nil || !strings.Contains(err.Error(), *role) || !strings.Contains(err.Error(), "remove-role-from-instance-profile") {
			t.Errorf("Apply: %v", err)
		}
		if took := time.Since(start); took > 5*time.Second || len(w.State().Providers) != 1 {
			t.Errorf("it took %v and left\n%s", took, w.picture())
		}
	})
}

// What a role has beyond what is wanted is a finding, whatever it is; it goes only when that is asked for.
func TestWhatARoleHasBeyondIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const admin = "arn:aws:iam::aws:policy/AdministratorAccess"
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(2)
		for i := range d.roles {
			d.roles[i].Exact = true
		}
		w.mustRun(t, d)
		w.mustPlanNothing(t, d)
		ctx, role := t.Context(), aws.String(d.roles[0].Name)
		was := w.role(t, *role).Trust
		for _, err := range []error{
			second(w.hand.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: role, PolicyArn: aws.String(admin)})),
			second(w.hand.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: role, PolicyName: aws.String("back-door"),
				PolicyDocument: aws.String(string(policy("*")))})),
			second(w.hand.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: role, PolicyDocument: aws.String(
				strings.Replace(was, `"Statement":[`, `"Statement":[{"Effect":"Allow","Principal":{"AWS":"210987654321"},"Action":"sts:AssumeRole"},`, 1))})),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		beyond := []string{"inline policy back-door", "managed policy " + admin, "trust AWS:210987654321 for sts:AssumeRole"}
		p, err := w.plan(t.Context(), d)
		if err != nil || !p.Empty() || len(p.Extra) != 3 {
			t.Fatalf("%v\n%s", err, shown(p))
		}
		for _, want := range beyond {
			if !strings.Contains(shown(p), want) {
				t.Errorf("the plan does not say %q:\n%s", want, shown(p))
			}
		}
		d.roles[0].Tighten = true
		p, err = w.plan(t.Context(), d)
		if len(p.Extra) != 1 || len(p.Stages) != 1 {
			t.Errorf("%v\n%s", err, shown(p))
		}
		apply(t, p, err)
		if got := w.role(t, *role); len(got.Attached) > 0 || len(got.Inline) != 1 {
			t.Errorf("still %+v", got)
		}
		d.roles[0].Tighten = false
		w.mustPlanNothing(t, d)
	})
}

// Without Prune a run only adds, permissions and trust; what is there beyond is named.
func TestNothingGoesWithoutPrune(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		w.mustRun(t, d)
		d.roles[0].Policy = policy("ec2:DescribeInstances", "ec2:StopInstances")
		d.roles[0].Subjects = []string{"system:serviceaccount:openshift-0:node", "system:serviceaccount:openshift-0:operator-v2"}
		p, err := w.plan(t.Context(), d)
		if len(p.Extra) != 2 || !strings.HasSuffix(p.Extra[0], "too, which nobody asked for; --prune takes it away") ||
			!strings.HasSuffix(p.Extra[1], "--prune takes it away: Allow ec2:RunInstances on *") || len(p.Warnings) > 0 {
			t.Errorf("%v\n%s", err, shown(p))
		}
		apply(t, p, err)
		role := w.role(t, d.roles[0].Name)
		for _, kept := range []string{"ec2:RunInstances", "ec2:StopInstances", `0:operator"`, `0:operator-v2"`} {
			if !strings.Contains(role.Inline[role.Name]+role.Trust, kept) {
				t.Errorf("%s is not in %+v", kept, role)
			}
		}
		w.mustPlanNothing(t, d)
		d.roles[0].Prune = true
		p, err = w.plan(t.Context(), d)
		if len(p.Extra) > 0 || len(p.Warnings) != 2 {
			t.Errorf("%v\n%s", err, shown(p))
		}
		apply(t, p, err)
		role = w.role(t, d.roles[0].Name)
		for _, gone := range []string{"ec2:RunInstances", `0:operator"`} {
			if strings.Contains(role.Inline[role.Name]+role.Trust, gone) {
				t.Errorf("%s is still in %+v", gone, role)
			}
		}
		d.roles[0].Prune = false
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
		if err != nil || !strings.Contains(shown(p), "+ trust "+*arn+" when aud is openshift") {
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
