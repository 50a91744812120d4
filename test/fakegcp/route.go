package fakegcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// request is one call that has passed the checks that all calls share.
type request struct {
	Options
	path   string
	vars   map[string]string // what the path binds
	query  url.Values
	body   []byte
	now    time.Time
	who    *identity
	world  world // what it sees, and for a write what it leaves
	serial int   // unique
}

// route is one method of a service.
type route struct {
	service, action string
	method, path    string // "/v1/projects/{project}/roles/{role}:undelete"
	permission      string // what the caller needs; empty: nothing
	query           string // the names that its query may have
	write           bool
	open            bool // no bearer token
	do              func(*request) (any, error)
	// slow calls ask others as well, and do not hold the project meanwhile.
	slow func(context.Context, *Server, *request) (any, error)
}

// match reports whether a path belongs to the route, and what it binds. A colon's verb ends the last segment.
func (r route) match(method, path string) (map[string]string, bool) {
	if method != r.method {
		return nil, false
	}
	pattern, verb, _ := strings.Cut(r.path, ":")
	path, said := cutVerb(path)
	if verb != said {
		return nil, false
	}
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(have) != len(want) {
		return nil, false
	}
	vars := map[string]string{}
	for i, w := range want {
		name, bound := strings.CutPrefix(w, "{")
		if !bound {
			if w != have[i] {
				return nil, false
			}
			continue
		}
		value, err := url.PathUnescape(have[i])
		if err != nil || value == "" {
			return nil, false
		}
		vars[strings.TrimSuffix(name, "}")] = value
	}
	return vars, true
}

func cutVerb(path string) (string, string) {
	slash := strings.LastIndexByte(path, '/')
	if i := strings.LastIndexByte(path, ':'); i > slash {
		return path[:i], path[i+1:]
	}
	return path, ""
}

// routes are all calls that there are.
func routes() []route {
	const (
		pools     = "/v1/projects/{project}/locations/global/workloadIdentityPools"
		providers = pools + "/{pool}/providers"
		accounts  = "/v1/projects/{project}/serviceAccounts"
		roles     = "/v1/projects/{project}/roles"
		pool      = "iam.workloadIdentityPools."
		provider  = "iam.workloadIdentityPoolProviders."
		account   = "iam.serviceAccounts."
		page      = "pageSize pageToken "
	)
	get := func(action, path, permission string, do func(*request) (any, error)) route {
		return route{service: "iam", action: action, method: "GET", path: path, permission: permission, do: do}
	}
	change := func(action, path, permission string, do func(*request) (any, error)) route {
		method := "POST"
		if strings.HasPrefix(action, "Patch") {
			method = "PATCH"
		} else if strings.HasPrefix(action, "Delete") {
			method = "DELETE"
		}
		return route{service: "iam", action: action, method: method, path: path, permission: permission, do: do, write: true}
	}
	asked := func(r route, query string) route { r.query = query; return r }
	read := func(r route) route { r.write = false; return r }
	look := func(r route) route { r.method, r.write = "GET", true; return r }
	of := func(service string, r route) route { r.service = service; return r }
	return append([]route{
		get("GetWorkloadIdentityPool", pools+"/{pool}", pool+"get", getPool),
		asked(change("CreateWorkloadIdentityPool", pools, pool+"create", createPool), "workloadIdentityPoolId"),
		asked(change("PatchWorkloadIdentityPool", pools+"/{pool}", pool+"update", patchPool), "updateMask"),
		change("DeleteWorkloadIdentityPool", pools+"/{pool}", pool+"delete", deletePool),
		change("UndeleteWorkloadIdentityPool", pools+"/{pool}:undelete", pool+"undelete", undeletePool),
		look(change("GetOperation", pools+"/{pool}/operations/{operation}", pool+"get", getOperation)),

		get("GetWorkloadIdentityPoolProvider", providers+"/{provider}", provider+"get", getProvider),
		asked(get("ListWorkloadIdentityPoolProviders", providers, provider+"list", listProviders), page+"showDeleted"),
		asked(change("CreateWorkloadIdentityPoolProvider", providers, provider+"create", createProvider), "workloadIdentityPoolProviderId"),
		asked(change("PatchWorkloadIdentityPoolProvider", providers+"/{provider}", provider+"update", patchProvider), "updateMask"),
		change("DeleteWorkloadIdentityPoolProvider", providers+"/{provider}", provider+"delete", deleteProvider),
		change("UndeleteWorkloadIdentityPoolProvider", providers+"/{provider}:undelete", provider+"undelete", undeleteProvider),
		look(change("GetProviderOperation", providers+"/{provider}/operations/{operation}", provider+"get", getOperation)),

		get("GetServiceAccount", accounts+"/{account}", account+"get", getAccount),
		asked(get("ListServiceAccounts", accounts, account+"list", listAccounts), page),
		change("CreateServiceAccount", accounts, account+"create", createAccount),
		change("PatchServiceAccount", accounts+"/{account}", account+"update", patchAccount),
		change("DeleteServiceAccount", accounts+"/{account}", account+"delete", deleteAccount),
		change("EnableServiceAccount", accounts+"/{account}:enable", account+"enable", switchAccount(false)),
		change("DisableServiceAccount", accounts+"/{account}:disable", account+"disable", switchAccount(true)),
		asked(read(change("GetServiceAccountIamPolicy", accounts+"/{account}:getIamPolicy", account+"getIamPolicy", getPolicy)),
			"options.requestedPolicyVersion"),
		change("SetServiceAccountIamPolicy", accounts+"/{account}:setIamPolicy", account+"setIamPolicy", setPolicy),

		get("GetRole", roles+"/{role}", "iam.roles.get", getRole),
		asked(get("ListRoles", roles, "iam.roles.list", listRoles), page+"view showDeleted"),
		change("CreateRole", roles, "iam.roles.create", createRole),
		asked(change("PatchRole", roles+"/{role}", "iam.roles.update", patchRole), "updateMask"),
		asked(change("DeleteRole", roles+"/{role}", "iam.roles.delete", deleteRole), "etag"),
		change("UndeleteRole", roles+"/{role}:undelete", "iam.roles.undelete", undeleteRole),

		of("cloudresourcemanager", get("GetProject", "/v1/projects/{project}", "resourcemanager.projects.get", getProject)),
		of("cloudresourcemanager", read(change("GetProjectIamPolicy", "/v1/projects/{project}:getIamPolicy",
			"resourcemanager.projects.getIamPolicy", getPolicy))),
		of("cloudresourcemanager", change("SetProjectIamPolicy", "/v1/projects/{project}:setIamPolicy",
			"resourcemanager.projects.setIamPolicy", setPolicy)),
	}, tokenRoutes()...)
}

