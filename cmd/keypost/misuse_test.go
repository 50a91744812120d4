package main

import (
	"strings"
	"testing"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
)

// A word with one hyphen is a key ID only where a key ID is an argument, and never a flag's name.
func TestSingleHyphen(t *testing.T) {
	for args, want := range map[string]string{
		"issuer add prod-a -kubeconfig f":              "write --kubeconfig",
		"issuer add prod-a --why -kubeconfig":          "",
		"issuer add prod-a -- -kubeconfig":             "",
		"key promote prod-a -3oPKmtE":                  "",
		"key promote prod-a -kubeconfig":               "", // a key ID may look so: the command has no such flag
		"key remove prod-a -never-signed":              "write --never-signed",
		"key remove prod-a -never-signed=true":         "write --never-signed",
		"key promote prod-a -force":                    "write --force",
		"key promote prod-a -3oP":                      "unknown flag -3oP",
		"key list -3oPKmtEx":                           "unknown flag -3oPKmtEx",
		"key list prod-a -ojson":                       "",
		"key list prod-a -o json":                      "",
		"key list prod-a -output json":                 "write --output",
		"key list prod-a -h":                           "",
		"key list prod-a -help":                        "",
		"key list prod-a -stroe x":                     "did you mean --store",
		"issuer accept prod-a --keep -3oPKmtE --why x": "",
	} {
		_, err := cli.CheckArgs(newRoot(&cli.Factory{}), strings.Fields(args))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
