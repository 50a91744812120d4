package awsiam_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

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

func TestAMoveAdoptsWhatNobodyOwns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		w.mustRun(t, d)
		w.makeRole(t, d, "theirs")
		must(t, second(w.hand.UntagRole(t.Context(), &iam.UntagRoleInput{RoleName: aws.String("theirs"), TagKeys: []string{"keypost.dev/owned"}})))
		m := w.move(t, d)
		m.Adopt = true
		p, err := w.client.PlanMove(t.Context(), m)
		apply(t, p, err)
		if got := w.role(t, "theirs"); w.trusted(m)["theirs"] != "old new" || got.Tags["keypost.dev/owned"] != "owned" || got.Tags[ownKey] != "" {
			t.Errorf("adopted %+v", got)
		}
		m.Adopt = false
		p, err = w.client.PlanFinish(t.Context(), m)
		apply(t, p, err)
		if got := w.trusted(m)["theirs"]; got != "new" {
			t.Errorf("adopted role trusts %q in the end", got)
		}
	})
}

func TestAMoveThatDoesNotFitChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(3)
		for i := range 12 {
			d.roles[1].Subjects = append(d.roles[1].Subjects,
				"system:serviceaccount:openshift-long-namespace-name:service-account-with-a-long-name-"+string(rune('a'+i)))
		}
		w.mustRun(t, d)
		m := w.move(t, d)
		before := w.picture()
		_, err := w.client.PlanMove(t.Context(), m)
		if err == nil || !strings.Contains(err.Error(), d.roles[1].Name) || !strings.Contains(err.Error(), "where AWS allows 2048") {
			t.Errorf("got %v", err)
		}
		if w.picture() != before {
			t.Error("something changed")
		}
	})
}

func TestTheTimeOfTheSwitchIsKeptAtTheOldProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{ConsistencyDelay: 200 * time.Millisecond})
		d := w.cluster(0)
		w.mustRun(t, d)
		at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
		for _, want := range []time.Time{{}, at, {}, at} {
			if _, err := w.client.SetMovedAt(t.Context(), d.trust.ProviderARN, want); err != nil {
				t.Fatal(err)
			}
			if got, err := w.client.MovedAt(t.Context(), d.trust.ProviderARN); err != nil || !got.Equal(want) {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		}
		w.mustPlanNothing(t, d)
		_, err := w.hand.UntagOpenIDConnectProvider(t.Context(),
			&iam.UntagOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(d.trust.ProviderARN),
				TagKeys: []string{"keypost.dev/moved-at"}})
		if err != nil {
			t.Fatal(err)
		}
	})
}
