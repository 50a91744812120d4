package iam

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/internal/allow"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/plan"
)

const accountThing = "IAM service account"

// accountState is a service account as IAM shows it.
type accountState struct {
	Email       string `json:"email"`
	UniqueID    string `json:"uniqueId"` // another one if it is deleted and made anew
	DisplayName string `json:"displayName"`
	Description string `json:"description"`
	Disabled    bool   `json:"disabled"`
}

// ID returns the ID of an account: ccoctl's form, with a hash in place of what is random there. So a creation whose answer was
// lost is found again, and leaves no orphan. One for a workload has its name.
func (a Accounts) ID(w Account) string {
	of := a.Owner.Installation()
	if of == "" {
		return w.Name
	}
	return rest.Cut(of, 12) + "-" + rest.Cut(w.Name, 11) + "-" + rest.Hashed(of+"/"+w.Name)
}

// DisplayName returns the display name by which ccoctl finds an account.
func (a Accounts) DisplayName(w Account) string {
	if a.Owner.Installation() == "" {
		return w.Name
	}
	return displayName(a.Owner.Installation(), w.Name)
}

func displayName(installation, request string) string {
	return rest.Cut(installation, 50) + "-" + rest.Cut(request, 49)
}

// ccoctlText is what ccoctl puts into the descriptions of an account and its role.
func ccoctlText(display string) string { return federation.Made + " for service account " + display }

// ofCcoctl reports whether ccoctl made an account under the display name that is asked for. ccoctl makes accounts for the components
// only of clusters: a workload, whose name anybody may choose, has none of them.
func (a Accounts) ofCcoctl(have accountState, w Account) bool {
	display := a.DisplayName(w)
	return a.Owner.Installation() != "" && have.DisplayName == display && have.Description == ccoctlText(display)
}

// identity is an account with what it is in this project.
type identity struct {
	Account
	of             Accounts
	email, display string
	role           *customRole
	fresh          *newcomer // nil of an account that was there
}

// newcomer is an account that was just made. Some of Google's servers do not know it yet, and say of what they do not know that a
// permission is missing (hashicorp/terraform-provider-google issues 15042 and 19624). After a minute they are believed.
type newcomer struct{ since time.Time } // the first refusal

func (n *newcomer) unknown(err error) bool {
	if n == nil || !rest.Is(err, rest.Denied) {
		return false
	}
	if n.since.IsZero() {
		n.since = time.Now()
	}
	return time.Since(n.since) < time.Minute
}

// patient returns s with another attempt where the account is not known yet.
func (n *newcomer) patient(s cloud.Step) cloud.Step {
	call := s.Call
	s.Call = func(ctx context.Context) (cloud.Answer, error) {
		answer, err := call(ctx)
		if n.unknown(err) {
			return cloud.NotYet, err
		}
		return answer, err
	}
	return s
}

// identify finds each account of the list: by its email, or by the names that ccoctl gave to it. keypost's own have their email by
// their request, so that a display name, which is cut, leads to none of them.
func (a Accounts) identify(p federation.Project, s *snapshot) []identity {
	var out []identity
	for _, w := range a.List {
		i := identity{Account: w, of: a, email: p.Email(a.ID(w)), display: a.DisplayName(w)}
		if s.account(i.email) == nil {
			for _, have := range s.accounts {
				if a.ofCcoctl(have, w) && !s.foreign(have.Email, p.PoolName(a.Pool)) {
					i.email = have.Email
					break
				}
			}
		}
		if len(w.Permissions) > 0 {
			r := a.role(p.ID, w)
			r.member = allow.Member(i.email)
			r.others = holders(s.project, r.name, []string{r.member})
			i.role = &r
		}
		out = append(out, i)
	}
	return out
}

// accountCall is a call about an account, by its email or its unique ID.
func accountCall(p federation.Project, account, method, verb string) rest.Call {
	return rest.Call{Service: rest.IAM, Name: method, Needs: "iam.serviceAccounts." + verb, Path: "projects/" + p.ID + "/serviceAccounts/" + account}
}

