package fakeaws

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// skew is how long after its end a token is still accepted
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_oidc.html).
const skew = 5 * time.Minute

// subjectLimit is the longest subject that the answer can carry.
const subjectLimit = 255

// claims are what a web identity token says.
type claims struct {
	Issuer   string    `json:"iss"`
	Subject  string    `json:"sub"`
	Audience oneOrMany `json:"aud"`
	Party    string    `json:"azp"`
	Methods  oneOrMany `json:"amr"`
	Expires  *int64    `json:"exp"`
	Issued   *int64    `json:"iat"`
}

// audience is what AWS compares with the provider's client IDs: azp if there is one, and otherwise the only aud. AWS does
// not say what it makes of several; they match nothing here.
func (c claims) audience() string {
	switch {
	case c.Party != "":
		return c.Party
	case len(c.Audience) == 1:
		return c.Audience[0]
	}
	return ""
}

func invalidToken(format string, a ...any) error {
	return fail(http.StatusBadRequest, "InvalidIdentityToken", format, a...)
}

func accessDenied() error {
	return fail(http.StatusForbidden, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
}

// assumeRole is AssumeRoleWithWebIdentity
// (https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html).
func assumeRole(ctx context.Context, s *Server, in params, now time.Time) (any, error) {
	m := regexp.MustCompile(`^arn:([a-z-]+):iam::(\d{12}):role/(?:\S*/)?([\w+=,.@-]+)$`).FindStringSubmatch(in.text["RoleArn"])
	if m == nil {
		return nil, validation("Request ARN is invalid")
	}
	token, c, err := parseToken(in.text["WebIdentityToken"])
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	w := s.view(now)
	s.mu.Unlock()
	p, err := w.provider(s.options.providerARN(c.Issuer))
	if err != nil || m[2] != account {
		return nil, invalidToken("No OpenIDConnect provider found in your account for %s", c.Issuer)
	}
	if err := s.checkToken(ctx, token, c, p); err != nil {
		return nil, err
	}
	r, err := w.role(m[3])
	if err != nil || r.ARN != in.text["RoleArn"] || !r.trusts(p, c) {
		return nil, accessDenied()
	}
	duration := in.number("DurationSeconds", defaultDuration)
	if duration > r.MaxSession {
		return nil, validation("The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
	}
	return s.assumed(r, p, c, sessionRequest{in.text["RoleSessionName"], now, now.Add(time.Duration(duration) * time.Second)}), nil
}

func parseToken(s string) (*jose.JSONWebSignature, claims, error) {
	notJWT := invalidToken("The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)")
	token, err := jose.ParseSignedCompact(s, []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512})
	if err != nil || len(token.Signatures) != 1 {
		return nil, claims{}, notJWT
	}
	var c claims
	if json.Unmarshal(token.UnsafePayloadWithoutVerification(), &c) != nil {
		return nil, claims{}, notJWT
	}
	for _, claim := range []struct {
		name    string
		missing bool
	}{{"iss", c.Issuer == ""}, {"sub", c.Subject == ""}, {"aud", len(c.Audience) == 0}, {"exp", c.Expires == nil}, {"iat", c.Issued == nil}} {
		if claim.missing { // tokens from a Secret have neither aud nor exp, and AWS names aud
			return nil, claims{}, invalidToken("Missing a required claim: %s", claim.name)
		}
	}
	if len(c.Subject) > subjectLimit {
		return nil, claims{}, invalidToken("The subject is longer than %d characters", subjectLimit)
	}
	return token, c, nil
}

// checkToken is what a relying party does with a token before it looks at roles.
func (s *Server) checkToken(ctx context.Context, token *jose.JSONWebSignature, c claims, p Provider) error {
	if !strings.HasPrefix(c.Issuer, "https://") || !slices.Contains(p.ClientIDs, c.audience()) {
		return invalidToken("Incorrect token audience")
	}
	now, end := s.options.Now(), time.Unix(*c.Expires, 0)
	if !now.Before(end.Add(skew)) {
		return fail(http.StatusBadRequest, "ExpiredTokenException",
			"Token expired: current date/time %d must be before the expiration date/time%d", now.Unix(), end.Unix())
	}
	key, err := s.keys.find(ctx, p, token.Signatures[0].Header)
	if errors.Is(err, errThumbprint) {
		return invalidToken("OpenIDConnect provider's HTTPS certificate doesn't match configured thumbprint")
	}
	if err != nil {
		return invalidToken("Couldn't retrieve verification key from your identity provider,  please reference " +
			"AssumeRoleWithWebIdentity documentation for requirements")
	}
	if _, err := token.Verify(key); err != nil {
		return invalidToken("The ID Token provided is not a valid JWT. (Signature verification failed)")
	}
	return nil
}

// trusts evaluates the role's trust policy for what a token says.
func (r Role) trusts(p Provider, c claims) bool {
	d, err := parseDocument(r.Trust)
	if err != nil {
		return false
	}
	issuer := strings.TrimPrefix(p.URL, "https://")
	return d.trusts(p.ARN, "sts:AssumeRoleWithWebIdentity", map[string][]string{
		issuer + ":sub": {c.Subject},
		issuer + ":aud": {c.audience()},
		issuer + ":amr": c.Methods,
	})
}

type sessionRequest struct {
	name       string
	now, until time.Time
}

// assumed opens a session and describes it.
func (s *Server) assumed(r Role, p Provider, c claims, q sessionRequest) any {
	type user struct{ AssumedRoleId, Arn string }
	type credentials struct{ AccessKeyId, SecretAccessKey, SessionToken, Expiration string }
	who := identity{arn: s.arn("sts", "assumed-role/"+r.Name+"/"+q.name), id: r.ID + ":" + q.name}
	opened := session{identity: who, secret: rand.Text(), token: rand.Text() + rand.Text(), expires: q.until}
	s.mu.Lock()
	key := fmt.Sprintf("ASIAFAKEAWS%09d", len(s.sessions))
	s.sessions[key] = opened
	s.mu.Unlock()
	return struct {
		SubjectFromWebIdentityToken string
		Audience                    string
		AssumedRoleUser             user
		Credentials                 credentials
		Provider                    string
	}{c.Subject, c.audience(), user{who.id, who.arn}, credentials{key, opened.secret, opened.token, timestamp(q.until)}, p.ARN}
}
