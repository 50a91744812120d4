package listen

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keypost/keypost/test/authority"
)

// leafUntil issues a server certificate that is valid for a day until then.
func leafUntil(t *testing.T, ca *authority.Authority, notAfter time.Time, names ...string) *authority.Authority {
	t.Helper()
	return authority.Certify(t, ca, &x509.Certificate{DNSNames: names, NotBefore: notAfter.Add(-24 * time.Hour), NotAfter: notAfter})
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// writePair stores leaf, with its chain, as NAME.crt and NAME.key in dir.
func writePair(t *testing.T, dir, name string, chain ...*authority.Authority) Pair {
	t.Helper()
	p := Pair{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}
	writeFile(t, p.Cert, authority.ChainPEM(chain...))
	writeFile(t, p.Key, chain[0].KeyPEM(t))
	return p
}