func (c *Client) readAccounts(ctx context.Context, p federation.Project) ([]accountState, error) {
	k := accountCall(p, "", "ListServiceAccounts", "list")
	k.Path, k.Query = strings.TrimSuffix(k.Path, "/"), rest.Query("pageSize", "100")
	return rest.List[accountState](ctx, c.Rest, k, "accounts")
}

func (c *Client) readAccount(ctx context.Context, p federation.Project, account string) (*accountState, error) {
	return rest.Present[accountState](ctx, c.Rest, accountCall(p, account, "GetServiceAccount", "get"))
}

// planAccount plans the account and its own policy.
func (c *Client) planAccount(p federation.Project, i identity, s *snapshot) (plan.Plan, error) {
	have, own := s.account(i.email), s.policies[i.email]
	if have == nil {
		i.fresh = &newcomer{}
	}
	subject := cloud.Thing[accountAndPolicy]{Kind: accountThing, Name: i.email, Missing: have == nil,
		Found: fmt.Sprintf("Existing IAM service account %s found", i.display)}
	subject.Read = func(ctx context.Context) (now accountAndPolicy, err error) {
		if now.account, err = c.readAccount(ctx, p, i.email); err != nil && !i.fresh.unknown(err) {
			return now, err
		}
		if now.own, err = c.readAccountPolicy(ctx, p, i.email); i.fresh.unknown(err) {
			err = nil
		}
		return now, err
	}
	subject.Decide = func(now accountAndPolicy) (cloud.Decision, error) { return c.decideAccount(p, i, now.account, now.own) }
	return subject.Plan(c.Rest.API, accountAndPolicy{have, own})
}

// accountAndPolicy is an account with its own policy; nil is what is not there, or was not read.
type accountAndPolicy struct {
	account *accountState
	own     *allow.Policy
}

// used returns the account's own policy as it should be, and what differs.
func (i identity) used(p federation.Project, own allow.Policy) (want allow.Policy, diff []string) {
	pool := p.PoolName(i.of.Pool)
	if !i.of.Prune {
		return own.PlusUsers(pool, i.Subjects)
	}
	want, diff, _ = own.WithUsers(pool, i.Subjects)
	return want, diff
}

// setPolicy returns the call that writes the account's own policy.
func (i identity) setPolicy(p federation.Project, want allow.Policy) rest.Call {
	k := setPolicy(accountPolicyCall(p, i.email, "setIamPolicy"), want)
	k.Pool = i.of.Pool
	return k
}

// decideAccount returns the steps from have, with its own policy, to i. A policy that is nil is read before it is written.
func (c *Client) decideAccount(p federation.Project, i identity, have *accountState, own *allow.Policy) (cloud.Decision, error) {
	var d cloud.Decision
	if have == nil {
		k := accountCall(p, "", "CreateServiceAccount", "create")
		k.Method, k.Path, k.Body = "POST", strings.TrimSuffix(k.Path, "/"), i.of.body(i.Account)
		d.Steps = append(d.Steps, c.Rest.Step(k, fmt.Sprintf("IAM service account %s created", i.display), "+ display name "+i.display))
	} else if err := c.compareAccount(p, i, *have, &d); err != nil {
		return cloud.Decision{}, err
	}
	line := "Updated policy bindings for IAM service account " + i.display
	if own == nil {
		if len(i.Subjects) > 0 {
			d.Steps = append(d.Steps, i.fresh.patient(c.firstPolicyStep(p, i, line)))
		}
		return d, nil
	}
	pool := p.PoolName(i.of.Pool)
	_, _, others := own.WithUsers(pool, i.Subjects)
	for _, s := range others {
		if i.of.Prune {
			d.Warnings = append(d.Warnings, fmt.Sprintf("service account %s can no longer be used by %s", i.email, s))
		} else {
			d.Extra = append(d.Extra, fmt.Sprintf("service account %s can be used by %s too, which nobody asked for; --prune takes it away", i.email, s))
		}
	}
	want, diff := i.used(p, *own)
	if others := rest.Minus(own.Pools(), []string{pool}); len(others) > 0 {
		// For a workload the owner names no cluster: a second one would get the roles of the first.
		if i.of.Owner.Installation() == "" && !i.of.Adopt && !slices.Contains(own.Pools(), pool) {
			return cloud.Decision{}, rest.Problemf(rest.NotOwned, "service account %s is used from %s: give this workload an account of its own",
				i.email, text.List(others, 3))
		}
		d.Notes = append(d.Notes, fmt.Sprintf("service account %s can be used from %s too, which stays", i.email, text.List(others, 3)))
	}
	if len(diff) > 0 {
		d.Steps = append(d.Steps, i.fresh.patient(c.Rest.Step(i.setPolicy(p, want), line, diff...)))
	}
	return d, nil
}

