package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
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
func TestScripts(t *testing.T) { testscript.Run(t, scripts(t, "testdata")) }

// TestMigrateScripts runs testdata/awsmigrate/*.txtar against the real program, a played account and a played cluster.
func TestMigrateScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, scripts(t, filepath.Join("testdata", "awsmigrate")))
}

// scripts are those of a directory, with every word that they may use.
func scripts(t testing.TB, dir string) testscript.Params {
	return testscript.Params{Dir: dir, RequireExplicitExec: true, RequireUniqueNames: true, Cmds: words(accounts{t}), Setup: func(env *testscript.Env) error {
		env.Values[accountKey{}] = &fakeAccount{}
		env.Values[azureKey{}] = &fakeSubscription{}
		env.Values[projectKey{}] = &fakeProject{}
		env.Values[planeKey{}] = &fakePlane{}
		env.Setenv("KEYPOST_STORE", "file://./store")
		env.Setenv("GORACE", "atexit_sleep_ms=0")                          // or each of hundreds of processes takes a second to end
		env.Setenv("SSL_CERT_DIR", filepath.Join(env.WorkDir, "no-roots")) // or each that speaks TLS reads hundreds of files
		env.Setenv("GOGC", "400")                                          // or each sweeps a heap that it leaves in a moment
		requests, err := filepath.Abs("testdata/gcp/requests")
		env.Setenv("GCP_REQUESTS", requests)
		return err
	}}
}

// many lets a word take any number of arguments.
const many = math.MaxInt

// word is a word of scripts that takes from least to most arguments, and no "!".
func word(least, most int, form string, run func(ts *testscript.TestScript, args []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < least || len(args) > most {
			ts.Fatalf("it takes %s, and not %q", form, args)
		}
		run(ts, args)
	}
}

// compares is a word that compares the calls of a cloud since the last time.
func compares(cloud func(ts *testscript.TestScript) recorder) func(*testscript.TestScript, bool, []string) {
	return word(1, many, "none|reads|ACTION=COUNT…", func(ts *testscript.TestScript, args []string) { compareCalls(ts, cloud(ts), args) })
}

// writes is a word that writes what a cloud holds to a file.
func writes(held func(ts *testscript.TestScript) string) func(*testscript.TestScript, bool, []string) {
	return word(1, 1, "FILE", func(ts *testscript.TestScript, args []string) {
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(held(ts)), 0o600))
	})
}

func words(a accounts) map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	return map[string]func(ts *testscript.TestScript, neg bool, args []string){
		"exits":     word(2, many, "CODE COMMAND ARG…", exits),
		"nosecret":  word(1, many, "KEYFILE DIR…", noSecret),
		"keyset":    word(4, many, "DIR NAME URL STATE[=AGE]…", writeKeySet),
		"token":     word(3, 3, "KEYFILE ISSUER FILE", writeToken),
		"serve":     word(1, 1, "DIR", a.serve),
		"trust":     word(1, 1, "FILE", trust),
		"apiserver": word(2, many, "ISSUER FILE…", serveAPI),
		"kids":      setKids,
		"earlier":   word(2, many, "DIR AGE [MEMBER…]", seenEarlier),
		"clock":     word(2, 2, "DIR OFFSET", setClock),
		"damage":    word(1, 1, "DIR", damage),
		"withurl":   word(2, 2, "FILE URL", addURL),
		"order":     word(2, many, "FILE PATTERN…", inOrder),
		"modes":     word(2, many, "FILE MODE…", modes),
		"same":      word(2, 2, "FILE WANT", sameText),
		"fakeaws":   word(0, 1, "[PARTITION|ports|TRUSTLIMIT|issuer|private]", a.start),
		"calls":     compares(func(ts *testscript.TestScript) recorder { return accountOf(ts) }),
		"await":     word(2, 2, "FILE PATTERN", awaitText),
		"address":   word(1, 1, "NAME", freeAddress),
		"scrape":    scrape,
		"account":   writes(func(ts *testscript.TestScript) string { return describe(accountOf(ts).State()) }),
		"said":      word(1, 1, "COUNT", said),
		"proxy":     word(2, many, "LOG HOST=ADDRESS…", startProxy),
		"plane":     word(4, many, "kubernetes|openshift KEYFILE PODS ISSUER…", startPlane),
		"cluster":   word(3, many, "DIR ISSUER AUDIENCE…", startCluster),
		"signs":     word(2, 2, "NUMBER ISSUER", planeSigns),
		"past":      word(2, 2, "NAME DURATION", setPast),
		"iam":       word(1, many, "ACTION NAME=VALUE…", callIAM),
		"environ":   word(2, 2, "NAME VALUE", setEnviron),
		"conflict":  word(3, 3, "OURS THEIRS FILE", mergeConflict),
		"front":     word(2, 2, "DIR CAUSE", a.front),
		"silent":    word(0, 0, "", silent),
		"repair":    repair,
		"hint":      word(2, many, "CODE BEGINNING [PLACEHOLDER=VALUE…]", hint),
		"json":      word(1, many, "MEMBER…", jsonObject),
		"fakeazure": word(0, 1, "[slow]", a.startAzure),
		"azcalls":   compares(func(ts *testscript.TestScript) recorder { return subscriptionOf(ts) }),
		"azure":     writes(func(ts *testscript.TestScript) string { return describeAzure(subscriptionOf(ts).State()) }),
		"aztag":     word(3, 3, "GROUP NAME VALUE", tagAzureGroup),
		"azask":     word(3, 4, "METHOD PATH VERSION [BODY]", askAzure),
		"fakegcp":   word(0, 1, "[issuer|refusing|slow|lagging]", a.startGCP),
		"gcalls":    compares(func(ts *testscript.TestScript) recorder { return projectOf(ts) }),
		"gsaid":     word(1, 1, "COUNT", gsaid),
		"project":   writes(func(ts *testscript.TestScript) string { return describeProject(projectOf(ts).State()) }),
		"google":    word(2, 3, "METHOD URL [BODY]", callGoogle),
		"exchange":  exchange,
		"moves":     word(1, 1, "FILE", moves),
		"keypair":   word(1, 1, "DIR", plantKeyPair),
	}
}

