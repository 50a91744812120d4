package main

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/fakecloud/program"
)

func TestMain(m *testing.M) { program.Main(m, main) }

func TestTheCommandPrintsItsURLAndServes(t *testing.T) {
	ca, dir := authority.New(t), t.TempDir()
	ca.Issue(t, dir, "127.0.0.1")
	for _, arguments := range [][]string{nil, {"-cert-file", filepath.Join(dir, "tls.crt"), "-key-file", filepath.Join(dir, "tls.key")}} {
		url, environment := program.Start(t, 1, append(arguments, "-project", "other-project")...)
		if credentials := environment["GOOGLE_CREDENTIALS"]; !strings.HasPrefix(credentials, `{"auth_uri"`) && !strings.HasPrefix(credentials, `{"client_email"`) || !strings.Contains(credentials, url+"/token") {
			t.Error(environment)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}
		response, err := client.Get(url + "/v1/projects/other-project")
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusUnauthorized || arguments != nil && response.ProtoMajor != 2 {
			t.Error(response.Status, response.Proto, err)
		}
	}
}

func TestAFileThatCannotBeUsedIsSaid(t *testing.T) {
	program.Refused(t, "fakegcp", []string{"-ca-file", "/dev/null"}, []string{"-ca-file", "/nonexistent"}, []string{"-listen", "nowhere"}, []string{"-cert-file", "/nonexistent"})
}
