package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/fakecloud"
)

func TestMain(m *testing.M) {
	if os.Getenv("FAKEAZURE_RUN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheCommandPrintsItsEnvironmentAndServesBehindItsProxy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	ctx, stop := context.WithCancel(t.Context())
	c := exec.CommandContext(ctx, os.Args[0], "-proxy", dir, "-tenant", "99999999-0000-0000-0000-000000000000")
	c.Env = append(os.Environ(), "FAKEAZURE_RUN=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		if environment[name] = value; name == "NODE_EXTRA_CA_CERTS" {
			break
		}
	}
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
		"https://management.azure.com/subscriptions/11111111-2222-3333-4444-555555555555?api-version=2021-01-01": 401,
		"https://any.blob.core.windows.net/x/y": 404} {
		response, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != want {
			t.Error(url, response.Status, err)
		}
	}
	stop()
	if err := c.Wait(); err == nil {
		t.Error("the command ended by itself")
	}
}

func TestAFileThatCannotBeUsedIsSaid(t *testing.T) {
	for _, arguments := range [][]string{{"-ca-file", "/dev/null"}, {"-listen", "nowhere"}, {"-proxy", "/dev/null"}} {
		c := exec.CommandContext(t.Context(), os.Args[0], arguments...)
		c.Env = append(os.Environ(), "FAKEAZURE_RUN=1")
		if out, err := c.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "fakeazure: ") {
			t.Errorf("%v: %s %v", arguments, out, err)
		}
	}
}
