package main

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/keypost/keypost/test/fakecloud"
	"github.com/keypost/keypost/test/fakecloud/program"
)

func TestMain(m *testing.M) { program.Main(m, main) }

func TestTheCommandPrintsItsEnvironmentAndServesBehindItsProxy(t *testing.T) {
	_, environment := program.Start(t, 7, "-proxy", filepath.Join(t.TempDir(), "ca"), "-tenant", "99999999-0000-0000-0000-000000000000")
	if environment["AZURE_TENANT_ID"] != "99999999-0000-0000-0000-000000000000" || environment["AZURE_CLIENT_SECRET"] == "" {
		t.Error(environment)
	}
	roots, err := fakecloud.Pool(environment["SSL_CERT_FILE"])
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := url.Parse(environment["HTTPS_PROXY"])
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	for url, want := range map[string]int{"https://login.microsoftonline.com/common/discovery/instance": 200,
		"https://management.azure.com/subscriptions/11111111-2222-3333-4444-555555555555?api-version=2021-01-01": 401} {
		response, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != want {
			t.Error(url, response.Status, err)
		}
	}
}

func TestAFileThatCannotBeUsedIsSaid(t *testing.T) {
	program.Refused(t, "fakeazure", []string{"-ca-file", "/dev/null"}, []string{"-listen", "nowhere"}, []string{"-proxy", "/dev/null"})
}
