package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/shell"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
)

// printedBy returns what a command prints for people.
func printedBy(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	run(t.Context(), args, streams{in: strings.NewReader(""), out: &out, err: &errs})
	return errs.String()
}

// after returns the words, as a shell makes them of what stands behind before in a text.
func after(t *testing.T, said, before string) []string {
	t.Helper()
	_, rest, found := strings.Cut(said, before)
	if !found {
		t.Fatalf("no %q in\n%s", before, said)
	}
	line, _, _ := strings.Cut(rest, "\n")
	words, err := shell.Fields(line, func(name string) string { return "EXPANDED-" + name })
	if err != nil {
		t.Errorf("a shell does not take %s: %v", line, err) // also one that runs a command
	}
	return words
}

// hostileKids are words of a shell, or flags, that a foreign JWKS or a document calls its keys.
var hostileKids = []string{
	"`touch${IFS}pwned`1", "`touch${IFS}pwned`2", "$(touch${IFS}pwned)1", "$(touch${IFS}pwned)2", "a;touch${IFS}pwned;1", "a;touch${IFS}pwned;2",
	"a&b", "a|b", "a<b", "a>b", "a'b", `a"b`, `a\b`, "a*b", "a[b]", "a{b,c}", "a!b", "a#b", "#a", "~root", "a(b)", "a^b", "=ls", "--force", "-x",
}

// What is to be pasted is what was meant, whatever others call their keys, in a path with a space too.
func TestHintsQuoteHostileKids(t *testing.T) {
	base := t.TempDir()
	for i, kid := range hostileKids {
		t.Run(kid, func(t *testing.T) {
			dir := filepath.Join(base, "key sets "+strconv.Itoa(i))
			c := checked{t}
			st, err := filestore.Create(dir)
			c.Check(err)
			store := "file://" + dir
			hostile, err := testSpec(t, "x", "https://x.example.com").Keys[0].WithID(keystore.KeyID(kid), "ES256")
			c.Check(err)
			for _, name := range []keystore.Name{"prod-a", "prod-b"} {
				spec := testSpec(t, name, "https://oidc.example.com/"+string(name))
				spec.Keys = append(spec.Keys, hostile)
				s, err := keystore.New(keystore.Change{At: time.Now().Add(-time.Hour)}, spec)
				c.Check(err)
				c.Check(keystore.Create(t.Context(), keystore.NewStore(st), s))
			}

			printedBy(t, "key", "retire", "--store", store, "--why", "x", "--", "prod-a", kid)
			said := printedBy(t, "key", "revoke", "--store", store, "--why", "it's stolen", "--", "prod-a", kid)
			words := after(t, said, "it goes on being trusted there: keypost ")
			root := newRoot(&cli.Factory{})
			cmd, rest, err := root.Find(words)
			c.Check(err)
			c.Check(cmd.ParseFlags(rest))
			if got, want := cmd.Flags().Args(), []string{"prod-b", kid}; cmd.Name() != "revoke" || !slices.Equal(got, want) {
				t.Errorf("%q is %s %q, want revoke %q", words, cmd.Name(), got, want)
			}
			if got := cmd.Flag("why").Value.String() + ", " + cmd.Flag("store").Value.String(); got != "it's stolen, "+store {
				t.Errorf("flags of %q: %s", words, got)
			}
			var ran string
			cmd.RunE = func(_ *cobra.Command, args []string) error { ran = strings.Join(args, " "); return nil }
			root.SetArgs(words)
			if err := root.Execute(); err != nil || ran != "prod-b "+kid {
				t.Errorf("%q runs with %q: %v", words, ran, err)
			}
		})
	}
}
