package awsiam_test

import (
	"fmt"
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
	"github.com/keypost/keypost/test/fakeaws"
)

const newIssuer = "https://oidc.example.com/moved"

// move makes the second provider, and says how to get there.
func (w *world) move(t testing.TB, d desired) awsiam.Move {
	t.Helper()
	second := d.provider
	second.URL = newIssuer
	p, err := w.client.PlanProvider(t.Context(), w.account, second)
	apply(t, p, err)
	return awsiam.Move{Name: "c1", From: d.trust,
		To: awsiam.Trust{ProviderARN: w.account.ProviderARN(newIssuer), Issuer: newIssuer, Audiences: []string{"openshift", "sts.amazonaws.com"}}}
}

// both tells whom all roles trust: "old", "new", "old new".
func (w *world) trusted(m awsiam.Move) map[string]string {
	out := map[string]string{}
	for _, r := range w.State().Roles {
		var who []string
		if strings.Contains(r.Trust, `"`+m.From.ProviderARN+`"`) {
			who = append(who, "old")
		}
		if strings.Contains(r.Trust, `"`+m.To.ProviderARN+`"`) {
			who = append(who, "new")
		}
		out[r.Name] = strings.Join(who, " ")
	}
	return out
}

func TestAMoveTrustsBothIssuersUntilItIsFinished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{ConsistencyDelay: 200 * time.Millisecond})
		d := w.cluster(6)
		w.mustRun(t, d)
		time.Sleep(200 * time.Millisecond) // IAM lists no role that was just made
		m := w.move(t, d)
		if _, err := w.client.PlanFinish(t.Context(), m); err == nil || !strings.Contains(err.Error(), "run the move again") {
			t.Errorf("finished before it began: %v", err)
		}
		p, err := w.client.PlanMove(t.Context(), m)
		apply(t, p, err)
		for name, who := range w.trusted(m) {
			if who != "old new" {
				t.Errorf("role %s trusts %q", name, who)
			}
		}
		if p, err = w.client.PlanMove(t.Context(), m); err != nil || !p.Empty() {
			t.Errorf("moved twice: %v\n%s", err, shown(p))
		}
		w.mustPlanNothing(t, d) // the old issuer's statement stands as it stood
		moved := w.cluster(6)
		moved.provider.URL, moved.trust = newIssuer, m.To
		w.mustPlanNothing(t, moved) // and the new one's is what create-iam-roles would write

		p, err = w.client.PlanFinish(t.Context(), m)
		apply(t, p, err)
		for name, who := range w.trusted(m) {
			if who != "new" {
				t.Errorf("role %s trusts %q", name, who)
			}
		}
		if st := w.State(); len(st.Providers) != 1 || st.Providers[0].URL != newIssuer {
			t.Errorf("left\n%s", w.picture())
		}
		if p, err = w.client.PlanFinish(t.Context(), m); err != nil || !p.Empty() {
			t.Errorf("finished twice: %v\n%s", err, shown(p))
		}
	})
}

