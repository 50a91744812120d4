package awsiam_test

import (
	"strings"
	"testing"
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
}

func TestAMoveSeesToRolesOfOthersFirst(t *testing.T) {
	w := newWorld(t, fakeaws.Options{})
	d := w.cluster(1)
	w.mustRun(t, d)
	app, theirs := d.roles[0], d.roles[0]
	app.Name, app.Owner = "app", awsiam.OwnedByKeypost()
	theirs.Name, theirs.Owner = "theirs", awsiam.OwnedBy("c9")
	p, err := w.client.PlanRoles(t.Context(), d.trust, []awsiam.Role{app, theirs})
	apply(t, p, err)
	m := w.move(t, d)
	before := w.picture()
	if _, err := w.client.PlanMove(t.Context(), m); err == nil || !strings.Contains(err.Error(), "theirs (of c9)") ||
		!is(err, awsiam.ForeignRoles) {
		t.Errorf("roles of others: %v", err)
	}
	if w.picture() != before {
		t.Error("the refusal changed something")
	}
	m.Adopt = true
	p, err = w.client.PlanMove(t.Context(), m)
	apply(t, p, err)
	if got := w.trusted(m); got["app"] != "old new" || got[d.roles[0].Name] != "old new" {
		t.Errorf("trusted %v", got)
	}
	if got := w.role(t, "theirs"); w.trusted(m)["theirs"] != "old new" || got.Tags["keypost.dev/owned"] != "owned" ||
		got.Tags["openshift.io/cloud-credential-operator/c1"] != "" {
		t.Errorf("adopted %+v", got)
	}
	m.Adopt = false
	p, err = w.client.PlanFinish(t.Context(), m)
	apply(t, p, err)
	if got := w.trusted(m)["theirs"]; got != "new" {
		t.Errorf("adopted role trusts %q in the end", got)
	}
}

func TestAMoveThatDoesNotFitChangesNothing(t *testing.T) {
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
}

func TestTheTimeOfTheSwitchIsKeptAtTheOldProvider(t *testing.T) {
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
}
