package fakegcp

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

func (o Options) email(id string) string { return id + "@" + o.Project + ".iam.gserviceaccount.com" }

// account is the one that a call names by its email or its unique ID.
func (q *request) account() (Account, error) {
	ref := q.vars["account"]
	for _, a := range q.world.accounts {
		if a.Deleted == nil && (a.Email == ref || a.UniqueID == ref) && q.sees(a) {
			return a, nil
		}
	}
	return Account{}, notFound("Unknown service account")
}

// sees reports whether a new account is known everywhere yet.
func (q *request) sees(a Account) bool { return !q.now.Before(a.Created.Add(q.AccountDelay)) }

func getAccount(q *request) (any, error) { return q.account() }

func listAccounts(q *request) (any, error) {
	var l []any
	for _, a := range fakecloud.Sorted(q.world.accounts) {
		if a.Deleted == nil && q.sees(a) {
			l = append(l, a)
		}
	}
	return q.page("accounts", l, pageRule{20, 100})
}

// createAccount makes a service account (google.iam.admin.v1, CreateServiceAccount).
func createAccount(q *request) (any, error) {
	var in struct {
		AccountID string  `json:"accountId"`
		Account   Account `json:"serviceAccount"`
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	if !regexp.MustCompile(`^[a-z][-a-z0-9]{4,28}[a-z0-9]$`).MatchString(in.AccountID) {
		return nil, invalid("The account ID %q does not have a length between 6 and 30, or does not match [a-z]([-a-z0-9]*[a-z0-9]).", in.AccountID)
	}
	email, present := q.email(in.AccountID), 0
	for _, a := range q.world.accounts {
		if a.Deleted != nil {
			continue
		}
		if present++; a.Email == email {
			f := fail(http.StatusConflict, "ALREADY_EXISTS", "Service account %s already exists within project projects/%s.", in.AccountID, q.Project)
			f.details = []any{map[string]any{"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceName": a.Name}}
			return nil, f
		}
	}
	if present >= q.AccountLimit {
		f := fail(http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", "Maximum number of service accounts on project reached.")
		f.details = []any{retryInfo(86401 * time.Second)}
		return nil, f
	}
	id := fmt.Sprintf("1%020d", q.serial)
	a := Account{Name: "projects/" + q.Project + "/serviceAccounts/" + email, ProjectID: q.Project, UniqueID: id, ClientID: id, Email: email,
		DisplayName: in.Account.DisplayName, Description: in.Account.Description, Etag: q.etag(), Created: q.now}
	q.world.accounts = fakecloud.With(q.world.accounts, id, a)
	return a, nil
}

func patchAccount(q *request) (any, error) {
	a, err := q.account()
	if err != nil {
		return nil, err
	}
	var in struct {
		Account Account `json:"serviceAccount"`
		Mask    string  `json:"updateMask"`
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	for path := range strings.SplitSeq(in.Mask, ",") {
		switch camel(path) {
		case "displayName":
			a.DisplayName = in.Account.DisplayName
		case "description":
			a.Description = in.Account.Description
		default:
			return nil, invalid("Invalid update_mask: %s.", path)
		}
	}
	q.world.accounts = fakecloud.With(q.world.accounts, a.UniqueID, a)
	return a, nil
}

// switchAccount enables or disables an account.
func switchAccount(disabled bool) func(*request) (any, error) {
	return func(q *request) (any, error) {
		a, err := q.account()
		if err != nil {
			return nil, err
		}
		a.Disabled = disabled
		q.world.accounts = fakecloud.With(q.world.accounts, a.UniqueID, a)
		return struct{}{}, nil
	}
}

// deleteAccount leaves the account's members in policies as deleted ones
// (https://cloud.google.com/iam/docs/service-accounts-delete-undelete).
func deleteAccount(q *request) (any, error) {
	a, err := q.account()
	if err != nil {
		return nil, err
	}
	now := q.now
	a.Deleted = &now
	q.world.accounts = fakecloud.With(q.world.accounts, a.UniqueID, a)
	q.world = q.world.renamed("serviceAccount:"+a.Email, goneMember(a))
	return struct{}{}, nil
}

func goneMember(a Account) string { return "deleted:serviceAccount:" + a.Email + "?uid=" + a.UniqueID }

// renamed is the world with another name of a member in all policies.
func (w world) renamed(from, to string) world {
	for id, p := range w.policies {
		p.Bindings = slices.Clone(p.Bindings)
		for i, b := range p.Bindings {
			members := slices.Clone(b.Members)
			for j, m := range members {
				if m == from {
					members[j] = to
				}
			}
			p.Bindings[i].Members = members
		}
		w.policies = fakecloud.With(w.policies, id, p)
	}
	return w
}
