package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/issuer/verify/finding"
)

// unexecuted are the causes whose repairs change something by a command of ours that no script executes, with the reason.
func unexecuted() map[string]string {
	const (
		byGate    = "the command waits for a gate, hours or days: test/e2e executes rotations"
		byCluster = "the key is published by the command, and the cluster or its token has to change as well"
		byOutside = "the command says what only the world outside can show: an address, a replica or a cache that this test does not have"
	)
	all := map[string]string{}
	for reason, codes := range map[string]string{
		byGate:    "cluster-key-next key-refused token-kid-next",
		byCluster: "token-kid-gone token-signature-wrong",
		byOutside: "dns-hidden key-still-there key-missing",
	} {
		for code := range strings.FieldsSeq(codes) {
			all[code] = reason
		}
	}
	return all
}

var executed = regexp.MustCompile(`(?m)^repair ([a-z0-9-]+)`)

// TestRepairs: where a repair changes something by a command of ours, a script executes it as printed (repair CAUSE in testdata), or it
// is listed with the reason why none does.
func TestRepairs(t *testing.T) {
	run := map[string]bool{}
	scripts, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range executed.FindAllSubmatch(text, -1) {
			run[string(m[1])] = true
		}
	}
	known := map[string]bool{}
	for _, c := range finding.Causes() {
		known[c.Code] = true
		changes := changing(c.Repair)
		if changes != "" && !run[c.Code] && unexecuted()[c.Code] == "" {
			t.Errorf("%s prints %q: execute it in a script, or say why not", c.Code, changes)
		}
		if run[c.Code] && unexecuted()[c.Code] != "" || changes == "" && unexecuted()[c.Code] != "" {
			t.Errorf("%s is executed, or has nothing to execute, and is listed as %q", c.Code, unexecuted()[c.Code])
		}
	}
	for code := range maps.Keys(run) {
		if !known[code] {
			t.Errorf("a script repairs %s, which is not a cause", code)
		}
	}
	if len(run) < 15 {
		t.Errorf("only %d repairs are executed", len(run))
	}
}

// changing returns the first command of ours in a repair that changes something.
func changing(repair string) string {
	root := newRoot(&cli.Factory{})
	for _, line := range printedCommand.FindAllString(repair, -1) {
		cmd, args, err := root.Find(strings.Fields(line)[1:])
		if err == nil && cmd.Runnable() && len(args) > 0 && !slices.Contains([]string{"verify", "list", "show", "generate"}, cmd.Name()) {
			return line
		}
	}
	return ""
}
