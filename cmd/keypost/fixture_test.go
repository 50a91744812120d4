package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/zap"

	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/keys"
)

// writeKeySet stores a key set with a past: keyset DIR NAME URL STATE[=AGE]… Each state makes a new key, which is in
// that state since AGE ago (0 by default); $KID1, $KID2 … are their key IDs. Tokens live for one hour. Copies of the
// documents of a development issuer, whose URL has a port, live for seconds.
func writeKeySet(ts *testscript.TestScript, args []string) {
	now := time.Now()
	url, err := keystore.ParseIssuerURL(args[2], true)
	ts.Check(err)
	spec := keystore.Spec{Name: keystore.Name(args[1]), Issuers: []keystore.IssuerURL{url}, Policy: view.NewPolicy(false)}
	spec.Policy.RelyingParties, spec.Policy.TokenLifetime = []string{"aws"}, keystore.DurationPtr(time.Hour)
	if spec.Dev = strings.Contains(args[2], "localhost:"); spec.Dev {
		second, none := keystore.DurationPtr(time.Second), keystore.DurationPtr(0)
		spec.Policy = keystore.Policy{MaxAge: second, StaleWhileRevalidate: none, StaleIfError: none, RelyingParties: []string{"vault"}, TokenLifetime: spec.Policy.TokenLifetime}
	}
	keys := make([]keystore.VerificationKey, len(args)-3)
	for i, arg := range args[3:] {
		keys[i] = newKey(ts)
		ts.Setenv(fmt.Sprintf("KID%d", i+1), string(keys[i].ID()))
		if !strings.HasPrefix(arg, "next") {
			spec.Keys = append(spec.Keys, keys[i])
		}
	}
	s, err := keystore.New(keystore.Change{At: now.Add(-1000 * time.Hour), By: "fixture"}, spec)
	ts.Check(err)
	for _, p := range past(args[3:]) { // the oldest first: a key set refuses times before those that it records
		c := keystore.Change{At: now.Add(-p.age), By: "fixture", Why: "stolen"}
		switch k := keys[p.index]; p.state {
		case "next":
			s, err = s.Add(c, k)
		case "retired":
			s, err = s.Retire(c, k.ID(), keystore.Evidence{Statement: "fixture"})
		case "revoked":
			s, err = s.Revoke(c, k.ID(), keystore.RevokeOptions{LeaveEmpty: true})
		}
		ts.Check(err)
	}
	st, err := filestore.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(keystore.Create(context.Background(), keystore.NewStore(st), s))
}

type step struct {
	index int
	state string
	age   time.Duration
}

func past(args []string) []step {
	var list []step
	for i, arg := range args {
		state, age, _ := strings.Cut(arg, "=")
		since, _ := time.ParseDuration(age) // 0 without one
		list = append(list, step{i, state, since})
	}
	slices.SortStableFunc(list, func(a, b step) int { return int(b.age - a.age) })
	return list
}

// newKey makes a key whose ID begins with no hyphen: a command that names such a one is printed in another form.
func newKey(ts *testscript.TestScript) keystore.VerificationKey {
	for {
		p, err := keystore.NewPublic(keys.NewEC().Public())
		ts.Check(err)
		if !strings.HasPrefix(string(p.ID()), "-") {
			return p
		}
	}
}

// seenEarlier moves the times of observations into the past, as if the looks had been made then: earlier DIR AGE [MEMBER…].
// Without members it moves since when keys are seen, and nothing else.
func seenEarlier(ts *testscript.TestScript, args []string) {
	age, err := time.ParseDuration(args[1])
	ts.Check(err)
	members := []string{"since"}
	if len(args) > 2 {
		members = args[2:]
	}
	form := regexp.MustCompile(`(?m)^(\s*(?:- )?(?:` + strings.Join(members, "|") + `): )"([^"]*)"$`)
	editEach(ts, args[0], form, func(line []byte) []byte {
		m := form.FindSubmatch(line)
		at, err := time.Parse(time.RFC3339Nano, string(m[2]))
		ts.Check(err)
		return fmt.Appendf(nil, "%s%q", m[1], at.Add(-age).Format(time.RFC3339Nano))
	})
}

