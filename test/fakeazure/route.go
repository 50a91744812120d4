package fakeazure

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// request is one call that has passed the checks that all calls share.
type request struct {
	Options
	vars   map[string]string // what the path binds
	path   string
	query  url.Values
	header http.Header
	base   string // "https://management.azure.com"
	body   []byte
	now    time.Time
	who    session
	world  world // the present, and for a write what it leaves
	seen   world // what reads of roles and assignments see
	serial int   // unique
}

// answer is what goes back. A body of []byte goes as it is, any other as JSON.
type answer struct {
	status int
	body   any
	header map[string]string
}

func ok(body any) (answer, error)      { return answer{status: http.StatusOK, body: body}, nil }
func created(body any) (answer, error) { return answer{status: http.StatusCreated, body: body}, nil }
func nothing() (answer, error)         { return answer{status: http.StatusNoContent}, nil }

// route is one call of a service.
type route struct {
	service, action string
	method, path    string // "/subscriptions/{subscription}/resourceGroups/{group}"; {scope} in front is any ID, or none
	permission      string // the action that the caller needs; empty: nothing
	versions        string // of the API
	write           bool
	limit           string // the documented rate that it is under
	open            bool   // no bearer token
	do              func(*request) (answer, error)
	// slow calls ask others as well, and do not hold the tenant meanwhile.
	slow func(context.Context, *Server, *request) (answer, error)
}

// match reports whether a path belongs to the route, and what it binds. Letter case counts only in values.
func (r route) match(method, path string) (map[string]string, bool) {
	if method != r.method {
		return nil, false
	}
	vars, pattern := map[string]string{}, r.path
	if rest, scoped := strings.CutPrefix(pattern, "{scope}"); scoped {
		at := strings.LastIndex(strings.ToLower(path), "/providers/microsoft.authorization/")
		if at < 0 {
			return nil, false
		}
		vars["scope"], path, pattern = path[:at], path[at:], rest
	}
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(have) != len(want) {
		return nil, false
	}
	for i, w := range want {
		name, bound := strings.CutPrefix(w, "{")
		if !bound {
			if !strings.EqualFold(w, have[i]) {
				return nil, false
			}
			continue
		}
		if have[i] == "" {
			return nil, false
		}
		vars[strings.TrimSuffix(name, "}")] = have[i]
	}
	return vars, true
}

// The versions of the APIs that are known here, of those that Microsoft lists.
const (
	resourceVersions      = "2020-01-01 2021-01-01 2021-04-01 2022-09-01 2022-12-01 2024-03-01 2024-11-01 2025-04-01"
	identityVersions      = "2023-01-31 2024-11-30"
	authorizationVersions = "2018-07-01 2022-04-01 2022-05-01-preview"
)

