package main

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("FAKEAWS_RUN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheCommandPrintsItsURLAndServes(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	c := exec.CommandContext(ctx, os.Args[0], "-account", "210987654321")
	c.Env = append(os.Environ(), "FAKEAWS_RUN=1")
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
	if next, _ := lines.ReadString('\n'); next != "AWS_ENDPOINT_URL="+url+"\n" {
		t.Error(next)
	}
	response, err := http.PostForm(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusBadRequest {
		t.Error(response.Status, err)
	}
	stop()
	if err := c.Wait(); err == nil {
		t.Error("the command ended by itself")
	}
}

func TestAFileThatCannotBeUsedIsSaid(t *testing.T) {
	for _, arguments := range [][]string{{"-ca-file", "/dev/null"}, {"-policy-file", "/nonexistent"}, {"-listen", "nowhere"}} {
		c := exec.CommandContext(t.Context(), os.Args[0], arguments...)
		c.Env = append(os.Environ(), "FAKEAWS_RUN=1")
		if out, err := c.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "fakeaws: ") {
			t.Errorf("%v: %s %v", arguments, out, err)
		}
	}
}