// setClock makes observations of who has a clock that is ahead of the issuer's: clock DIR OFFSET
func setClock(ts *testscript.TestScript, args []string) {
	editEach(ts, args[0], regexp.MustCompile(`clockAhead: .*`), func([]byte) []byte { return []byte("clockAhead: " + args[1]) })
}

// damage breaks every document of a directory: damage DIR
func damage(ts *testscript.TestScript, args []string) {
	editEach(ts, args[0], regexp.MustCompile(`(?s)kind: .*`), func([]byte) []byte { return nil })
}

// addURL adds an issuer URL to a document: withurl FILE URL
func addURL(ts *testscript.TestScript, args []string) {
	text := strings.Replace(ts.ReadFile(args[0]), "  issuers:\n", "  issuers:\n  - "+args[1]+"\n", 1)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

func editEach(ts *testscript.TestScript, dir string, form *regexp.Regexp, edit func(found []byte) []byte) {
	files, err := filepath.Glob(filepath.Join(ts.MkAbs(dir), "*.yaml"))
	ts.Check(err)
	changed := false
	for _, file := range files {
		text, err := os.ReadFile(file)
		ts.Check(err)
		changed = changed || form.Match(text)
		ts.Check(os.WriteFile(file, form.ReplaceAllFunc(text, edit), 0o600))
	}
	if !changed {
		ts.Fatalf("nothing is like %s in %s", form, files)
	}
}

// setKids sets variables to the key IDs of public key files: kids NAME=FILE…
func setKids(ts *testscript.TestScript, neg bool, args []string) {
	for _, arg := range args {
		name, file, ok := strings.Cut(arg, "=")
		if neg || !ok {
			ts.Fatalf("usage: kids NAME=FILE…")
		}
		keys, err := pubkey.Parse(file, []byte(ts.ReadFile(file)))
		ts.Check(err)
		ts.Setenv(name, string(keys[0].ID()))
	}
}

// signToken signs a token of a service account, NAMESPACE:NAME, with a key in PEM.
func signToken(keyFile string, issuer string, audiences []string, account string) (string, error) {
	key := keys.Private([]byte(keyFile))
	public, err := keystore.NewPublic(key.Public())
	if err != nil {
		return "", err
	}
	now := time.Now().Unix()
	return keys.JWS(key, jose.SignatureAlgorithm(public.Alg()), string(public.ID()), map[string]any{
		"iss": issuer, "sub": "system:serviceaccount:" + account, "aud": audiences,
		"iat": now, "nbf": now, "exp": now + 600,
	}), nil
}

// writeToken signs a token as kube-apiserver does: token KEYFILE ISSUER FILE
func writeToken(ts *testscript.TestScript, args []string) {
	token, err := signToken(ts.ReadFile(args[0]), args[1], []string{"sts.amazonaws.com"}, "default:app")
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(token+"\n"), 0o600))
}

// serve publishes the store in DIR over HTTPS, as keypostd would, for every issuer https://oidc.example.com/NAME
// (reached as https://127.0.0.1:$PORT) and https://localhost:$PORT/NAME: $PORT is the port, $CA the file of the
// certificate's CA, and $ADMIN the URL of an admin listener. Each request reads the store anew.
func (a accounts) serve(ts *testscript.TestScript, args []string) {
	server, admin, ca := startIssuer(a.t, ts, ts.MkAbs(args[0]))
	ts.Defer(server.Close)
	ts.Defer(admin.Close)
	ts.Check(os.WriteFile(ts.MkAbs("ca.pem"), ca, 0o600))
	ts.Setenv("PORT", portOf(server))
	ts.Setenv(lookedForAt, "127.0.0.1:"+portOf(server))
	ts.Setenv("CA", "ca.pem")
	ts.Setenv("ADMIN", admin.URL)
}

