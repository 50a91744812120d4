package parties

import (
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

const minioAudience = "minio"

// minioServer is the server's own program. Its STS has AWS's call.
type minioServer struct {
	*program
	url string
}

func newMinIO(t *testing.T, name string, of *fetching) *minioServer {
	t.Helper()
	dir, ports := t.TempDir(), freePorts(t, 2)
	check(t, os.MkdirAll(filepath.Join(dir, "certs", "CAs"), 0o700))
	check(t, os.WriteFile(filepath.Join(dir, "certs", "CAs", "ca.crt"), []byte(of.ca), 0o600))
	for k, v := range map[string]string{"CONFIG_URL": of.issuer + "/.well-known/openid-configuration", "CLIENT_ID": minioAudience} {
		t.Setenv("MINIO_IDENTITY_OPENID_"+k, v)
	}
	t.Setenv("MINIO_UPDATE", "off")
	m := &minioServer{url: "http://127.0.0.1:" + ports[0]}
	m.program = startProgram(t, answers(http.DefaultClient, m.url+"/minio/health/ready"), name, "server", "--certs-dir", filepath.Join(dir, "certs"), "--address", "127.0.0.1:"+ports[0],
		"--console-address", "127.0.0.1:"+ports[1], filepath.Join(dir, "data"))
	return m
}

var minioSays = regexp.MustCompile(`<(?:Message|AccessKeyId)>([^<]*)<`)

// assume returns why a token gives no credentials; nothing if it gives some.
func (m *minioServer) assume(token string) string {
	m.t.Helper()
	res, err := http.PostForm(m.url, url.Values{"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "WebIdentityToken": {token}})
	check(m.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	check(m.t, err)
	says := minioSays.FindSubmatch(b)
	if says == nil || len(says[1]) == 0 {
		m.t.Fatalf("%s: %s", res.Status, b)
	}
	if res.StatusCode != http.StatusOK {
		return res.Status + ": " + string(says[1])
	}
	return ""
}

// awaitUsers waits until it gives a token credentials, as its users are loaded after it says that it is ready.
func (m *minioServer) awaitUsers(token string) {
	m.t.Helper()
	var said string
	for range 300 {
		if said = m.assume(token); said == "" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	m.t.Fatal(said, m.said())
}

// A token gives credentials, through a rotation too. A revoked key is trusted until a restart.
func TestMinIO(t *testing.T) {
	name := named(t, "KEYPOST_MINIO")
	var rows []row
	for _, alg := range algorithms {
		old, next, stranger := newSigner(t, alg), newSigner(t, alg), newSigner(t, alg)
		f := newFetching(t, old, usual)
		m := newMinIO(t, name, f)
		token := func(s signer, change object) string {
			claims := object{"policy": "readwrite"} // what its tokens may do
			maps.Copy(claims, change)
			return s.token(t, f.issuer, minioAudience, claims)
		}
		m.awaitUsers(token(old, nil))
		r := row{party: "minio, " + alg, accepted: "yes"}
		r.rotated = rotate(t, m.assume, token(old, nil),
			func() string { f.add(next); f.publish(); return "" },
			func() string { f.promote(next); f.publish(); return token(next, nil) })
		r.broken = "unknown key: " + refusedWith(t, m.assume(token(stranger, nil)), refusalOf(t, "minio", "unknown key")) +
			"; expired: " + refusedWith(t, m.assume(token(next, ended(10*time.Second))), refusalOf(t, "minio", "expired"))
		f.revoke(old)
		f.publish()
		m.assume(token(stranger, nil)) // has it fetch
		if said := m.assume(token(old, nil)); said != "" {
			t.Errorf("a revoked key that it keeps: %s", said)
		}
		m.stop()
		m = newMinIO(t, name, f)
		m.awaitUsers(token(next, nil))
		r.revoked = "trusted until a restart: " + refusedWith(t, m.assume(token(old, nil)), refusalOf(t, "minio", "unknown key"))
		rows = append(rows, r)
	}
	show(t, rows)
}
