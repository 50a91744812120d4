package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/authority"
)

func TestMain(m *testing.M) {
	if os.Getenv("FAKEGCP_RUN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheCommandPrintsItsURLAndServes(t *testing.T) {
	ca, dir := authority.New(t), t.TempDir()
	ca.Issue(t, dir, "127.0.0.1")
	for _, arguments := range [][]string{nil, {"-cert-file", filepath.Join(dir, "tls.crt"), "-key-file", filepath.Join(dir, "tls.key")}} {
		ctx, stop := context.WithCancel(t.Context())
		c := exec.CommandContext(ctx, os.Args[0], append(arguments, "-project", "other-project")...)
		c.Env = append(os.Environ(), "FAKEGCP_RUN=1")
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		url, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		url = strings.TrimSpace(url)
		next, _ := lines.ReadString('\n')
		if !strings.HasPrefix(next, `GOOGLE_CREDENTIALS={"auth_uri"`) && !strings.HasPrefix(next, `GOOGLE_CREDENTIALS={"client_email"`) || !strings.Contains(next, url+"/token") {
			t.Error(next)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}
		response, err := client.Get(url + "/v1/projects/other-project")
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusUnauthorized || arguments != nil && response.ProtoMajor != 2 {
			t.Error(response.Status, response.Proto, err)
		}
		stop()
		if err := c.Wait(); err == nil {
			t.Error("the command ended by itself")
		}
	}
}

func TestAFileThatCannotBeUsedIsSaid(t *testing.T) {
	for _, arguments := range [][]string{{"-ca-file", "/dev/null"}, {"-ca-file", "/nonexistent"}, {"-listen", "nowhere"}, {"-cert-file", "/nonexistent"}} {
		c := exec.CommandContext(t.Context(), os.Args[0], arguments...)
		c.Env = append(os.Environ(), "FAKEGCP_RUN=1")
		if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "fakegcp: ") {
			t.Errorf("%v: %s %v", arguments, out, err)
		}
	}
}
