package fakeazure

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"time"
)

// AccessToken is a bearer token of the caller for Resource Manager that never ends.
const AccessToken = "eyJ0.fakeazure-caller" //nolint:gosec // of nobody

// ClientSecret is the secret of the caller, an application that may be given to Microsoft's clients by Env.
const ClientSecret = "fakeazure~secret"

// managementResource is what tokens for Resource Manager are for, in whatever cloud.
const managementResource = "management"

// session is who an access token stands for.
type session struct {
	principal string
	resource  string    // managementResource, or as it was asked for
	expires   time.Time // zero: never
}

func callerPrincipal(o Options) string { return guid("caller", o.Tenant) }

// CallerID is the client ID of the caller.
func (s *Server) CallerID() string { return guid("caller's application", s.options.Tenant) }

// Env is what the caller's process needs in its environment to be the caller. Where the server is, is not in it: Microsoft's
// clients have no variable for Resource Manager's address. Tunnel says what else there is.
func (s *Server) Env() []string {
	return []string{"AZURE_TENANT_ID=" + s.options.Tenant, "AZURE_CLIENT_ID=" + s.CallerID(), "AZURE_CLIENT_SECRET=" + ClientSecret,
		"AZURE_SUBSCRIPTION_ID=" + s.options.Subscription}
}

// authenticate finds out who sent a request.
func (s *Server) authenticate(r *http.Request, now time.Time) (session, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return session{}, fail(http.StatusUnauthorized, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
	}
	token, _ := strings.CutPrefix(header, "Bearer ")
	s.mu.Lock()
	who, known := s.tokens[token]
	s.mu.Unlock()
	switch {
	case !known:
		return session{}, fail(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid.")
	case who.resource != managementResource:
		return session{}, fail(http.StatusUnauthorized, "InvalidAuthenticationTokenAudience", "The access token has been obtained for wrong "+
			"audience or resource '%s'. It should exactly match with one of the allowed audiences 'https://management.core.windows.net/',"+
			"'https://management.core.windows.net','https://management.azure.com/','https://management.azure.com'.", who.resource)
	case !who.expires.IsZero() && !now.Before(who.expires):
		return session{}, fail(http.StatusUnauthorized, "ExpiredAuthenticationToken", "The access token expiry UTC time '%s' is earlier than "+
			"current UTC time '%s'.", who.expires.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return who, nil
}

// authorize checks that anyone who sent a call may do it: the caller by Permissions, an identity by its roles.
func (q *request) authorize(w world, rt route) error {
	action, scope := rt.permission, q.scope()
	if action == "" {
		return nil
	}
	if q.who.principal == callerPrincipal(q.Options) {
		if q.Permissions == nil || slices.ContainsFunc(q.Permissions, func(p string) bool { return covers(p, action) }) {
			return nil
		}
	} else if w.allows(q.who.principal, action, scope) {
		return nil
	}
	return fail(http.StatusForbidden, "AuthorizationFailed", "The client '%s' with object id '%s' does not have authorization to perform action "+
		"'%s' over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.",
		q.who.principal, q.who.principal, action, scope)
}

// scope is what a call is about.
func (q *request) scope() string {
	if scope, scoped := q.vars["scope"]; scoped {
		return scope
	}
	return strings.TrimSuffix(q.path, "/")
}

// subscription is the one that a call is about; empty: none.
func (q *request) subscription() string {
	parts := strings.SplitN(q.path, "/", 4)
	if len(parts) > 2 && strings.EqualFold(parts[1], "subscriptions") {
		return parts[2]
	}
	return ""
}

func (o Options) has(subscription string) bool {
	return strings.EqualFold(o.Subscription, subscription)
}

// allows asks the assignments of a principal, its groups' and those of scopes above.
func (w world) allows(principal, action, scope string) bool {
	who := w.principals(principal)
	for _, a := range w.assignments {
		if !who[strings.ToLower(a.Principal)] || !within(scope, a.Scope) {
			continue
		}
		for _, p := range w.definitions[roleName(a.Role)].Permissions {
			match := func(pattern string) bool { return covers(pattern, action) }
			if slices.ContainsFunc(p.Actions, match) && !slices.ContainsFunc(p.NotActions, match) {
				return true
			}
		}
	}
	return false
}

// covers reports whether a pattern with wildcards covers an action
// (https://learn.microsoft.com/azure/role-based-access-control/role-definitions).
func covers(pattern, action string) bool {
	parts := strings.Split(strings.ToLower(pattern), "*")
	rest, found := strings.CutPrefix(strings.ToLower(action), parts[0])
	if !found || len(parts) == 1 {
		return found && rest == ""
	}
	for _, p := range parts[1 : len(parts)-1] {
		_, after, ok := strings.Cut(rest, p)
		if !ok {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

// keep gives a new access token to somebody.
func (s *Server) keep(who session) string {
	token := "eyJ0." + rand.Text() + "." + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = who
	return token
}

// ClientID is the client ID of the identity that a valid access token belongs to, and whether it is one.
func (s *Server) ClientID(token string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	who, known := s.tokens[token]
	now := s.options.Now()
	if !known || !who.expires.IsZero() && !now.Before(who.expires) {
		return "", false
	}
	for _, i := range s.present(now).identities {
		if i.PrincipalID == who.principal {
			return i.ClientID, true
		}
	}
	return "", false
}
