package fakegcp

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// AccessToken is a bearer token of the caller that never ends.
const AccessToken = "ya29.fakegcp-caller" //nolint:gosec // of nobody

// identity is who an access token stands for: a service account by its email, or a principal of a pool.
type identity struct {
	email   string
	pool    string    // "projects/N/locations/global/workloadIdentityPools/P", of a federated one
	subject string    // google.subject
	expires time.Time // zero: never
}

// member reports whether a member of a policy is this identity
// (https://cloud.google.com/iam/docs/principal-identifiers).
func (i identity) member(m string) bool {
	if i.pool == "" {
		return m == "serviceAccount:"+i.email
	}
	return m == "principal://iam.googleapis.com/"+i.pool+"/subject/"+i.subject || m == "principalSet://iam.googleapis.com/"+i.pool+"/*"
}

// caller is the service account that provisions, with its key.
type caller struct {
	key *rsa.PrivateKey
	pem string
	err error
}

func newCaller() caller {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return caller{err: err}
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return caller{key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), err}
}

func callerEmail(o Options) string { return "provisioner@" + o.Project + ".iam.gserviceaccount.com" }

// Credentials are the caller's service account key, the JSON that GOOGLE_CREDENTIALS may hold. Its tokens are got at the
// server's own URL.
func (s *Server) Credentials() (string, error) {
	c := s.signer()
	if c.err != nil {
		return "", c.err
	}
	b, err := json.Marshal(map[string]string{"type": "service_account", "project_id": s.options.Project, "private_key_id": "fakegcp",
		"private_key": c.pem, "client_email": callerEmail(s.options), "client_id": "100000000000000000000", "token_uri": s.URL + "/token"})
	return string(b), err
}

func unauthenticated() error {
	return fail(http.StatusUnauthorized, "UNAUTHENTICATED", "Request had invalid authentication credentials. Expected OAuth 2 access token, "+
		"login cookie or other valid authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.")
}

// authenticate finds out who sent a request. A token that the caller's key signed is one too (self-signed JWT,
// https://google.aip.dev/auth/4111).
func (s *Server) authenticate(r *http.Request, now time.Time) (*identity, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil, unauthenticated()
	}
	s.mu.Lock()
	who, known := s.tokens[token]
	s.mu.Unlock()
	if known && (who.expires.IsZero() || now.Before(who.expires)) {
		return &who, nil
	}
	if !known && strings.Count(token, ".") == 2 && s.signedByCaller(token, now) {
		return &identity{email: callerEmail(s.options)}, nil
	}
	return nil, unauthenticated()
}

// signedByCaller checks a JWT of the caller's own.
func (s *Server) signedByCaller(token string, now time.Time) bool {
	c := s.signer()
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil || c.err != nil {
		return false
	}
	payload, err := signed.Verify(&c.key.PublicKey)
	var said struct {
		Expires int64 `json:"exp"`
	}
	return err == nil && json.Unmarshal(payload, &said) == nil && now.Before(time.Unix(said.Expires, 0))
}

// authorize checks that the call is about the project, and that anyone who sent it may do it.
func (q *request) authorize(rt route) error {
	if rt.permission == "" {
		return nil
	}
	project := q.vars["project"]
	ours := project == "" || project == q.Project || project == q.Number || project == "-" && q.vars["account"] != ""
	if ours && q.who.email == callerEmail(q.Options) && (q.Permissions == nil || slices.Contains(q.Permissions, rt.permission)) {
		return nil
	}
	if rt.service == "cloudresourcemanager" {
		return fail(http.StatusForbidden, "PERMISSION_DENIED", "The caller does not have permission")
	}
	resource, _ := cutVerb(strings.TrimPrefix(q.path, "/v1/"))
	return denied(rt.permission, "//"+rt.service+".googleapis.com/"+resource)
}

// keep gives a new access token to somebody.
func (s *Server) keep(prefix string, who identity) string {
	token := prefix + rand.Text() + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = who
	return token
}

// keyToken is the token endpoint for service account keys (RFC 7523).
func keyToken(s *Server, q *request) (any, error) {
	form, err := url.ParseQuery(string(q.body))
	if err != nil || form.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		return nil, oauth("unsupported_grant_type", "Invalid grant_type: %s", form.Get("grant_type"))
	}
	if !s.signedByCaller(form.Get("assertion"), q.now) {
		return nil, oauth("invalid_grant", "Invalid JWT Signature.")
	}
	token := s.keep("ya29.c.", identity{email: callerEmail(q.Options), expires: q.now.Add(tokenLife)})
	return map[string]any{"access_token": token, "expires_in": int(tokenLife.Seconds()) - 1, "token_type": "Bearer"}, nil
}