// checker is what a script and a test have in common.
type checker interface{ Check(error) }

// startIssuer is serve for anyone who has no script.
func startIssuer(t testing.TB, c checker, dir string) (server, admin *httptest.Server, ca []byte) {
	server = httptest.NewUnstartedServer(nil)
	st, err := filestore.Create(dir)
	c.Check(err)
	config := issuer.Config{Source: keystore.NewStore(st), Dev: true, Log: zap.NewNop()}
	for _, raw := range []string{"https://oidc.example.com/{name}", "https://localhost:" + portOf(server) + "/{name}"} {
		p, err := issuer.ParsePattern(raw, true)
		c.Check(err)
		config.Patterns = append(config.Patterns, p)
	}
	publisher := issuer.NewPublisher(config)
	var refreshing sync.Mutex // one listing at a time
	refresh := func(ctx context.Context) error {
		refreshing.Lock()
		defer refreshing.Unlock()
		return publisher.Refresh(ctx)
	}
	fresh := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := refresh(r.Context()); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // refused certificates are part of the scripts
	server.Config.Handler = fresh(issuer.NewHandler(publisher, map[string]string{"127.0.0.1": "oidc.example.com"}))
	ca, pair := newCertificate(t, "oidc.example.com", "localhost")
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	admin = httptest.NewServer(fresh(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(publisher.Report())
	})))
	return server, admin, ca
}

func portOf(s *httptest.Server) string {
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return port
}

// newCertificate makes a certificate for hosts and 127.0.0.1, and the CA that signed it, as lasting as a public one.
func newCertificate(t testing.TB, hosts ...string) (ca []byte, pair tls.Certificate) {
	from, to := time.Now().Add(-time.Hour), time.Now().Add(90*24*time.Hour)
	root := newCA(t)
	if _, is := t.(trusting); is {
		root = ourCA
	}
	leaf := authority.Certify(t, root, &x509.Certificate{Subject: pkix.Name{CommonName: hosts[0]}, DNSNames: hosts, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: from, NotAfter: to})
	return authority.ChainPEM(root), leaf.Pair()
}

func newCA(t testing.TB) *authority.Authority {
	template := authority.CA("test CA")
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(90*24*time.Hour)
	return authority.Certify(t, nil, template)
}

// ourCA is what this process trusts itself, beside the CA of package httptest.
var ourCA *authority.Authority

// trusting is a test that runs commands in this process, which trusts the CA of its issuer.
type trusting struct{ testing.TB }

func (trusting) Helper() {}

// trustOurCA has this process trust ourCA. It comes before the first certificate is looked at, after which Go reads no CAs.
func trustOurCA() {
	ourCA = newCA(trusting{})
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	file, err := os.CreateTemp("", "keypost-test-ca-*.pem")
	if err == nil {
		_, err = file.Write(append(authority.ChainPEM(ourCA), certificatePEM(server)...))
	}
	if err != nil {
		panic(err)
	}
	_ = os.Setenv("SSL_CERT_FILE", file.Name())
	_, _ = x509.SystemCertPool() // reads the file, once
	_ = os.Unsetenv("SSL_CERT_FILE")
	_ = os.Remove(file.Name())
}

// trust has all commands from here on trust a CA beside those that they trusted: trust FILE
func trust(ts *testscript.TestScript, args []string) {
	setenv(ts, "SSL_CERT_FILE="+ts.MkAbs(args[0]))
}

// trustAll writes the CAs of several files into one, which it returns.
func trustAll(c checker, dir string, files ...string) string {
	var all []byte
	for _, file := range files {
		roots, err := os.ReadFile(file)
		c.Check(err)
		all = append(all, roots...)
	}
	file := filepath.Join(dir, "trusted.pem")
	c.Check(os.WriteFile(file, all, 0o600))
	return file
}