// routes are all calls that there are.
func routes() []route {
	const (
		subscription = "/subscriptions/{subscription}"
		group        = subscription + "/resourceGroups/{group}"
		identities   = group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities"
		credentials  = identities + "/{identity}/federatedIdentityCredentials"
		tags         = "/providers/Microsoft.Resources/tags/default"
		definitions  = "{scope}/providers/Microsoft.Authorization/roleDefinitions"
		assignments  = "{scope}/providers/Microsoft.Authorization/roleAssignments"
		groups       = "subscriptions/resourceGroups/"
		identity     = "userAssignedIdentities/"
		credential   = identity + "federatedIdentityCredentials/"
	)
	resources := func(action, method, path, permission string, do func(*request) (answer, error)) route {
		return managed("Microsoft.Resources", resourceVersions, route{action: action, method: method, path: path, permission: permission, do: do})
	}
	msi := func(action, method, path, permission string, do func(*request) (answer, error)) route {
		return managed("Microsoft.ManagedIdentity", identityVersions, route{action: action, method: method, path: path, permission: permission, do: do})
	}
	roles := func(action, method, path, permission string, do func(*request) (answer, error)) route {
		return managed("Microsoft.Authorization", authorizationVersions, route{action: action, method: method, path: path, permission: permission, do: do})
	}
	limited := func(kind string, r route) route { r.limit = kind; return r }
	all := []route{
		resources("GetSubscription", "GET", subscription, "subscriptions/read", getSubscription),
		resources("GetGroup", "GET", group, groups+"read", getGroup),
		resources("PutGroup", "PUT", group, groups+"write", putGroup),
		resources("PatchGroup", "PATCH", group, groups+"write", patchGroup),
		resources("PatchTags", "PATCH", group+tags, "tags/write", patchGroupTags),
		resources("PatchIdentityTags", "PATCH", identities+"/{identity}"+tags, "tags/write", patchIdentityTags),
		resources("DeleteGroup", "DELETE", group, groups+"delete", deleteGroup),
		resources("ListGroupResources", "GET", group+"/resources", groups+"resources/read", listResources),
		resources("GetOperation", "GET", subscription+"/operationresults/{operation}", "", getOperation),

		msi("GetIdentity", "GET", identities+"/{identity}", identity+"read", getIdentity),
		msi("ListIdentities", "GET", identities, identity+"read", listIdentities),
		msi("ListAllIdentities", "GET", subscription+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities", identity+"read", listIdentities),
		msi("PutIdentity", "PUT", identities+"/{identity}", identity+"write", putIdentity),
		msi("PatchIdentity", "PATCH", identities+"/{identity}", identity+"write", patchIdentity),
		msi("DeleteIdentity", "DELETE", identities+"/{identity}", identity+"delete", deleteIdentity),
		limited("get", msi("GetCredential", "GET", credentials+"/{credential}", credential+"read", getCredential)),
		limited("list", msi("ListCredentials", "GET", credentials, credential+"read", listCredentials)),
		limited("write", msi("PutCredential", "PUT", credentials+"/{credential}", credential+"write", putCredential)),
		limited("delete", msi("DeleteCredential", "DELETE", credentials+"/{credential}", credential+"delete", deleteCredential)),

		roles("ListDefinitions", "GET", definitions, "roleDefinitions/read", listDefinitions),
		roles("PutDefinition", "PUT", definitions+"/{name}", "roleDefinitions/write", putDefinition),
		roles("DeleteDefinition", "DELETE", definitions+"/{name}", "roleDefinitions/delete", deleteDefinition),
		roles("ListAssignments", "GET", assignments, "roleAssignments/read", listAssignments),
		roles("PutAssignment", "PUT", assignments+"/{name}", "roleAssignments/write", putAssignment),
		roles("DeleteAssignment", "DELETE", assignments+"/{name}", "roleAssignments/delete", deleteAssignment),
	}
	return append(all, loginRoutes()...)
}

// managed completes a route of Resource Manager. Anyone who reads an operation looks at it once more: that is why it is a write.
func managed(namespace, versions string, r route) route {
	r.service, r.versions = namespace, versions
	r.write = r.method != http.MethodGet && r.method != http.MethodHead || r.action == "GetOperation"
	if r.permission != "" {
		r.permission = namespace + "/" + r.permission
	}
	return r
}

// read reads a body that has nothing but what v has.
func (q *request) read(v any) error {
	if err := json.Unmarshal(q.body, v); err != nil {
		return badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: '%s'.", err)
	}
	return nil
}

// page is one page of a list.
func (q *request) page(items []any) (answer, error) {
	from := 0
	if token := q.query.Get("$skiptoken"); token != "" {
		if _, err := fmt.Sscanf(token, "page-%d", &from); err != nil || from > len(items) {
			return answer{}, badRequest("InvalidSkipToken", "The skip token '%s' is invalid.", token)
		}
	}
	to := min(from+q.PageSize, len(items))
	body := map[string]any{"value": append([]any{}, items[from:to]...)}
	if to < len(items) {
		query := url.Values{}
		for name, values := range q.query {
			query[name] = values
		}
		query.Set("$skiptoken", fmt.Sprintf("page-%d", to))
		body["nextLink"] = q.at(q.path + "?" + query.Encode())
	}
	return ok(body)
}

// at is a path as a URL of the host that was asked.
func (q *request) at(path string) string { return q.base + path }

// resourceID is the ID of something in a group.
func (q *request) resourceID(kind string, names ...string) string {
	id := "/subscriptions/" + q.vars["subscription"] + "/resourceGroups/" + q.vars["group"] + "/providers/" + kind + "/" + names[0]
	if len(names) > 1 {
		id += "/federatedIdentityCredentials/" + names[1]
	}
	return id
}
