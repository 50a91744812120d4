package fakeazure

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

const (
	// applicationLife and identityLife are how long access tokens live: an application's, and a managed identity's
	// (https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/managed-identities-faq).
	applicationLife = time.Hour
	identityLife    = 24 * time.Hour
)

func loginRoutes() []route {
	get := func(action, path string, do func(*request) (answer, error)) route {
		return route{service: fakecloud.Login, action: action, method: "GET", path: path, open: true, do: do}
	}
	return []route{
		get("DiscoverInstance", "/{tenant}/discovery/instance", discoverInstance),
		get("GetConfiguration", "/{tenant}/v2.0/.well-known/openid-configuration", getConfiguration),
		{service: fakecloud.Login, action: "GetToken", method: "POST", path: "/{tenant}/oauth2/v2.0/token", open: true, slow: getToken},
	}
}

// discoverInstance tells a client which cloud's login host it speaks with: the one that it asked.
func discoverInstance(q *request) (answer, error) {
	_, host, _ := strings.Cut(q.base, "://")
	return ok(map[string]any{"api-version": "1.1", "tenant_discovery_endpoint": q.at("/" + q.Tenant + "/v2.0/.well-known/openid-configuration"),
		"metadata": []any{map[string]any{"preferred_network": host, "preferred_cache": host, "aliases": []string{host}}}})
}

func getConfiguration(q *request) (answer, error) {
	if err := q.checkTenant(); err != nil {
		return answer{}, err
	}
	base := q.at("/" + q.Tenant)
	return ok(map[string]any{"issuer": base + "/v2.0", "token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize",
		"jwks_uri": base + "/discovery/v2.0/keys", "response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"pairwise"},
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "private_key_jwt"}, "id_token_signing_alg_values_supported": []string{"RS256"}})
}

func (q *request) checkTenant() error {
	if strings.EqualFold(q.vars["tenant"], q.Tenant) {
		return nil
	}
	return entra(90002, "invalid_request", "Tenant '%s' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud. "+
		"Check with your subscription administrator, this may happen if there are no active subscriptions for the tenant.", q.vars["tenant"])
}

// getToken is the token endpoint: client credentials with a secret, the caller's, or with an assertion, an identity's
// (https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow).
func getToken(ctx context.Context, s *Server, q *request) (answer, error) {
	if err := q.checkTenant(); err != nil {
		return answer{}, err
	}
	form, err := url.ParseQuery(string(q.body))
	if err != nil {
		return answer{}, entra(9000411, "invalid_request", "The request is not properly formatted.")
	}
	if grant := form.Get("grant_type"); grant != "client_credentials" {
		return answer{}, entra(70003, "unsupported_grant_type", "The app requested an unsupported grant type '%s'.", grant)
	}
	resource, err := resourceOf(form.Get("scope"))
	if err != nil {
		return answer{}, err
	}
	who, life := session{resource: resource}, applicationLife
	if strings.EqualFold(form.Get("client_id"), s.CallerID()) {
		who.principal, err = callerPrincipal(q.Options), q.checkSecret(s, form.Get("client_secret"))
	} else {
		who.principal, err = s.exchange(ctx, q, form)
		life = identityLife
	}
	if err != nil {
		return answer{}, err
	}
	who.expires = q.now.Add(life)
	left := int(life.Seconds()) - 1
	return answer{status: http.StatusOK, header: map[string]string{"Cache-Control": "no-store, no-cache", "Pragma": "no-cache"},
		body: map[string]any{"token_type": "Bearer", "expires_in": left, "ext_expires_in": left, "access_token": s.keep(who)}}, nil
}

func (q *request) checkSecret(s *Server, secret string) error {
	switch secret {
	case ClientSecret:
		return nil
	case "":
		return entra(7000216, "invalid_client", "'client_assertion', 'client_secret' or 'request' is required for the 'client_credentials' grant type.")
	}
	return entra(7000215, "invalid_client", "Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the "+
		"client secret ID, for a secret added to app '%s'.", s.CallerID())
}

// resourceOf is what a scope asks a token for.
func resourceOf(scope string) (string, error) {
	for s := range strings.FieldsSeq(scope) {
		resource, ok := strings.CutSuffix(s, "/.default")
		if !ok {
			continue
		}
		u, err := url.Parse(resource)
		classic := []string{"management.core.windows.net", "management.core.usgovcloudapi.net", "management.core.chinacloudapi.cn"}
		if err == nil && slices.Contains(slices.Concat(managementHosts, classic), u.Hostname()) {
			return managementResource, nil
		}
		return resource, nil
	}
	return "", entra(1002012, "invalid_scope", "The provided value for scope %s is not valid. Client credential flows must have a scope value with /.default "+
		"suffixed to the resource identifier (application ID URI).", scope)
}
