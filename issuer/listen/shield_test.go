package listen

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keypost/keypost/issuer/listen/shield"
	"github.com/keypost/keypost/test/authority"
)

const (
	oldSecret = "the-old-secret-0123456789"
	newSecret = "the-new-secret-0123456789"
)

func secretFiles(t *testing.T) []string {
	t.Helper()
	files := []string{filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")}
	writeFile(t, files[0], []byte(oldSecret+"\n"))
	writeFile(t, files[1], []byte(newSecret))
	return files
}

// clientOf is a client certificate of a CA.
func clientOf(t *testing.T, ca *authority.Authority, usage x509.ExtKeyUsage) []tls.Certificate {
	t.Helper()
	c := authority.Certify(t, ca, &x509.Certificate{Subject: pkix.Name{CommonName: "cdn"}, ExtKeyUsage: []x509.ExtKeyUsage{usage}})
	return []tls.Certificate{c.Pair()}
}

func TestShield(t *testing.T) {
	files, ca, other := secretFiles(t), authority.Named(t, "cdn", nil), authority.Named(t, "other", nil)
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, caFile, authority.ChainPEM(ca))
	mine, strangers, server := clientOf(t, ca, x509.ExtKeyUsageClientAuth), clientOf(t, other, x509.ExtKeyUsageClientAuth), clientOf(t, ca, x509.ExtKeyUsageServerAuth)
	byHeader := shield.Config{Header: "x-origin-secret", SecretFiles: files}
	byCert := shield.Config{ClientCAFile: caFile}
	both := shield.Config{Header: "X-Origin-Secret", SecretFiles: files, ClientCAFile: caFile}
	refusal := http.Header{
		"Cache-Control": {"no-store"}, "Content-Length": {"33"}, "Content-Type": {"text/plain; charset=utf-8"},
		"Strict-Transport-Security": {"max-age=31536000"}, "X-Content-Type-Options": {"nosniff"},
	}
	for _, tt := range []struct {
		name   string
		shield shield.Config
		header []string
		certs  []tls.Certificate
		code   int    // 0: no handshake
		lacks  string // what the metric says; empty: header
	}{
		{"the new secret", byHeader, []string{newSecret}, nil, 200, ""},
		{"the old secret", byHeader, []string{oldSecret}, nil, 200, ""},
		{"none", byHeader, nil, nil, 403, ""},
		{"empty", byHeader, []string{""}, nil, 403, ""},
		{"a part", byHeader, []string{newSecret[:20]}, nil, 403, ""},
		{"more", byHeader, []string{newSecret + "x"}, nil, 403, ""},
		{"two, the second right", byHeader, []string{"guess", newSecret}, nil, 403, ""},
		{"two, the first right", byHeader, []string{newSecret, "guess"}, nil, 403, ""},
		{"two in one", byHeader, []string{"guess, " + newSecret}, nil, 403, ""},
		{"a certificate", byCert, nil, mine, 200, ""},
		{"no certificate", byCert, nil, nil, 403, "certificate"},
		{"a stranger's", byCert, nil, strangers, 0, ""},
		{"a server's", byCert, nil, server, 0, ""},
		{"a secret in its place", byCert, []string{newSecret}, nil, 403, "certificate"},
		{"both", both, []string{newSecret}, mine, 200, ""},
		{"the secret of both", both, []string{newSecret}, nil, 403, "certificate"},
		{"the certificate of both", both, nil, mine, 403, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			shield, err := shield.New(tt.shield)
			if err != nil {
				t.Fatal(err)
			}
			s := startSite(t, Config{Shield: shield})
			for _, http2 := range []bool{false, true} { // what a client offers
				conf := s.clientTLS()
				if tt.certs != nil { // sent whatever CAs the server names
					conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tt.certs[0], nil }
				}
				client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: http2}}
				t.Cleanup(client.CloseIdleConnections)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+"/", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				req.Header["X-Origin-Secret"] = tt.header
				res, err := client.Do(req)
				if (err != nil) != (tt.code == 0) {
					t.Fatalf("HTTP/2 %v: %v", http2, err)
				}
				if err != nil {
					continue
				}
				body, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if res.StatusCode != tt.code {
					t.Errorf("HTTP/2 %v: %s %v %s, want %d", http2, res.Status, res.Header, body, tt.code)
				}
				if res.Header.Del("Date"); tt.code == 403 && !reflect.DeepEqual(res.Header, refusal) { // as every other refusal has them
					t.Errorf("HTTP/2 %v: headers %v, want %v", http2, res.Header, refusal)
				}
			}
			want, lacks := map[int]float64{403: 2}[tt.code], "header"
			if tt.lacks != "" {
				lacks = tt.lacks
			}
			if refused := testutil.ToFloat64(shield.Collectors()[0].(*prometheus.CounterVec).WithLabelValues(lacks)); refused != want {
				t.Errorf("%v requests counted that do not have the %s, want %v", refused, lacks, want)
			}
		})
	}
}
