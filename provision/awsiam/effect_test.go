package awsiam_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// messyWorld is an account with roles and providers of several owners, in any state.
func messyWorld(t *testing.T, r *rand.Rand) (*world, desired) {
	t.Helper()
	w := newWorld(t, fakeaws.Options{})
	d := w.cluster(3)
	d.trust.Usual = r.IntN(2) == 0
	owners := []awsiam.Owner{awsiam.OwnedBy("c1"), awsiam.OwnedBy("c1"), awsiam.OwnedBy("c2"), awsiam.OwnedByKeypost(), {}}
	for _, url := range []string{issuer, newIssuer, oldIssuer} {
		if r.IntN(4) > 0 {
			in := &iam.CreateOpenIDConnectProviderInput{Url: aws.String(url), ClientIDList: []string{"openshift", "sts.amazonaws.com"}}
			in.Tags = tagsOf(owners[r.IntN(len(owners)-1)])
			if url == issuer {
				in.Tags = tagsOf(owners[0])
			}
			must(t, second(w.hand.CreateOpenIDConnectProvider(t.Context(), in)))
		}
	}
	marks := [][]types.Tag{tagsOf(owners[0]), tagsOf(owners[0]), tagsOf(owners[2]), tagsOf(owners[3]), nil,
		{{Key: tagsOf(owners[0])[0].Key, Value: aws.String("shared")}}}
	if r.IntN(3) == 0 { // some roles have two owners, and nothing of the name is deleted
		marks = append(marks, slices.Concat(tagsOf(owners[0]), tagsOf(owners[3])))
	}
	for i := range 10 {
		name := aws.String(fmt.Sprintf("c1-role-%d", i))
		if i < len(d.roles) {
			name = aws.String(d.roles[i].Name)
			d.roles[i].Exact, d.roles[i].Tighten, d.roles[i].Prune = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(3) == 0
			d.roles[i].Adopt = true
			if r.IntN(3) == 0 {
				continue // it is still to be made
			}
		}
		must(t, second(w.hand.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: aws.String(w.anyTrust(r)),
			Tags: marks[r.IntN(len(marks))]})))
		for _, p := range []string{*name, "more"} {
			if r.IntN(2) == 0 {
				must(t, second(w.hand.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: name, PolicyName: aws.String(p),
					PolicyDocument: aws.String(string(policy("ec2:RunInstances", "s3:Get")))})))
			}
		}
		if r.IntN(3) == 0 {
			must(t, second(w.hand.AttachRolePolicy(t.Context(), &iam.AttachRolePolicyInput{RoleName: name,
				PolicyArn: aws.String("arn:aws:iam::aws:policy/ReadOnlyAccess")})))
		}
	}
	w.ResetCalls()
	return w, d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tagsOf(o awsiam.Owner) []types.Tag {
	key, value, is := strings.Cut(o.String(), "=")
	if !is || key == "" {
		return nil
	}
	return []types.Tag{{Key: aws.String(key), Value: aws.String(value)}}
}

func (w *world) anyTrust(r *rand.Rand) string {
	trust := func(effect, url, action, operator string) string {
		host := strings.TrimPrefix(url, "https://")
		return fmt.Sprintf(`{"Effect":%q,"Principal":{"Federated":%q},"Action":%s,"Condition":{%q:{"%s:sub":"system:serviceaccount:ns:a"}}}`,
			effect, w.account.ProviderARN(url), action, operator, host)
	}
	const assume, tag = `"sts:AssumeRoleWithWebIdentity"`, `["sts:AssumeRoleWithWebIdentity","sts:TagSession"]`
	all := []string{
		trust("Allow", issuer, assume, "StringEquals"), trust("Allow", newIssuer, assume, "StringEquals"),
		trust("Allow", oldIssuer, tag, "StringLike"), trust("Allow", issuer, tag, "ForAnyValue:StringLike"), trust("Deny", issuer, assume, "StringNotEquals"),
		`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Action":"sts:AssumeRole"}`,
		fmt.Sprintf(`{"Effect":"Allow","Principal":{"Federated":[%q,%q]},"Action":%s}`, w.account.ProviderARN(issuer), w.account.ProviderARN(oldIssuer), tag),
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return `{"Version":"2012-10-17","Statement":[` + strings.Join(all[:1+r.IntN(2)], ",") + `]}`
}

// works are the kinds of plans.
func works(w *world, d desired, r *rand.Rand) map[string]planner {
	move := awsiam.Move{Name: "c1", From: d.trust, Adopt: r.IntN(3) > 0,
		To: awsiam.Trust{ProviderARN: w.account.ProviderARN(newIssuer), Issuer: newIssuer, Audiences: d.trust.Audiences}}
	return map[string]planner{
		"delete": func(ctx context.Context) (plan.Plan, error) {
			return w.client.PlanDelete(ctx, w.account, awsiam.Deletion{Name: "c1"})
		},
		"delete an issuer": func(ctx context.Context) (plan.Plan, error) {
			return w.client.PlanDelete(ctx, w.account, awsiam.Deletion{Name: "c1", IssuerURL: issuer, Strand: r.IntN(3) > 0})
		},
		"provider": func(ctx context.Context) (plan.Plan, error) { return w.client.PlanProvider(ctx, w.account, d.provider) },
		"roles":    func(ctx context.Context) (plan.Plan, error) { return w.client.PlanRoles(ctx, d.trust, d.roles) },
		"prune": func(ctx context.Context) (plan.Plan, error) {
			return w.client.PlanPrune(ctx, "c1", []string{d.roles[0].Name}, false)
		},
		"move":       func(ctx context.Context) (plan.Plan, error) { return w.client.PlanMove(ctx, move) },
		"end a move": func(ctx context.Context) (plan.Plan, error) { return w.client.PlanFinish(ctx, move) },
	}
}

// Only what bears the installation's own tag is ever deleted, whatever else happens to it.
func TestOnlyOwnedRolesAreDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const own, workload = "openshift.io/cloud-credential-operator/c1", "keypost.dev/owned"
		var both, shared, deleted int
		for seed := range uint64(10) {
			r := rand.New(rand.NewPCG(seed, 8))
			w, d := messyWorld(t, r)
			was := map[string]map[string]string{}
			for _, role := range w.State().Roles {
				was[role.Name] = role.Tags
				if slices.ContainsFunc(d.roles, func(r awsiam.Role) bool { return r.Name == role.Name }) {
					continue // it may be taken over before it is deleted
				}
				if role.Tags[own] == "owned" && role.Tags[workload] == "owned" {
					both++
				}
				if role.Tags[own] == "shared" {
					shared++
				}
			}
			w.ResetCalls()
			for _, work := range works(w, d, r) {
				if p, err := work(t.Context()); err == nil {
					_ = p.Apply(t.Context(), 1, ignore)
				}
			}
			for _, c := range w.Calls() {
				name := c.Params["RoleName"]
				tags, there := was[name]
				if c.Action != "DeleteRole" || !there || slices.ContainsFunc(d.roles, func(r awsiam.Role) bool { return r.Name == name }) {
					continue
				}
				if deleted++; tags[own] != "owned" || tags[workload] == "owned" {
					t.Errorf("seed %d: %s was deleted, with the tags %v", seed, name, tags)
				}
			}
		}
		if both < 3 || shared < 3 || deleted < 3 {
			t.Errorf("%d roles have both tags, %d are shared, %d were deleted: the test shows little", both, shared, deleted)
		}
	})
}
