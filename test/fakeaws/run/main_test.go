package main

import (
	"net/http"
	"testing"

	"github.com/keypost/keypost/test/fakecloud/program"
)

func TestMain(m *testing.M) { program.Main(m, main) }

func TestTheCommandPrintsItsURLAndServes(t *testing.T) {
	url, environment := program.Start(t, 1, "-account", "210987654321")
	if environment["AWS_ENDPOINT_URL"] != url {
		t.Error(url, environment)
	}
	response, err := http.PostForm(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusBadRequest {
		t.Error(response.Status, err)
	}
}

func TestAFileThatCannotBeUsedIsSaid(t *testing.T) {
	program.Refused(t, "fakeaws", []string{"-ca-file", "/dev/null"}, []string{"-policy-file", "/nonexistent"}, []string{"-listen", "nowhere"})
}
