package fakegcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/test/fakecloud/issuerkeys"
)

const (
	// tokenLife is the longest life of an access token.
	tokenLife = time.Hour
	// skew is how far clocks may be apart, as it was measured.
	skew = time.Minute
	// longest is how long a token may live, from iat to exp
	// (https://cloud.google.com/iam/docs/workload-identity-federation-with-kubernetes).
	longest = 24 * time.Hour
	// subjectLimit is how many bytes google.subject may have.
	subjectLimit = 127
)

func tokenRoutes() []route {
	return []route{
		{service: "sts", action: "ExchangeToken", method: "POST", path: "/v1/token", open: true, slow: exchangeToken},
		{service: "oauth2", action: "KeyToken", method: "POST", path: "/token", open: true,
			slow: func(_ context.Context, s *Server, q *request) (any, error) { return keyToken(s, q) }},
		{service: "iamcredentials", action: "GenerateAccessToken", method: "POST",
			path: "/v1/projects/{project}/serviceAccounts/{account}:generateAccessToken", slow: generateAccessToken},
	}
}

// claims are what a subject token says.
type claims struct {
	all      map[string]any
	issuer   string
	audience []string
	expires  *int64
	issued   *int64
}

func parseClaims(payload []byte) (claims, error) {
	var c claims
	var said struct {
		Issuer   string          `json:"iss"`
		Audience json.RawMessage `json:"aud"`
		Expires  *float64        `json:"exp"`
		Issued   *float64        `json:"iat"`
	}
	if err := json.Unmarshal(payload, &c.all); err != nil {
		return c, err
	}
	if err := json.Unmarshal(payload, &said); err != nil {
		return c, err
	}
	var one string
	if len(said.Audience) > 0 && json.Unmarshal(said.Audience, &c.audience) != nil {
		if err := json.Unmarshal(said.Audience, &one); err != nil {
			return c, err
		}
		c.audience = []string{one}
	}
	whole := func(f *float64) *int64 {
		if f == nil {
			return nil
		}
		n := int64(*f)
		return &n
	}
	c.issuer, c.expires, c.issued = said.Issuer, whole(said.Expires), whole(said.Issued)
	return c, nil
}

func orNull[T any](v *T) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(*v)
}

// exchangeToken is STS's token method (RFC 8693; https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token).
func exchangeToken(ctx context.Context, s *Server, q *request) (any, error) {
	in, err := readExchange(q)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	w := s.view(q.now)
	s.mu.Unlock()
	p, pool, err := q.target(w, in["audience"])
	if err != nil {
		return nil, err
	}
	token, c, err := parseToken(in["subject_token"])
	if err != nil {
		return nil, err
	}
	if err := q.checkClaims(p, c); err != nil {
		return nil, err
	}
	if err := s.checkSignature(ctx, p, token); err != nil {
		return nil, err
	}
	who, err := p.admit(c)
	if err != nil {
		return nil, err
	}
	left := min(time.Unix(*c.expires, 0).Sub(q.now), tokenLife)
	if left < 2*time.Second { // over, but for the skew: such tokens have been seen to get about as much
		left = skew
	}
	who.pool, who.expires = pool, q.now.Add(left)
	return map[string]any{ //nolint:gosec // a name of a type, and a token made here
		"access_token": s.keep("ya29.d.", who), "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
		"token_type": "Bearer", "expires_in": int(left.Seconds()) - 1}, nil
}

// readExchange reads a form, or JSON, and checks what STS asks for.
func readExchange(q *request) (map[string]string, error) {
	in := map[string]string{}
	if b := bytes.TrimSpace(q.body); len(b) > 0 && b[0] == '{' {
		var body map[string]string
		if err := json.Unmarshal(b, &body); err != nil {
			return nil, oauth("invalid_request", "The request body is not valid JSON.")
		}
		for name, value := range body {
			in[regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(name, func(s string) string { return "_" + strings.ToLower(s) })] = value
		}
	} else {
		form, err := url.ParseQuery(string(q.body))
		if err != nil {
			return nil, oauth("invalid_request", "The request body is not a form.")
		}
		for name := range form {
			in[name] = form.Get(name)
		}
	}
	if in["grant_type"] != "urn:ietf:params:oauth:grant-type:token-exchange" {
		return nil, oauth("unsupported_grant_type", "Invalid grant_type: %s", in["grant_type"])
	}
	kinds := []string{"urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token"}
	for _, want := range []struct {
		name   string
		values []string
	}{{"audience", nil}, {"scope", nil}, {"subject_token", nil}, {"subject_token_type", kinds},
		{"requested_token_type", []string{"urn:ietf:params:oauth:token-type:access_token"}}} {
		if in[want.name] == "" {
			return nil, oauth("invalid_request", "Missing required parameter: %s", want.name)
		}
		if want.values != nil && !slices.Contains(want.values, in[want.name]) {
			return nil, oauth("invalid_request", "Invalid value for \"%s\".", want.name)
		}
	}
	return in, nil
}