// A role that is not ours, because it is kept by another tool or belongs to another cluster, is repaired where it is kept: its
// statement is printed. Once it trusts the new issuer, the move goes on. It must not name the old one in the end.
func TestAMoveSeesToRolesOfOthersFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		w.mustRun(t, d)
		app, theirs := d.roles[0], d.roles[0]
		app.Name, app.Owner = "app", awsiam.OwnedByKeypost()
		theirs.Name, theirs.Owner = "theirs", awsiam.OwnedBy("c9")
		p, err := w.client.PlanRoles(t.Context(), d.trust, []awsiam.Role{app, theirs})
		apply(t, p, err)
		w.makeRole(t, d, "terraform")
		must(t, second(w.hand.UntagRole(t.Context(), &iam.UntagRoleInput{RoleName: aws.String("terraform"), TagKeys: []string{"keypost.dev/owned"}})))
		m := w.move(t, d)
		before := w.picture()
		p, err = w.client.PlanMove(t.Context(), m)
		if !is(err, awsiam.ForeignRoles) || len(p.Extra) != 2 || !strings.Contains(err.Error(), "theirs (of c9)") || !strings.Contains(shown(p), "app") {
			t.Errorf("roles of others: %v\n%s", err, shown(p))
		}
		if w.picture() != before {
			t.Error("the refusal changed something")
		}
		m.Adopt = true // which is for what nobody owns
		p, err = w.client.PlanMove(t.Context(), m)
		if !is(err, awsiam.OthersRoles) || len(p.Extra) != 1 { // there is nothing left that adopting would help
			t.Errorf("another cluster's role is adopted: %v\n%s", err, shown(p))
		}
		m.Adopt = false
		for _, name := range []string{"terraform", "theirs"} { // as the message says
			p, _ := w.client.PlanMove(t.Context(), m)
			_, statement, _ := strings.Cut(p.Extra[0], "where it is kept: ")
			w.setTrust(t, name, strings.Replace(w.role(t, name).Trust, `"Statement":[`, `"Statement":[`+statement+`,`, 1))
		}
		kept := w.role(t, "terraform")
		p, err = w.client.PlanMove(t.Context(), m)
		if len(p.Extra) > 0 || !strings.Contains(strings.Join(p.Notes, "\n"), "role terraform is not ours, and trusts "+m.To.ProviderARN+" already") {
			t.Errorf("%v\n%s", err, shown(p))
		}
		apply(t, p, err)
		if got := w.trusted(m); got["app"] != "old new" || got[d.roles[0].Name] != "old new" || fmt.Sprint(w.role(t, "terraform")) != fmt.Sprint(kept) {
			t.Errorf("trusted %v, and terraform's is %+v", got, w.role(t, "terraform"))
		}
		if _, err = w.client.PlanFinish(t.Context(), m); err == nil || !strings.Contains(err.Error(), "role terraform is not ours") {
			t.Errorf("finished while a role of others names the old issuer: %v", err)
		}
	})
}

// A role of others that trusts the new issuer for some service accounts only would lock the others out at the switch. One that
// covers all of them, in whatever form, is let be, with Adopt too.
func TestAMoveLetsARoleOfOthersBeThatCoversAllSubjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		w.makeRole(t, d, "terraform")
		d.roles = nil
		w.mustRun(t, d)
		must(t, second(w.hand.UntagRole(t.Context(), &iam.UntagRoleInput{RoleName: aws.String("terraform"), TagKeys: []string{"keypost.dev/owned"}})))
		m, before := w.move(t, d), w.role(t, "terraform").Trust
		for added, listed := range map[string]int{
			`"StringEquals":{"oidc.example.com/moved:sub":"system:serviceaccount:openshift-0:node"}`:                                                1,
			`"StringEquals":{"oidc.example.com/moved:sub":["system:serviceaccount:openshift-0:node","system:serviceaccount:openshift-0:operator"]}`: 0,
			`"StringLike":{"oidc.example.com/moved:sub":"system:serviceaccount:openshift-0:*"}`:                                                     0,
			`"StringLike":{"oidc.example.com/moved:sub":"system:serviceaccount:openshift-0:n*"}`:                                                    1,
		} {
			w.setTrust(t, "terraform", strings.Replace(before, `"Statement":[`, `"Statement":[{"Effect":"Allow","Principal":{"Federated":"`+m.To.ProviderARN+
				`"},"Action":"sts:AssumeRoleWithWebIdentity","Condition":{`+added+`}},`, 1))
			m.Adopt = false
			if p, err := w.client.PlanMove(t.Context(), m); len(p.Extra) != listed || is(err, awsiam.ForeignRoles) != (listed > 0) {
				t.Errorf("%s: %v\n%s", added, err, shown(p))
			}
			m.Adopt = true
			if p, err := w.client.PlanMove(t.Context(), m); err != nil || p.Empty() != (listed == 0) {
				t.Errorf("%s, adopting: %v\n%s", added, err, shown(p))
			}
		}
	})
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
				if _, err := w.client.PlanDelete(t.Context(), w.account, awsiam.Deletion{Name: "c1", IssuerURL: issuer}); provider && err == nil {
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