// exits runs a command that must end with a certain code: exits CODE COMMAND ARG…
func exits(ts *testscript.TestScript, args []string) {
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
func setEnviron(ts *testscript.TestScript, args []string) {
	value, err := strconv.Unquote(`"` + args[1] + `"`)
	ts.Check(err)
	ts.Setenv(args[0], value)
}

// noSecret proves that neither the last output nor a file below the directories has bytes of a private key file:
// nosecret KEYFILE DIR… Only the second half of the file counts; the first holds the public modulus as well.
func noSecret(ts *testscript.TestScript, args []string) {
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
func inOrder(ts *testscript.TestScript, args []string) {
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
func modes(ts *testscript.TestScript, args []string) {
	for pair := range slices.Chunk(args, 2) {
		info, err := os.Stat(ts.MkAbs(pair[0]))
		ts.Check(err)
		if mode := fmt.Sprintf("%04o", info.Mode().Perm()); mode != pair[1] {
			ts.Fatalf("%s has mode %s, not %s", pair[0], mode, pair[1])
		}
	}
}

// mergeConflict leaves in a file what a merge of two versions leaves there: conflict OURS THEIRS FILE
func mergeConflict(ts *testscript.TestScript, args []string) {
	text := "<<<<<<< HEAD\n" + ts.ReadFile(args[0]) + "=======\n" + ts.ReadFile(args[1]) + ">>>>>>> theirs\n"
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(text), 0o600))
}

// sameText compares a file with one of the script, which always ends in a newline: same FILE WANT
func sameText(ts *testscript.TestScript, args []string) {
	got, want := ts.ReadFile(args[0]), strings.TrimSuffix(ts.ReadFile(args[1]), "\n")
	if got != want {
		ts.Fatalf("%s is\n%s\nand not\n%s", args[0], got, want)
	}
}

// jsonObject finds that the last output is one JSON object with exactly these members: json MEMBER…
func jsonObject(ts *testscript.TestScript, args []string) {
	var object map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &object))
	slices.Sort(args)
	if has := slices.Sorted(maps.Keys(object)); !slices.Equal(has, args) {
		ts.Fatalf("it has %q, not %q", has, args)
	}
}

// plantKeyPair writes the key pair of a cluster as an earlier run would have left it, so that a script that is not about keys does not
// wait for four thousand bits: keypair DIR.
func plantKeyPair(ts *testscript.TestScript, args []string) {
	pair, err := clusterKey()
	ts.Check(err)
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	ts.Check(pair.Write(signingkey.Paths{Private: filepath.Join(dir, ccoctl.PrivateKeyName), Public: filepath.Join(dir, ccoctl.PublicKeyName)}))
}

var clusterKey = sync.OnceValues(func() (signingkey.Private, error) { return signingkey.Generate(signingkey.RSA2048) })
