package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/provision/ccoctl"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "keypost" {
		trustOurCA()
		flag.Parse()
		_ = flag.Set("test.parallel", "12") // most scripts wait most of the time
	}
	testscript.Main(m, map[string]func(){"keypost": func() {
		begin(os.Getenv(lookedForAt))
	}})
}

// lookedForAt is the variable that leads the commands of clouds to a stand-in for an issuer, at HOST:PORT.
const lookedForAt = "KEYPOST_TEST_CONNECT"

// TestScripts runs testdata/*.txtar against the real program, one process per command.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":     exits,
			"nosecret":  noSecret,
			"keyset":    writeKeySet,
			"token":     writeToken,
			"serve":     accounts{t}.serve,
			"trust":     trust,
			"apiserver": serveAPI,
			"kids":      setKids,
			"earlier":   seenEarlier,
			"clock":     setClock,
			"damage":    damage,
			"withurl":   addURL,
			"order":     inOrder,
			"modes":     modes,
			"same":      sameText,
			"fakeaws":   accounts{t}.start,
			"calls":     calls,
			"await":     awaitText,
			"address":   freeAddress,
			"scrape":    scrape,
			"account":   printAccount,
			"said":      said,
			"proxy":     startProxy,
			"plane":     startPlane,
			"cluster":   startCluster,
			"signs":     planeSigns,
			"past":      setPast,
			"iam":       callIAM,
			"environ":   setEnviron,
			"conflict":  mergeConflict,
			"front":     accounts{t}.front,
			"silent":    silent,
			"repair":    repair,
			"hint":      hint,
			"json":      jsonObject,
			"fakeazure": accounts{t}.startAzure,
			"azcalls":   azureCalls,
			"azure":     printAzure,
			"aztag":     tagAzureGroup,
			"azask":     askAzure,
			"fakegcp":   accounts{t}.startGCP,
			"gcalls":    gcalls,
			"gsaid":     gsaid,
			"project":   printProject,
			"google":    callGoogle,
			"exchange":  exchange,
			"moves":     moves,
			"keypair":   plantKeyPair,
		},
		Setup: func(env *testscript.Env) error {
			env.Values[accountKey{}] = &fakeAccount{}
			env.Values[azureKey{}] = &fakeSubscription{}
			env.Values[projectKey{}] = &fakeProject{}
			env.Values[planeKey{}] = &fakePlane{}
			env.Setenv("KEYPOST_STORE", "file://./store")
			requests, err := filepath.Abs("testdata/gcp/requests")
			env.Setenv("GCP_REQUESTS", requests)
			if err != nil {
				return err
			}
			env.Setenv("GORACE", "atexit_sleep_ms=0")                          // or each of hundreds of processes takes a second to end
			env.Setenv("SSL_CERT_DIR", filepath.Join(env.WorkDir, "no-roots")) // or each that speaks TLS reads hundreds of files
			env.Setenv("GOGC", "off")                                          // or each sweeps a heap that it leaves in a moment
			return nil
		},
	})
}

// exits runs a command that must end with a certain code: exits CODE COMMAND ARG…
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARG…")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, not %s", code, args[0])
	}
}

// setEnviron sets a variable to a value with Go's escapes: environ NAME VALUE
func setEnviron(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: environ NAME VALUE")
	}
	value, err := strconv.Unquote(`"` + args[1] + `"`)
	ts.Check(err)
	ts.Setenv(args[0], value)
}

// noSecret proves that neither the last output nor a file below the directories has bytes of a private key file:
// nosecret KEYFILE DIR… Only the second half of the file counts; the first holds the public modulus as well.
func noSecret(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: nosecret KEYFILE DIR…")
	}
	lines := strings.Fields(ts.ReadFile(args[0]))
	lines = lines[len(lines)/2:]
	search := func(where, text string) {
		for _, l := range lines {
			if len(l) >= 40 && strings.Contains(text, l) {
				ts.Fatalf("%s has bytes of the private key", where)
			}
		}
	}
	search("stdout", ts.ReadFile("stdout"))
	search("stderr", ts.ReadFile("stderr"))
	for _, dir := range args[1:] {
		ts.Check(filepath.WalkDir(ts.MkAbs(dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			search(path, string(data))
			return err
		}))
	}
}

// inOrder finds patterns in a file, each on a later line than the one before: order FILE PATTERN…
func inOrder(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: order FILE PATTERN…")
	}
	lines := strings.Split(ts.ReadFile(args[0]), "\n")
	for _, pattern := range args[1:] {
		re, err := regexp.Compile(pattern)
		ts.Check(err)
		i := slices.IndexFunc(lines, re.MatchString)
		if i < 0 {
			ts.Fatalf("no line matches %q after the ones before:\n%s", pattern, ts.ReadFile(args[0]))
		}
		lines = lines[i+1:]
	}
}

// modes compares permissions: modes FILE MODE…
func modes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args)%2 != 0 {
		ts.Fatalf("usage: modes FILE MODE…")
	}
	for pair := range slices.Chunk(args, 2) {
		info, err := os.Stat(ts.MkAbs(pair[0]))
		ts.Check(err)
		if mode := fmt.Sprintf("%04o", info.Mode().Perm()); mode != pair[1] {
			ts.Fatalf("%s has mode %s, not %s", pair[0], mode, pair[1])
		}
	}
}

// sameText compares a file with one of the script, which always ends in a newline: same FILE WANT
func sameText(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: same FILE WANT")
	}
	got, want := ts.ReadFile(args[0]), strings.TrimSuffix(ts.ReadFile(args[1]), "\n")
	if got != want {
		ts.Fatalf("%s is\n%s\nand not\n%s", args[0], got, want)
	}
}

// jsonObject finds that the last output is one JSON object with exactly these members: json MEMBER…
func jsonObject(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: json MEMBER…")
	}
	var object map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &object))
	slices.Sort(args)
	if has := slices.Sorted(maps.Keys(object)); !slices.Equal(has, args) {
		ts.Fatalf("it has %q, not %q", has, args)
	}
}

// plantKeyPair writes the key pair of a cluster as an earlier run would have left it, so that a script that is not about keys does not
// wait for four thousand bits: keypair DIR.
func plantKeyPair(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: keypair DIR")
	}
	pair, err := clusterKey()
	ts.Check(err)
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	ts.Check(pair.Write(signingkey.Paths{Private: filepath.Join(dir, ccoctl.PrivateKeyName), Public: filepath.Join(dir, ccoctl.PublicKeyName)}))
}

var clusterKey = sync.OnceValues(func() (signingkey.Private, error) { return signingkey.Generate(signingkey.RSA2048) })