// read reads the body's JSON. What Google does not know it refuses.
func (q *request) read(into any) error {
	if len(bytes.TrimSpace(q.body)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(q.body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		return nil
	}
	if m := regexp.MustCompile(`unknown field ("[^"]*")`).FindStringSubmatch(err.Error()); m != nil {
		return invalid("Invalid JSON payload received. Unknown name %s: Cannot find field.", m[1])
	}
	return invalid("Invalid JSON payload received. %v", err)
}

// mask reads a PATCH's body, and gives the paths of its update mask in camel case.
func (q *request) mask(into any) ([]string, error) {
	if err := q.read(into); err != nil {
		return nil, err
	}
	mask := q.query.Get("updateMask")
	if mask == "" {
		return nil, invalid("The update_mask is required.")
	}
	var paths []string
	for path := range strings.SplitSeq(mask, ",") {
		paths = append(paths, camel(path))
	}
	return paths, nil
}

// camel is a name of a field in JSON's form.
func camel(name string) string {
	return regexp.MustCompile(`_[a-z]`).ReplaceAllStringFunc(strings.TrimSpace(name), func(s string) string { return strings.ToUpper(s[1:]) })
}

// pageRule is how long the pages of a list are: when nobody says, and at most.
type pageRule struct{ usual, most int }

// page is one page of a list, with the token of the next.
func (q *request) page(name string, items []any, rule pageRule) (any, error) {
	size := rule.usual
	if s := q.query.Get("pageSize"); s != "" && s != "0" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return nil, invalid("Invalid value at 'page_size': %q", s)
		}
		size = min(n, rule.most)
	}
	if q.PageSize > 0 {
		size = min(size, q.PageSize)
	}
	from := 0
	if token := q.query.Get("pageToken"); token != "" {
		if _, err := fmt.Sscanf(token, "page-%d", &from); err != nil || from > len(items) {
			return nil, invalid("The page token is not valid.")
		}
	}
	answer := map[string]any{}
	to := min(from+size, len(items))
	if from < to {
		answer[name] = slices.Clone(items[from:to])
	}
	if to < len(items) {
		answer["nextPageToken"] = fmt.Sprintf("page-%d", to)
	}
	return answer, nil
}

// object is a value as its JSON's members.
func object(v any) map[string]any {
	m := map[string]any{}
	if b, err := json.Marshal(v); err == nil {
		_ = json.Unmarshal(b, &m) // it is JSON
	}
	return m
}