// target finds the provider that an audience names, and the resource name of its pool.
func (q *request) target(w world, audience string) (Provider, string, error) {
	m := regexp.MustCompile(`^//iam\.googleapis\.com/projects/([^/]+)/locations/global/workloadIdentityPools/([^/]+)/providers/([^/]+)$`).
		FindStringSubmatch(audience)
	if m == nil {
		return Provider{}, "", oauth("invalid_request", "Invalid value for \"audience\". This value should be the full resource name of the "+
			"Identity Provider. See https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token for the list of possible formats.")
	}
	pool, p := w.pools[m[2]], w.providers[m[2]+"/"+m[3]]
	if m[1] != q.Number || pool.State != active || pool.Disabled || p.State != active || p.Disabled {
		return Provider{}, "", oauth("invalid_target", "The target service indicated by the \"audience\" parameters is invalid. This might either "+
			"be because the pool or provider is disabled or deleted or because it doesn't exist.")
	}
	return p, pool.Name, nil
}

func parseToken(s string) (*jose.JSONWebSignature, claims, error) {
	unreadable := oauth("invalid_grant", "Unable to parse the ID Token.")
	token, err := jose.ParseSignedCompact(s, []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.ES256, jose.ES384, jose.ES512, jose.HS256})
	if err != nil || len(token.Signatures) != 1 {
		return nil, claims{}, unreadable
	}
	c, err := parseClaims(token.UnsafePayloadWithoutVerification())
	if err != nil {
		return nil, claims{}, unreadable
	}
	return token, c, nil
}

// checkClaims compares what a token says with what its provider takes.
func (q *request) checkClaims(p Provider, c claims) error {
	if c.issuer != p.OIDC.Issuer {
		said := &c.issuer
		if c.issuer == "" {
			said = nil
		}
		return oauth("invalid_grant", "The issuer in ID Token %s does not match the expected one in config: %s.", orNull(said), p.OIDC.Issuer)
	}
	stale := oauth("invalid_grant", "ID Token issued at %s is stale to sign-in.", orNull(c.issued))
	if c.expires == nil || c.issued == nil {
		return stale
	}
	issued, expires := time.Unix(*c.issued, 0), time.Unix(*c.expires, 0)
	if issued.After(q.now.Add(skew)) || !expires.Add(skew).After(q.now) || expires.Sub(issued) > longest {
		return stale
	}
	audiences := p.OIDC.Audiences
	if len(audiences) == 0 {
		audiences = []string{"//iam.googleapis.com/" + p.Name, "https://iam.googleapis.com/" + p.Name}
	}
	if !slices.ContainsFunc(c.audience, func(a string) bool { return slices.Contains(audiences, a) }) {
		return oauth("invalid_grant", "The audience in ID Token [%s] does not match the expected audience.", strings.Join(c.audience, ", "))
	}
	return nil
}

// checkSignature takes RS256 and ES256 only. A kid that is not among the keys is answered as an issuer out of reach.
func (s *Server) checkSignature(ctx context.Context, p Provider, token *jose.JSONWebSignature) error {
	unreached := oauth("invalid_grant", "Error connecting to the given credential's issuer.")
	header := token.Signatures[0].Header
	keys, err := s.keysOf(ctx, *p.OIDC)
	if err != nil || header.KeyID == "" || header.Algorithm != string(jose.RS256) && header.Algorithm != string(jose.ES256) {
		return unreached
	}
	i := slices.IndexFunc(keys, func(k jose.JSONWebKey) bool {
		return k.KeyID == header.KeyID && (k.Algorithm == "" || k.Algorithm == header.Algorithm)
	})
	if i < 0 {
		return unreached
	}
	if _, err := token.Verify(keys[i]); err != nil {
		return oauth("invalid_grant", "Unable to verify the ID Token signature.")
	}
	return nil
}

