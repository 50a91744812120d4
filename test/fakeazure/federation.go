package fakeazure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/keypost/keypost/test/fakecloud/issuerkeys"
)

// skew is how far clocks may be apart, as in Microsoft's own libraries.
const skew = 5 * time.Minute

// algorithms are what an assertion may be signed with, to be read at all; only the first is accepted.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA, jose.HS256}

// exchange gives the principal of the identity that a form's assertion is for
// (https://learn.microsoft.com/entra/workload-id/workload-identity-federation).
func (s *Server) exchange(ctx context.Context, q *request, form url.Values) (string, error) {
	i, credentials, err := s.client(q, form.Get("client_id"))
	if err != nil {
		return "", err
	}
	token, c, err := readAssertion(form)
	if err != nil {
		return "", err
	}
	if err := match(credentials, c); err != nil {
		return "", err
	}
	if err := q.checkTime(c); err != nil {
		return "", err
	}
	return i.PrincipalID, s.checkSignature(ctx, token, c.Issuer)
}

// client is the identity with a client ID, and its federated credentials.
func (s *Server) client(q *request, id string) (Identity, []Credential, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.present(q.now)
	for _, i := range w.identities {
		if strings.EqualFold(i.ClientID, id) && !q.now.Before(i.Created.Add(q.IdentityDelay)) {
			return i, w.of(i.ID), nil
		}
	}
	return Identity{}, nil, entra(700016, "unauthorized_client", "Application with identifier '%s' was not found in the directory '%s'. This can happen if the "+
		"application has not been installed by the administrator of the tenant or consented to by any user in the tenant. You may have sent your authentication "+
		"request to the wrong tenant.", id, q.Tenant)
}

func readAssertion(form url.Values) (*jwt.JSONWebToken, jwt.Claims, error) {
	var c jwt.Claims
	assertion := form.Get("client_assertion")
	if assertion == "" {
		return nil, c, entra(7000216, "invalid_client", "'client_assertion', 'client_secret' or 'request' is required for the 'client_credentials' grant type.")
	}
	if kind := form.Get("client_assertion_type"); kind != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
		return nil, c, entra(90014, "invalid_request", "The required field 'client_assertion_type' is missing from the credential or has an invalid value.")
	}
	malformed := entra(50027, "invalid_request", "JWT token is invalid or malformed.")
	if strings.TrimSpace(assertion) != assertion {
		return nil, c, malformed
	}
	token, err := jwt.ParseSigned(assertion, algorithms)
	if err != nil || len(token.Headers) != 1 || token.UnsafeClaimsWithoutVerification(&c) != nil {
		return nil, c, malformed
	}
	for _, own := range []string{"https://login.microsoftonline.", "https://sts.windows.net/"} {
		if strings.HasPrefix(c.Issuer, own) {
			return nil, c, entra(700222, "invalid_request", "AAD-issued tokens may not be used for federated identity flows.")
		}
	}
	return token, c, nil
}

// match compares an assertion with federated credentials, letter by letter, and names what the closest of them does not have.
func match(credentials []Credential, c jwt.Claims) error {
	for _, part := range []struct {
		code        int
		name, value string
		of          func(Credential) string
	}{
		{700211, "issuer", c.Issuer, func(f Credential) string { return f.Issuer }},
		{700213, "subject", c.Subject, func(f Credential) string { return f.Subject }},
	} {
		same := slices.DeleteFunc(slices.Clone(credentials), func(f Credential) bool { return part.of(f) != part.value })
		if len(same) == 0 {
			folded := slices.ContainsFunc(credentials, func(f Credential) bool { return strings.EqualFold(part.of(f), part.value) })
			return noMatch(part.code, part.name, part.value, folded)
		}
		credentials = same
	}
	folded := false
	for _, f := range credentials {
		if slices.Contains(c.Audience, f.Audiences[0]) {
			return nil
		}
		folded = folded || slices.ContainsFunc(c.Audience, func(a string) bool { return strings.EqualFold(a, f.Audiences[0]) })
	}
	return noMatch(700212, "audience", strings.Join(c.Audience, ", "), folded)
}

func noMatch(code int, name, value string, folded bool) error {
	text := fmt.Sprintf("No matching federated identity record found for presented assertion %s '%s'. ", name, value)
	const check = "Check your federated identity credential Subject, Audience and Issuer against the presented assertion. "
	if folded {
		return entra(7002138, "invalid_client", "%sThe %s matches with case-insensitive comparison, but not with case-sensitive comparison. %s"+"See documentation at: "+
			"https://learn.microsoft.com/entra/workload-id/workload-identity-federation. See breaking change notification and remediation at: "+
			"https://learn.microsoft.com/en-us/entra/identity-platform/reference-breaking-changes#august-2024.", text, name, check)
	}
	return entra(code, "invalid_client", "%s%shttps://learn.microsoft.com/entra/workload-id/workload-identity-federation", text, check)
}

func (q *request) checkTime(c jwt.Claims) error {
	from := time.Unix(0, 0)
	if c.NotBefore != nil {
		from = c.NotBefore.Time()
	}
	var until time.Time
	if c.Expiry != nil {
		until = c.Expiry.Time()
	}
	if !q.now.Add(skew).Before(from) && q.now.Before(until.Add(skew)) {
		return nil
	}
	const form = "2006-01-02T15:04:05.0000000Z"
	return entra(700024, "invalid_client", "Client assertion is not within its valid time range. Current time: %s, assertion valid from %s, expiry time of "+
		"assertion %s. Review the documentation at https://learn.microsoft.com/entra/identity-platform/certificate-credentials .",
		q.now.UTC().Format(form), from.UTC().Format(form), until.UTC().Format(form))
}

// checkSignature takes only RS256
// (https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations).
func (s *Server) checkSignature(ctx context.Context, token *jwt.JSONWebToken, issuer string) error {
	header := token.Headers[0]
	wrong := entra(700027, "invalid_client", "Client assertion failed signature validation.")
	if header.Algorithm != string(jose.RS256) {
		return wrong
	}
	keys, err := s.keys.Keys(ctx, issuer, "")
	if err != nil {
		code := 90061
		if errors.Is(err, issuerkeys.ErrUnreached) {
			code = 501661
		} else if errors.Is(err, issuerkeys.ErrStatus) {
			code = 50166
		}
		return entra(code, "invalid_request", "Request to External OIDC endpoint failed.")
	}
	i := slices.IndexFunc(keys, func(k jose.JSONWebKey) bool {
		return k.KeyID == header.KeyID && (k.Algorithm == "" || k.Algorithm == header.Algorithm)
	})
	if header.KeyID == "" || i < 0 {
		return entra(7000272, "invalid_client", "The certificate with identifier %s used to sign the federated credential could not be found in the metadata of "+
			"identity provider %s. Please validate that your Identity Provider's metadata exposes the key used to sign the incoming token.", header.KeyID, issuer)
	}
	if err := token.Claims(keys[i], &jwt.Claims{}); err != nil {
		return wrong
	}
	return nil
}

// checkDiscovery refuses the discovery documents that Entra has been seen to refuse.
func checkDiscovery(document []byte) error {
	var d struct {
		Subjects      []string `json:"subject_types_supported"`
		Authorization *string  `json:"authorization_endpoint"`
	}
	if err := json.Unmarshal(document, &d); err != nil {
		return err
	}
	if len(d.Subjects) == 0 || d.Authorization != nil && *d.Authorization == "" {
		return errors.New("the discovery document has no subject_types_supported, or an empty authorization_endpoint")
	}
	return nil
}
