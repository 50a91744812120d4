package fakeaws

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// AccessKeyID is the access key of the account's only user; Env holds its secret.
const AccessKeyID = "AKIAFAKEAWSFAKEAWS00" //nolint:gosec // made up

const account = "123456789012"

const secretAccessKey = "fakeaws/not/a/secret/not/a/secret/000000" //nolint:gosec // made up

// identity is who makes a call.
type identity struct {
	arn, id string
	user    bool // and no session of a role
}

// session is a role that somebody has assumed.
type session struct {
	identity
	secret, token string
	expires       time.Time
}

// authenticate finds out who signed the call. Only AssumeRoleWithWebIdentity may come unsigned: its token says who calls.
func (s *Server) authenticate(x exchange, now time.Time) (identity, error) {
	header := x.r.Header.Get("Authorization")
	if x.form.Get("Action") == "AssumeRoleWithWebIdentity" {
		return identity{}, nil
	}
	if header == "" {
		return identity{}, fail(http.StatusForbidden, "MissingAuthenticationToken", "Request is missing Authentication Token")
	}
	m := regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=(\w+)/\d{8}/([a-z0-9-]+)/([a-z]+)/aws4_request, ` +
		`SignedHeaders=([a-z0-9;-]+), Signature=[0-9a-f]{64}$`).FindStringSubmatch(header)
	if m == nil {
		return identity{}, fail(http.StatusBadRequest, "IncompleteSignature", "The Authorization header is not one of AWS4-HMAC-SHA256.")
	}
	key, region, service, signed := m[1], m[2], m[3], strings.Split(m[4], ";")
	who, found := s.session(key)
	switch {
	case !found || who.token != x.r.Header.Get("X-Amz-Security-Token"):
		return identity{}, fail(http.StatusForbidden, "InvalidClientTokenId", "The security token included in the request is invalid.")
	case !who.expires.IsZero() && !now.Before(who.expires):
		return identity{}, fail(http.StatusForbidden, "ExpiredToken", "The security token included in the request is expired")
	case service != x.op.service():
		return identity{}, fail(http.StatusForbidden, "SignatureDoesNotMatch",
			"Credential should be scoped to correct service: '%s'.", x.op.service())
	case !signatureHolds(x, who, region, signed):
		return identity{}, fail(http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the "+
			"signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details.")
	}
	return who.identity, nil
}

func (s *Server) session(key string) (session, bool) {
	if key == AccessKeyID {
		return session{identity: s.caller, secret: secretAccessKey}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.sessions[key]
	return found, ok
}

// signatureHolds signs the call once more, from those of its headers that were signed, and compares.
func signatureHolds(x exchange, who session, region string, signed []string) bool {
	at, err := time.Parse("20060102T150405Z", x.r.Header.Get("X-Amz-Date"))
	if err != nil {
		return false
	}
	again, err := http.NewRequestWithContext(x.r.Context(), x.r.Method, "http://"+x.r.Host+x.r.URL.RequestURI(), nil)
	if err != nil {
		return false
	}
	for _, h := range signed {
		again.Header[http.CanonicalHeaderKey(h)] = x.r.Header[http.CanonicalHeaderKey(h)]
		if h == "content-length" {
			delete(again.Header, "Content-Length")
			again.ContentLength = x.r.ContentLength
		}
	}
	again.Header.Del("Host")
	sum := sha256.Sum256(x.body)
	keys := aws.Credentials{AccessKeyID: AccessKeyID, SecretAccessKey: who.secret, SessionToken: who.token}
	if err := v4.NewSigner().SignHTTP(x.r.Context(), keys, again, hex.EncodeToString(sum[:]), x.op.service(), region, at); err != nil {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(signature(again)), []byte(signature(x.r))) == 1
}

func signature(r *http.Request) string {
	_, s, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
	return s
}

// authorize applies the caller's identity policy, in AWS's words when it denies.
func (s *Server) authorize(who identity, action string, in params) error {
	if action == "AssumeRoleWithWebIdentity" || action == "GetCallerIdentity" {
		return nil // the first is for the trust policy to decide, the second nobody can deny
	}
	for _, need := range needs(action, in) {
		resource := s.resource(action, in)
		if !who.user || s.allowed != nil && !s.allowed.allows("iam:"+need, resource) {
			return fail(http.StatusForbidden, "AccessDenied", "User: %s is not authorized to perform: iam:%s on resource: %s "+
				"because no identity-based policy allows the iam:%s action", who.arn, need, resource, need)
		}
	}
	return nil
}

// needs lists the permissions of a call: making something with tags takes the permission to tag it as well.
func needs(action string, in params) []string {
	if strings.HasPrefix(action, "Create") && len(in.tags["Tags"]) > 0 {
		return []string{action, "Tag" + strings.TrimPrefix(action, "Create")}
	}
	return []string{action}
}

// resource is what a call is about, for a policy's Resource.
func (s *Server) resource(action string, in params) string {
	switch {
	case in.has("OpenIDConnectProviderArn"):
		return in.text["OpenIDConnectProviderArn"]
	case in.has("Url"):
		return s.options.providerARN(in.text["Url"])
	case in.has("RoleName"):
		return s.roleARN(in)
	case action == "ListOpenIDConnectProviders":
		return s.arn("iam", "oidc-provider/*")
	}
	return s.arn("iam", "role/")
}

func (s *Server) roleARN(in params) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, err := s.present().role(in.text["RoleName"]); err == nil {
		return r.ARN
	}
	if in.has("Path") {
		return s.arn("iam", "role"+in.text["Path"]+in.text["RoleName"])
	}
	return s.arn("iam", "role/"+in.text["RoleName"])
}

// allows evaluates an identity policy without its conditions. A statement that has one allows nothing, and denies.
func (d document) allows(action, resource string) bool {
	allowed := false
	for _, s := range d.Statements {
		if !matchesAny(s.Action, action, true) || !matchesAny(s.Resource, resource, false) {
			continue
		}
		if s.Effect == "Deny" {
			return false
		}
		allowed = allowed || len(s.Condition) == 0
	}
	return allowed
}

func matchesAny(patterns []string, value string, fold bool) bool {
	for _, p := range patterns {
		if wildcard(p, value, fold) {
			return true
		}
	}
	return false
}

// wildcard matches * and ?, over any characters.
func wildcard(pattern, value string, fold bool) bool {
	flags := "(?s)"
	if fold {
		flags = "(?si)"
	}
	p := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile(flags + `^` + p + `$`).MatchString(value)
}

func getCallerIdentity(q *request) (any, error) {
	return struct{ Arn, UserId, Account string }{q.who.arn, q.who.id, account}, nil
}