// keysOf are a provider's: those that were uploaded, or what its issuer publishes.
func (s *Server) keysOf(ctx context.Context, o OIDC) ([]jose.JSONWebKey, error) {
	if o.JWKS != "" {
		return issuerkeys.Parse([]byte(o.JWKS))
	}
	return s.keys.Keys(ctx, o.Issuer, o.Discovery)
}

// admit maps a token's subject and asks the provider's condition about its claims. Other attributes are nobody's here.
func (p Provider) admit(c claims) (identity, error) {
	if p.Condition != "" && !fulfils(p.Condition, c.all) {
		return identity{}, oauth("unauthorized_client", "The given credential is rejected by the attribute condition.")
	}
	subject, found := mapped(p.Mapping["google.subject"], c.all)
	switch {
	case !found || subject == "":
		return identity{}, oauth("invalid_grant", "The mapped attribute google.subject is missing in the incoming assertion.")
	case len(subject) > subjectLimit:
		return identity{}, oauth("invalid_request", "The size of mapped attribute google.subject exceeds the 127 bytes limit. Either modify your attribute "+
			"mapping or the incoming assertion to produce a mapped attribute that is less than 127 bytes.")
	}
	return identity{subject: subject}, nil
}

// generateAccessToken is IAM Credentials' method of that name. Whose token it is, the account's policy and the project's
// are asked whether that identity may.
func generateAccessToken(_ context.Context, s *Server, q *request) (any, error) {
	var in struct {
		Scope     []string `json:"scope"`
		Lifetime  string   `json:"lifetime"`
		Delegates []string `json:"delegates"`
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	if len(in.Scope) == 0 {
		return nil, invalid("At least one scope is required.")
	}
	life := tokenLife
	if in.Lifetime != "" {
		n, err := strconv.ParseFloat(strings.TrimSuffix(in.Lifetime, "s"), 64)
		switch {
		case err != nil || !strings.HasSuffix(in.Lifetime, "s"):
			return nil, invalid("Invalid value at 'lifetime' (type.googleapis.com/google.protobuf.Duration), %q", in.Lifetime)
		case n <= 0:
			return nil, invalid("Lifetime of access token must be larger then zero.")
		}
		if life = time.Duration(n * float64(time.Second)); life > tokenLife {
			return nil, invalid("The access token can not have lifetimes of more than 1 hour. Use the Org Policy Constraint " +
				"constraints/iam.allowServiceAccountCredentialLifetimeExtension to allow up to 12 hours.")
		}
	}
	s.mu.Lock()
	q.world = s.view(q.now)
	s.mu.Unlock()
	const permission = "iam.serviceAccounts.getAccessToken"
	a, err := q.account()
	if err != nil || a.Disabled || !q.mayImpersonate(a, permission) {
		return nil, denied(permission, "")
	}
	until := q.now.Add(life)
	token := s.keep("ya29.c.", identity{email: a.Email, expires: until})
	return map[string]string{"accessToken": token, "expireTime": until.UTC().Format(time.RFC3339)}, nil
}

// mayImpersonate asks the policies of the account and of the project. A conditional binding gives nothing.
func (q *request) mayImpersonate(a Account, permission string) bool {
	if q.who.pool != "" {
		p := q.world.pools[q.who.pool[strings.LastIndexByte(q.who.pool, '/')+1:]]
		if p.State != active || p.Disabled {
			return false
		}
	}
	grants := func(role string) bool {
		if role == "roles/iam.workloadIdentityUser" || role == "roles/iam.serviceAccountTokenCreator" {
			return true
		}
		r, ok := q.world.roles[strings.TrimPrefix(role, "projects/"+q.Project+"/roles/")]
		return ok && !r.Deleted && slices.Contains(r.Permissions, permission)
	}
	for _, b := range append(slices.Clone(q.policy("").Bindings), q.policy(a.UniqueID).Bindings...) {
		if b.Condition == nil && grants(b.Role) && slices.ContainsFunc(b.Members, q.who.member) {
			return true
		}
	}
	return q.who.email == callerEmail(q.Options) && slices.Contains(q.Permissions, permission)
}

// Email is the address of the service account that a valid access token belongs to, and whether it is one.
func (s *Server) Email(token string) (string, bool) {
	who, err := s.authenticate(&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}, s.options.Now())
	if err != nil || who.pool != "" {
		return "", false
	}
	return who.email, true
}