// compareAccount adds the steps for what an account says of itself.
func (c *Client) compareAccount(p federation.Project, i identity, have accountState, d *cloud.Decision) error {
	a := i.of
	description := have.Description
	if !a.Owner.Owns(have.Description) && !a.ofCcoctl(have, i.Account) {
		if !a.Adopt {
			return a.Owner.NotOwned(accountThing, i.email, have.Description)
		}
		description = a.Owner.Describe(description)
	}
	var diff []string
	if description != have.Description {
		diff = append(diff, rest.Replaced("description ", have.Description, description)...)
	}
	if have.DisplayName != i.display && a.Owner.Installation() != "" { // by which ccoctl finds it
		diff = append(diff, rest.Replaced("display name ", have.DisplayName, i.display)...)
	}
	if len(diff) > 0 {
		k := accountCall(p, i.email, "PatchServiceAccount", "update")
		k.Method, k.Body = "PATCH", map[string]any{"serviceAccount": map[string]string{"displayName": i.display, "description": description},
			"updateMask": "displayName,description"}
		d.Steps = append(d.Steps, c.Rest.Step(k, fmt.Sprintf("IAM service account %s updated", i.display), diff...))
	}
	if have.Disabled {
		k := accountCall(p, i.email+":enable", "EnableServiceAccount", "enable")
		k.Method, k.Body = "POST", struct{}{}
		d.Steps = append(d.Steps, c.Rest.Step(k, fmt.Sprintf("IAM service account %s enabled", i.display), "- disabled"))
	}
	return nil
}

// firstPolicyStep puts the subjects into the policy of an account that was just made, which some of Google's servers may not
// know yet. It reads the policy: the account may be older than it seems.
func (c *Client) firstPolicyStep(p federation.Project, i identity, line string) cloud.Step {
	_, diff := allow.Policy{}.PlusUsers(p.PoolName(i.of.Pool), i.Subjects)
	return cloud.Step{Key: "first policy of " + i.email, Line: line, Diff: diff, Call: func(ctx context.Context) (cloud.Answer, error) {
		own, err := c.readAccountPolicy(ctx, p, i.email)
		if err != nil {
			return cloud.Refused, err
		}
		if own == nil {
			return cloud.NotYet, fmt.Errorf("%s %s is not known everywhere yet", accountThing, i.email)
		}
		want, diff := i.used(p, *own)
		if len(diff) == 0 {
			return cloud.Accepted, nil
		}
		return c.Rest.Step(i.setPolicy(p, want), "").Call(ctx)
	}}
}

// body is what makes an account.
func (a Accounts) body(w Account) map[string]any {
	display := a.DisplayName(w)
	return map[string]any{"accountId": a.ID(w), "serviceAccount": map[string]string{
		"displayName": display, "description": a.Owner.Describe(ccoctlText(display))}}
}

// deleteAccounts plans to delete accounts that were just read.
func (c *Client) deleteAccounts(p federation.Project, accounts []accountState) plan.Stage {
	var stage plan.Stage
	for _, a := range accounts {
		k := accountCall(p, a.UniqueID, "DeleteServiceAccount", "delete") // one that is made anew has another
		k.Method = "DELETE"
		step := c.Rest.Step(k, fmt.Sprintf("IAM service account %s deleted", a.DisplayName))
		stage = append(stage, c.Rest.API.Delete(plan.Change{Thing: accountThing, Name: a.Email}, step)...)
	}
	return stage
}