// serveAPI plays a kube-apiserver with an issuer and the keys of public key files: apiserver ISSUER FILE… A .jwk is served as it is.
// It writes a kubeconfig, $KUBECONFIG_FILE, with the contexts good and forbidden.
func serveAPI(ts *testscript.TestScript, args []string) {
	var set struct {
		Keys []any `json:"keys"`
	}
	for _, file := range args[1:] {
		if strings.HasSuffix(file, ".jwk") {
			set.Keys = append(set.Keys, json.RawMessage(ts.ReadFile(file)))
			continue
		}
		keys, err := pubkey.Parse(file, []byte(ts.ReadFile(file)))
		ts.Check(err)
		for _, k := range keys {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Key(), KeyID: string(k.ID()), Algorithm: k.Alg(), Use: "sig"})
		}
	}
	routes := map[string]func(*http.Request) any{
		"GET /openid/v1/jwks":                   func(*http.Request) any { return set },
		"GET /.well-known/openid-configuration": func(*http.Request) any { return member{"issuer": args[0]} },
	}
	if uid := ts.Getenv("CLUSTER_UID"); uid != "" {
		routes["GET /api/v1/namespaces/kube-system"] = func(*http.Request) any { return member{"metadata": member{"uid": uid}} }
	}
	ts.Setenv("KUBECONFIG_FILE", writeKubeconfig(ts, playAPI(ts, routes)))
}

// playAPI plays a kube-apiserver, which answers the bearer of the token good.
func playAPI(ts *testscript.TestScript, routes map[string]func(*http.Request) any) *httptest.Server {
	mux := http.NewServeMux()
	for pattern, body := range routes {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer good" {
				w.WriteHeader(http.StatusForbidden)
				_ = json.NewEncoder(w).Encode(member{"kind": "Status", "message": `forbidden: User "jane" cannot do this`})
				return
			}
			_ = json.NewEncoder(w).Encode(body(r))
		})
	}
	server := httptest.NewTLSServer(mux)
	ts.Defer(server.Close)
	return server
}

// jwksOf is what a kube-apiserver says of its own key.
func jwksOf(k keystore.VerificationKey) any {
	return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: k.Key(), KeyID: string(k.ID()), Algorithm: k.Alg(), Use: "sig"}}}
}

// slicesOf lists kube-apiservers.
func slicesOf(servers ...*httptest.Server) any {
	var items []any
	for _, s := range servers {
		items = append(items, member{"endpoints": []member{{"addresses": []string{"127.0.0.1"}}}, "ports": []member{{"port": json.Number(portOf(s))}}})
	}
	return member{"items": items}
}

// writeKubeconfig writes that of a played kube-apiserver, whose context forbidden is a user without rights.
func writeKubeconfig(ts *testscript.TestScript, server *httptest.Server) (file string) {
	file = ts.MkAbs("kubeconfig")
	ts.Check(os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: good
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: good, user: {token: good}}, {name: bad, user: {token: bad}}]
contexts: [{name: good, context: {cluster: c, user: good}}, {name: forbidden, context: {cluster: c, user: bad}}]
`, server.URL, base64.StdEncoding.EncodeToString(certificatePEM(server))), 0o600))
	return file
}

// certificatePEM is a test server's own certificate, for those that trust it.
func certificatePEM(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// awaitText waits until a file has a text that matches: await FILE PATTERN
func awaitText(ts *testscript.TestScript, args []string) {
	pattern, err := regexp.Compile(`(?m)` + args[1])
	ts.Check(err)
	var text []byte
	for deadline := time.Now().Add(30 * time.Second); !pattern.Match(text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("no match for %q in:\n%s", args[1], text)
		}
		text, _ = os.ReadFile(ts.MkAbs(args[0])) // it may not be there yet
	}
}
