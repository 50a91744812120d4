//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keypost/keypost/test/keys"
	programs "github.com/keypost/keypost/test/process"
)

// revokeSide is a store with its mirror and keypostd.
type revokeSide struct {
	url     string // of the store
	store   string // its directory
	dir     string // of keypostd in development
	copies  string // what the mirror writes and keypostd reads
	host    string // of the issuers
	address string // of keypostd

	mirror, keypostd *process
}

// revokeScene has one behind a cache, and the relying parties.
type revokeScene struct {
	t        *testing.T
	ca       *authority
	bothFile string // the CA of the cache and those of the keypostds
	client   *http.Client
	node     *nodeJose
	files    *revokeSide
	relies   *cluster
}

func newRevokeScene(t *testing.T) *revokeScene {
	t.Helper()
	startEtcd(t)
	s := &revokeScene{t: t, ca: newAuthority(t)}
	s.files = &revokeSide{store: t.TempDir(), dir: t.TempDir()}
	s.files.url = "file://" + s.files.store
	return s
}

// publish makes the issuers and everything that stands between them and those who rely on them.
func (s *revokeScene) publish(t *testing.T, all []*stolen) {
	t.Helper()
	var locations []string
	for i, v := range all {
		v.revokeScene, v.id, v.side, v.last = s, fmt.Sprintf("issuer-%02d", i), s.files, map[string]time.Time{}
		v.link = newLink(t, "")
		locations = append(locations, fmt.Sprintf("location /%s/ { proxy_pass https://%s; }", v.id, v.link.address))
	}
	s.files.host = startCache(t, s.ca, "$http_host", locations)
	_, port, err := net.SplitHostPort(s.files.host)
	must(t, err)
	s.files.address = "127.0.0.2:" + port // the cache has the port at the address that the issuers' name leads to
	for _, v := range all {
		v.link.lead(s.files.address)
		v.url = "https://" + v.side.host + "/" + v.id
		v.key, v.other, v.stranger = generateSigningKey(t, "p256"), generateSigningKey(t, "p256"), generateSigningKey(t, "p256")
		args := append([]string{"issuer", "add", v.id, "--dev", "--url", v.url, "--public-key-file", v.key.public, "--store", v.side.url}, revokePolicy...)
		if !v.sole {
			args = append(args, "--public-key-file", v.other.public)
		}
		args = append(args, "--origin", s.files.address)
		if r := s.keypost(args...); r.code != 0 {
			t.Fatal(r.stderr)
		}
		v.backup = read(t, v.document())
	}
	s.files.copies = filepath.Join(s.files.dir, "keysets")
	must(t, os.MkdirAll(s.files.copies, 0o755))
	s.startMirror(s.files)
	s.startKeypostd(s.files)
	s.bothFile, s.client = trustAll(t, s.ca.file, filepath.Join(s.files.dir, "ca.pem"))
	for _, v := range all {
		await(t, v.url+" is served", func(ctx context.Context) error { return expect(ctx, s.client, v.url+"/keys.json", "") })
	}
	s.startParties(t, all)
}

func (s *revokeScene) startMirror(side *revokeSide) {
	side.mirror = start(s.t, "mirror-"+filepath.Base(side.host), binary("keypost"), "mirror", "--store", side.url, "--poll", "1s", "--dev", "--issuer-url", "https://"+side.host+"/{name}", side.copies)
}

func (s *revokeScene) startKeypostd(side *revokeSide) {
	admin := programs.FreeAddress(s.t)
	side.keypostd = start(s.t, "keypostd-"+filepath.Base(side.host), binary("keypostd"), "--dev", side.dir, "--address", side.address, "--admin-address", admin)
	side.keypostd.await(s.t, "ready", func(ctx context.Context) error { return expect(ctx, http.DefaultClient, "http://"+admin+"/readyz", "") })
}

// startParties starts a kube-apiserver that trusts every issuer, a Node program, and go-oidc twice for each issuer: one that
// has been running, and one that is started for each token.
func (s *revokeScene) startParties(t *testing.T, all []*stolen) {
	t.Helper()
	s.node = startNodeJose(t, s.bothFile)
	var issuers []string
	for _, v := range all {
		issuers = append(issuers, v.url)
	}
	both := *s.ca
	both.file = s.bothFile
	s.relies = &cluster{name: "relies", issuer: "https://relies.keypost.test", key: keys.NewEC()}
	p := startCluster(t, s.ca, s.relies, 6543, "--authentication-config="+authenticationConfig(t, &both, "", issuers...))
	s.relies.awaitReady(t, p)
	asked := s.ca.client()
	for _, v := range all {
		jwks := v.url + "/keys.json"
		v.parties = map[string]func(context.Context, string) error{
			byNewGo: func(ctx context.Context, token string) error { return goOIDC(s.client, v.url, jwks)(ctx, token) },
			byGo:    goOIDC(s.client, v.url, jwks),
			byJose:  s.node.at(v.url, jwks, proofMaxAge),
			byKube: func(ctx context.Context, token string) error {
				return expect(ctx, asked, "https://"+s.relies.address+"/version", token)
			},
		}
	}
}

// mintWith signs a token as a holder of the key would, different from every other.
func mintWith(key signingKey, issuer string, lifetime time.Duration) proofToken {
	now := time.Now().Truncate(time.Second)
	exp := now.Add(lifetime)
	return proofToken{keys.JWS(key.key, key.alg, key.kid, map[string]any{
		"iss": issuer, "sub": "system:serviceaccount:default:sa1", "aud": []string{audience}, "iat": now.Unix(), "exp": exp.Unix(), "jti": rand.Text(),
	}), key.kid, exp}
}

// keypost runs the command line; it may be called by several goroutines.
func (s *revokeScene) keypost(args ...string) result {
	return keypost([]string{"SSL_CERT_FILE=" + s.bothFile}, 0, args...)
}

// restarted takes the memory of every mirror and keypostd: what they serve then is what the directories hold.
func (s *revokeScene) restarted(t *testing.T, all []*stolen) {
	s.files.keypostd.Kill()
	s.files.mirror.Kill()
	s.startKeypostd(s.files)
	s.startMirror(s.files)
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(300 * time.Millisecond) {
		for _, v := range all {
			if v.try(t.Context(), byNewGo, v.key) || v.try(t.Context(), byJose, v.key) {
				t.Fatalf("%s: the revoked key is back", v.name)
			}
		}
	}
	for _, v := range all {
		if !v.sole && !v.try(t.Context(), byNewGo, v.other) {
			t.Errorf("%s: the other key is not served", v.name)
		}
	}
}
