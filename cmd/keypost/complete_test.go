package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/party"
)

// Shells complete paths for each flag that takes one, which its name tells; what completes the arguments of each command is decided.
func TestPathsAreCompleted(t *testing.T) {
	paths := 0
	walk(newRoot(&cli.Factory{}), func(c *cobra.Command) {
		if c.ValidArgsFunction == nil && c.Name() != "powershell" {
			t.Errorf("%s: nobody has decided what completes its arguments", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			takesPath := strings.HasSuffix(flag.Name, "-file") || strings.HasSuffix(flag.Name, "-dir") || flag.Name == "kubeconfig" || flag.Name == "jwks"
			if !takesPath || flag.NoOptDefVal != "" {
				return
			}
			paths++
			if value, _ := pflag.UnquoteUsage(flag); value != "FILE" && value != "DIR" {
				t.Errorf("%s --%s: write what it takes as `FILE` or `DIR` in its description: %s", c.CommandPath(), flag.Name, flag.Usage)
			}
		})
	})
	if paths < 30 {
		t.Errorf("only %d flags that take a path were seen", paths)
	}
}

// What shells show beside a flag is for people: the back-ticks around what its value is called are only for the help.
func TestDescriptionsOfFlagsArePlain(t *testing.T) {
	described := 0
	walk(newRoot(&cli.Factory{}), func(c *cobra.Command) {
		offered, _ := completed(t, append(strings.Fields(c.CommandPath())[1:], "--")...)
		for _, o := range offered {
			described++
			if strings.Contains(o, "`") {
				t.Errorf("%s: %s", c.CommandPath(), o)
			}
		}
	})
	if described < 300 {
		t.Errorf("only %d flags were offered", described)
	}
}

// completed returns what a shell is offered for the last of the words, and which paths it completes itself.
func completed(t *testing.T, words ...string) (offered []string, paths string) {
	t.Helper()
	var out, errs bytes.Buffer
	began := time.Now()
	run(t.Context(), append([]string{cobra.ShellCompRequestCmd}, words...), streams{in: strings.NewReader(""), out: &out, err: &errs})
	if errs.Len() > 0 {
		t.Errorf("%q: something is printed beside the answer: %s", words, errs.String())
	}
	if took := time.Since(began); took > 5*time.Second { // two, on a machine with nothing else to do
		t.Errorf("%q took %v", words, took)
	}
	offered = strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	directive := offered[len(offered)-1]
	offered = offered[:len(offered)-1]
	return offered, map[string]string{":0": "files", ":16": "directories"}[directive]
}

func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c := checked{t}
	t.Setenv("KEYPOST_STORE", "file://./key sets")
	c.Check(os.MkdirAll(filepath.Join(dir, "key sets", "below"), 0o700))
	st, err := filestore.Create("key sets")
	c.Check(err)
	add := func(store keystore.Backend, name keystore.Name) keystore.KeySet {
		spec := testSpec(t, name, "https://oidc.example.com/"+string(name))
		var err error
		spec.Keys[0], err = spec.Keys[0].WithID("kid-of-"+keystore.KeyID(name), "ES256") // one of its own may begin with a hyphen
		c.Check(err)
		s, err := keystore.New(keystore.Change{At: time.Now().Add(-time.Hour)}, spec)
		c.Check(err)
		c.Check(keystore.Create(t.Context(), keystore.NewStore(store), s))
		return s
	}
	active := string(add(st, "prod-a").Keys()[0].ID())
	add(st, "prod-b")
	other, err := filestore.Create("other")
	c.Check(err)
	add(other, "test-a")
	parties := party.Known()
	for _, tt := range []struct {
		line  string // words; the last one is completed; "_" is an empty one
		want  []string
		paths string // files or directories: what the shell completes itself
	}{
		{"issuer show _", []string{"prod-a", "prod-b"}, ""},
		{"issuer show prod-b _", nil, ""},
		{"issuer show --store file://./other t", []string{"test-a"}, ""},
		{"issuer show --store=file://./other _", []string{"test-a"}, ""},
		{"issuer show https://oidc.example.com/prod-b", []string{"https://oidc.example.com/prod-b\tprod-b"}, ""},
		{"verify prod-a _", []string{"prod-b"}, ""},
		{"rotate status pr", []string{"prod-a", "prod-b"}, ""},
		{"export _", nil, "directories"},
		{"export out _", []string{"prod-a", "prod-b"}, ""},
		{"issuer add _", nil, ""},
		{"issuer accept _", []string{"prod-a", "prod-b"}, ""},
		{"key retire prod-a _", []string{active + "\tactive"}, ""},
		{"key retire prod-a " + active[:9], []string{active + "\tactive"}, ""},
		{"key promote prod-a _", nil, ""},
		{"key revoke prod-a _", []string{active + "\tactive"}, ""},
		{"key retire prod-x _", nil, ""},
		{"issuer accept prod-a --keep _", []string{active + "\tactive"}, ""},
		{"issuer list -o _", []string{"table", "wide", "json", "yaml"}, ""},
		{"issuer list -o j", []string{"json"}, ""},
		{"issuer list --output=y", []string{"yaml"}, ""},
		{"key generate --type p", []string{"p256", "p384", "p521"}, ""},
		{"issuer set prod-a --relying-party _", parties, ""},
		{"issuer set prod-a --relying-party aws,v", []string{"aws,vault"}, ""},
		{"issuer set prod-a --why _", nil, ""},
		{"key remove prod-a x --confirm-kid _", nil, ""},
		{"verify prod-a --ca-file _", nil, "files"},
		{"key generate --out _", nil, "directories"},
		{"aws create-role --issuer-url _", []string{"https://oidc.example.com/prod-a\tprod-a", "https://oidc.example.com/prod-b\tprod-b"}, ""},
		{"mirror --issuer-url _", nil, ""},
		{"isuer _", nil, ""},
		{"issuer lst _", nil, ""},
		{"issuer show --nope _", nil, "files"},
	} {
		words := strings.Fields(tt.line)
		if words[len(words)-1] == "_" {
			words[len(words)-1] = ""
		}
		got, paths := completed(t, words...)
		if !slices.Equal(got, tt.want) || paths != tt.paths {
			t.Errorf("keypost %s: %q, and %q; want %q, and %q", tt.line, got, paths, tt.want, tt.paths)
		}
	}
}

