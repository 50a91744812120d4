package main

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"
)

func provisionReadme(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile("../../provision/aws/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// The policy that the README tells people to use holds for everything. The tests of provision/awsiam hold its actions
// against the calls.
func TestReadmePolicyIsWhatIsNeeded(t *testing.T) {
	blocks := provisionReadme(t, "json")
	if len(blocks) != 1 {
		t.Fatalf("%d policies in the README, want 1", len(blocks))
	}
	var policy struct {
		Statement []struct {
			Effect, Resource string
			Action           []string
		}
	}
	if err := json.Unmarshal([]byte(blocks[0]), &policy); err != nil {
		t.Fatal(err)
	}
	if s := policy.Statement; len(s) != 1 || s[0].Effect != "Allow" || s[0].Resource != "*" || len(s[0].Action) == 0 {
		t.Errorf("the README allows %+v", policy)
	}
}