// hostileKids are words of a shell, or flags, that a foreign JWKS or a document calls its keys. Those of a kind begin alike, so that
// a first Tab inserts what they have in common.
var hostileKids = []string{
	"`touch${IFS}pwned`1", "`touch${IFS}pwned`2", "$(touch${IFS}pwned)1", "$(touch${IFS}pwned)2", "a;touch${IFS}pwned;1", "a;touch${IFS}pwned;2",
	"a&b", "a|b", "a<b", "a>b", "a'b", `a"b`, `a\b`, "a*b", "a[b]", "a{b,c}", "a!b", "a#b", "#a", "~root", "a(b)", "a^b", "=ls", "--force", "-x",
}

// Shells get nothing that is more than a word: bash inserts what several values have in common as it is, and evaluates the line at
// the next Tab.
func TestOnlyPlainWordsAreOffered(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c := checked{t}
	t.Setenv("KEYPOST_STORE", "file://./store")
	st, err := filestore.Create("store")
	c.Check(err)
	spec := testSpec(t, "prod-a", "https://oidc.example.com/prod-a")
	spec.Keys = nil
	var plain []string
	for _, kid := range append([]string{"plain.1_a-b", "p%@+=:,./?z"}, hostileKids...) {
		k, err := testSpec(t, "x", "https://x.example.com").Keys[0].WithID(keystore.KeyID(kid), "ES256")
		c.Check(err)
		spec.Keys = append(spec.Keys, k)
		if !slices.Contains(hostileKids, kid) {
			plain = append(plain, kid+"\tactive")
		}
	}
	s, err := keystore.New(keystore.Change{At: time.Now().Add(-time.Hour)}, spec)
	c.Check(err)
	c.Check(keystore.Create(t.Context(), keystore.NewStore(st), s))
	slices.Sort(plain)
	for _, words := range [][]string{{"key", "revoke", "prod-a", ""}, {"key", "retire", "prod-a", ""}, {"issuer", "accept", "prod-a", "--keep", ""}} {
		if got, _ := completed(t, words...); !slices.Equal(slices.Sorted(slices.Values(got)), plain) {
			t.Errorf("keypost %q: %q, want %q", words, got, plain)
		}
	}
	for _, kid := range hostileKids {
		if got, _ := completed(t, "key", "revoke", "prod-a", kid); len(got) > 0 && kid != "--force" { // which is a flag too
			t.Errorf("%s, which was typed, is completed to %q", kid, got)
		}
	}
}

// A store that does not answer is as good as none, after two seconds.
func TestCompletionOfASilentStore(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	checked{t}.Check(err)
	defer func() { _ = listener.Close() }()
	t.Setenv("AWS_ACCESS_KEY_ID", "x")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	t.Setenv("KEYPOST_STORE", "s3://bucket/prefix?region=eu-central-1&endpoint=http://"+listener.Addr().String())
	if got, paths := completed(t, "issuer", "show", ""); len(got) > 0 || paths != "" {
		t.Errorf("%q, and %q", got, paths)
	}
}
