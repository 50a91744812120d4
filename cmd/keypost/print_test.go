package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/golden"
)

// nasty has what may not reach a terminal: a colour, a C1 control, an override, an isolate, marks of direction,
// zero-width characters, line separators, a filler.
const nasty = "\x1b[31mred\u009b2J\u202egpj.exe\u2066x\u2069\u200e\u200f\u061c\u200b\ufeff\u2028\u2029\u3164\u00ad"

// stored is nasty without what no document can hold.
var stored = strings.ReplaceAll(nasty, "\u009b", "")

// typed is nasty without what --why and --by refuse.
var typed = strings.ReplaceAll(stored, "\x1b", "")

// showsSafely runs a command and fails the test if it printed any character that a terminal obeys or hides.
func showsSafely(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	run(t.Context(), args, streams{in: strings.NewReader(""), out: &out, err: &errs})
	for stream, printed := range map[string]string{"stdout": out.String(), "stderr": errs.String()} {
		for _, r := range printed {
			if r != '\n' && !text.Printable(r) {
				t.Errorf("keypost %q prints %U on %s:\n%q", args, r, stream, printed)
				break
			}
		}
	}
	return out.String(), errs.String()
}

// nastyStore has a key set whose free texts are nasty, and a broken document with a nasty name.
func nastyStore(t *testing.T) (dir string, s keystore.KeySet) {
	t.Helper()
	dir = t.TempDir()
	c := checked{t}
	st, err := filestore.Create(dir)
	c.Check(err)
	now := time.Now().Add(-time.Hour)
	spec := testSpec(t, "prod-a", "https://oidc.example.com/prod-a")
	spec.Policy.RelyingParties = []string{"aws"}
	s, err = keystore.New(keystore.Change{At: now, By: "by" + stored, Why: "why" + stored}, spec)
	c.Check(err)
	gone := testSpec(t, "other", "https://other.example.com").Keys[0]
	s, err = s.Add(keystore.Change{At: now, By: "adds" + stored}, gone)
	c.Check(err)
	s, err = s.Revoke(keystore.Change{At: now, By: "revokes" + stored, Why: "stolen" + stored}, gone.ID(), keystore.RevokeOptions{})
	c.Check(err)
	c.Check(keystore.Create(t.Context(), keystore.NewStore(st), s))
	c.Check(os.WriteFile(filepath.Join(dir, "name"+nasty+".yaml"), []byte("apiVersion: keypost.dev/v1\nkind: KeySet\n"), 0o600))
	broken := "apiVersion: keypost.dev/v1\nkind: KeySet\nmetadata: {name: broken}\nspec: {keys: [], issuers: [%q]}\n"
	c.Check(os.WriteFile(filepath.Join(dir, "broken.yaml"), fmt.Appendf(nil, broken, "https://"+nasty), 0o600))
	return dir, s
}

// Whatever a document, a file name, a server or a person puts into its fields, a terminal shows it and obeys nothing.
func TestNothingPrintedIsObeyed(t *testing.T) {
	dir, s := nastyStore(t)
	store := "--store=file://" + dir
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Server"] = []string{nasty}
		w.Header().Set("Location", "https://elsewhere.example.com/"+nasty)
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, `{"error": "`+nasty+`"}`)
	}))
	defer server.Close()
	ca, key := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "key"+nasty)
	checked{t}.Check(os.WriteFile(ca, certificatePEM(server), 0o600))
	checked{t}.Check(os.WriteFile(key, []byte("no key"), 0o600))
	kid := string(s.Keys()[0].ID())
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuers": []any{map[string]any{
			"name": "prod-a", "generation": 1, "rejected": nasty, "message": nasty, "issuers": []string{nasty},
		}, map[string]any{"name": nasty, "issuers": []string{nasty}}}})
	}))
	defer admin.Close()
	for _, args := range [][]string{
		{"issuer", "show", "prod-a", store},
		{"audit", "prod-a", store},
		{"audit", "prod-a", "--at", nasty, store},
		{"issuer", "list", store},
		{"issuer", "list", store, "--admin", admin.URL},
		{"issuer", "list", store, "--admin", server.URL},
		{"issuer", "show", nasty, store},
		{"issuer", "show", "https://" + nasty, store},
		{"issuer", "set", "prod-a", "--token-lifetime", "2h", "--relying-party", nasty, store},
		{"issuer", "set", "prod-a", "--origin", nasty, store},
		{"issuer", "set", "prod-a", "--token-lifetime", nasty, store},
		{"issuer", "add", nasty, "--url", "https://x.example.com", "--public-key-file", key, store},
		{"issuer", "add", "prod-b", "--url", "https://" + nasty, "--public-key-file", key, store},
		{"issuer", "add", "prod-b", "--url", "https://x.example.com", "--public-key-file", key, store},
		{"issuer", "add", "prod-b", "--url", "https://x.example.com", "--public-key-file", key + "absent", store},
		{"issuer", "add", "prod-b", "--url", "https://x.example.com", "--jwks", server.URL + "/" + nasty, store},
		{"issuer", "add", "prod-b", "--url", "https://x.example.com", "--kubeconfig", key, store},
		{"issuer", "accept", "prod-a", "--why", nasty, "--admin", server.URL, store},
		{"issuer", "remove", "prod-a", "--confirm-url", nasty, "--why", nasty, store},
		{"key", "list", "prod-a", store},
		{"key", "add", "prod-a", "--public-key-file", key, store},
		{"key", "promote", "prod-a", "abcdefgh" + nasty, store},
		{"key", "retire", "prod-a", kid, "--why", "retired" + typed, "--by", "me" + typed, store},
		{"key", "generate", "--out", filepath.Join(t.TempDir(), nasty, "deeper")},
		{"key", "generate", "--type", nasty, "--out", t.TempDir()},
		{"verify", server.URL, "--dev", "--ca-file", ca},
		{"verify", server.URL, "--dev", "--ca-file", key},
		{"verify", server.URL, "--dev", "--token-file", key},
		{"verify", nasty, store},
		{"issuer", "observe", "prod-a", "--ca-file", ca, "--observations=file://" + t.TempDir(), store},
		{"issuer", "observe", "prod-a", "--vantage", nasty, "--observations=file://" + t.TempDir(), store},
		{"issuer", "observe", "prod-a", "--observations", nasty, store},
		{"rotate", "start", "prod-a", "--public-key-file", key, store},
		{"rotate", "rollback", "prod-a", "--why", nasty, store},
		{"rotate", "step", "prod-a", "--kubeconfig", key, store},
		{"export", filepath.Join(t.TempDir(), nasty), store},
		{"export", key, store},
		{"store", "copy", "file://" + dir, "file://" + t.TempDir()},
		{"store", "copy", "file://" + dir, "file://" + filepath.Join(t.TempDir(), nasty)},
		{"mirror", t.TempDir(), "--issuer-url", nasty, store},
		{"watch", "--listen", nasty, store},
		{"watch", "--vantage", nasty, "--observations=file://" + t.TempDir(), store},
		{"mirror", t.TempDir() + nasty, store},
		{"issuer", "list", "--store", nasty},
		{"issuer", "list", "--store", "s3://" + nasty},
		{"issuer", "list", "-o", nasty, store},
		{"--" + nasty}, {"-" + nasty}, {nasty}, {"issuer", nasty}, {"help", nasty}, {"completion", nasty},
	} {
		showsSafely(t, args...)
	}
	if _, stderr := showsSafely(t, "issuer", "show", nasty, store); !strings.Contains(stderr, "red") {
		t.Error("the legible part of a name is lost")
	}
	out, _ := showsSafely(t, "issuer", "show", "prod-a", store)
	for _, want := range []string{"by?[31mred2J?gpj.exe?x?", "why?[31mred", "stolen?[31mred"} {
		if !strings.Contains(out, want) {
			t.Errorf("issuer show prints no %q:\n%s", want, out)
		}
	}
}

// Every command gives its result the form that -o asks for, or says that it has none. A command that is not in the
// table fails the test.
func TestEveryCommandHonoursOutput(t *testing.T) {
	dir := t.TempDir()
	c := checked{t}
	st, err := filestore.Create(filepath.Join(dir, "store"))
	c.Check(err)
	now := time.Now().Add(-1000 * time.Hour)
	add := func(name keystore.Name) (kids []string) {
		spec := testSpec(t, name, "https://oidc.example.com/"+string(name))
		spec.Keys = append(spec.Keys, testSpec(t, name).Keys...)
		spec.Policy.TokenLifetime = keystore.DurationPtr(time.Hour)
		s, err := keystore.New(keystore.Change{At: now}, spec)
		c.Check(err)
		c.Check(keystore.Create(t.Context(), keystore.NewStore(st), s))
		for _, k := range s.Keys() {
			kids = append(kids, string(k.ID()))
		}
		return kids
	}
	a, b := add("prod-a"), add("prod-b")
	first, err := os.ReadFile(filepath.Join(dir, "store", "prod-a.yaml"))
	c.Check(err)
	backup := filepath.Join(dir, "backup.yaml")
	c.Check(os.WriteFile(backup, first, 0o600))
	server, admin, ca := startIssuer(trusting{t}, c, filepath.Join(dir, "store"))
	defer server.Close()
	defer admin.Close()
	caFile, pub, pub2 := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "k", "sa.pub"), filepath.Join(dir, "k2", "sa.pub")
	c.Check(os.WriteFile(caFile, ca, 0o600))
	c.Check(os.Mkdir(filepath.Dir(pub2)+"-none", 0o700))
	done, shapes := map[string]string{}, map[string]string{} // what was tried, and what it printed
	try := func(line string) {
		t.Helper()
		args := append(strings.Fields(line), "--store=file://"+filepath.Join(dir, "store"), "-o", "json")
		var out, errs bytes.Buffer
		code := run(t.Context(), args, streams{in: strings.NewReader(""), out: &out, err: &errs})
		path := commandPath(args)
		done[path] = line
		switch {
		case code == cli.ExitUsage && strings.Contains(errs.String(), "prints no result") && out.Len() == 0: // it says so
		case code != cli.ExitDone:
			t.Errorf("keypost %s: exit code %d\n%s", line, code, errs.String())
		default:
			var result map[string]any
			if err := json.Unmarshal(out.Bytes(), &result); err != nil {
				t.Errorf("keypost %s prints no JSON object: %v\n%s", line, err, out.String())
			}
			shapes[path] = shape(result)
		}
	}
	host := "https://localhost:" + portOf(server) + "/"
	for _, line := range []string{
		"version", "completion bash", "completion zsh", "completion fish", "completion powershell", "help",
		"key generate --type p256 --out " + filepath.Dir(pub), "key generate --type p256 --out " + filepath.Dir(pub2),
		"issuer add prod-c --url https://oidc.example.com/prod-c --public-key-file " + pub,
		"issuer add dev --dev --url " + host + "dev --public-key-file " + pub,
		"issuer set prod-a --token-lifetime 1h", "issuer list", "issuer show prod-a", "audit prod-a",
		"issuer accept dev --why test",
		"key list prod-a", "key add prod-a --public-key-file " + pub2,
		"key retire prod-a " + a[0] + " --why test", "key promote prod-a " + a[0] + " --force --why test",
		"key retire prod-b " + b[0] + " --why test", "key remove prod-b " + b[0] + " --force --why test",
		"key revoke prod-a " + a[1] + " --why test",
		"rotate start prod-c --public-key-file " + pub2, "rotate status --all", "rotate rollback prod-c --why test",
		"rotate step dev --observations file://" + filepath.Join(dir, "observations"),
		"issuer observe dev --observations file://" + filepath.Join(dir, "observations"),
		"verify --dev " + host + "dev --ca-file " + caFile,
		"sync-keys --all --observations file://" + filepath.Join(dir, "observations"),
		"export " + filepath.Join(dir, "out"), "store copy file://" + filepath.Join(dir, "store") + " file://" + filepath.Join(dir, "copy"),
		"store restore prod-a --from " + backup + " --force --why x",
		"mirror --once " + dir, "watch", "enroll --once --source dir:" + filepath.Dir(pub2) + "-none --issuer-url https://oidc.example.com/{name}",
		"issuer remove prod-b --confirm-url https://oidc.example.com/prod-b --why test --force",
	} {
		try(line)
	}
	scripts := ""
	for _, name := range []string{"aws_output.txtar", "awsmigrate/move.txtar", "azure_output.txtar", "azure_migrate.txtar", "gcp_output.txtar", "gcp_migrate.txtar"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		c.Check(err)
		scripts += string(text)
	}
	for _, path := range runnable(newRoot(&cli.Factory{})) {
		if strings.HasPrefix(path, "keypost aws ") || strings.HasPrefix(path, "keypost azure ") || strings.HasPrefix(path, "keypost gcp ") { // they need an account
			if !regexp.MustCompile(`(?m)^exec ` + path + ` .* -o json$`).MatchString(scripts) {
				t.Errorf("no script runs %s with -o json", path)
			}
			continue
		}
		if _, tried := done[path]; !tried {
			t.Errorf("%s is not in the table", path)
		}
	}
	if len(done) < 20 {
		t.Errorf("only %v were tried", slices.Sorted(maps.Keys(done)))
	}
	for _, m := range regexp.MustCompile(`(?m)^exec (keypost (?:aws|azure|gcp) [a-z-]+) .* -o json\njson (.*)$`).FindAllStringSubmatch(scripts, -1) {
		if !strings.Contains(m[0], " --diff") && !strings.Contains(m[0], " --dry-run") {
			members := strings.Fields(m[2])
			slices.Sort(members)
			shapes[m[1]] = strings.Join(members, ", ")
		}
	}
	var doc strings.Builder
	doc.WriteString(outputPreface)
	for _, path := range slices.Sorted(maps.Keys(shapes)) {
		fmt.Fprintf(&doc, "| `%s` | %s |\n", path, shapes[path])
	}
	golden.Same(t, "../../docs/reference/output.md", doc.String())
}

const outputPreface = `# Results of keypost for scripts

Made from what commands print in a test by ` + "`KEYPOST_UPDATE=1 go test ./cmd/keypost -run TestEveryCommandHonoursOutput`" + `: edit that.

With ` + "`-o json`" + ` or ` + "`-o yaml`" + ` a result is one object on stdout, and nothing else is: notices, warnings, hints and how far something is
are on stderr. A command that has no result refuses ` + "`-o json`" + `. Times are RFC 3339 in UTC. ` + "`[]`" + ` stands for a list, and what is in
braces for the members of each thing in it; members that do not apply may be missing. More of them may come.

Commands of ` + "`keypost aws`" + ` and ` + "`keypost azure`" + ` with ` + "`--diff`" + `, and their ` + "`delete`" + ` with ` + "`--dry-run`" + `, print ` + "`changes`" + ` (` + "`verb`, `thing`, `name`, `diff`" + `), ` + "`notes`, `warnings` and `extra`" + `.

| command | members |
|---|---|
`

// shape returns the members of an object, and of the objects in its lists.
func shape(object map[string]any) string {
	var members []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		list, is := object[name].([]any)
		if !is {
			members = append(members, name)
			continue
		}
		union := map[string]any{}
		for _, e := range list {
			if o, is := e.(map[string]any); is {
				maps.Copy(union, o)
			}
		}
		name += "[]"
		if len(union) > 0 {
			name += " {" + strings.Join(slices.Sorted(maps.Keys(union)), ", ") + "}"
		}
		members = append(members, name)
	}
	return strings.Join(members, ", ")
}

func commandPath(args []string) string {
	cmd, _, err := newRoot(&cli.Factory{}).Find(args)
	if err != nil {
		return err.Error()
	}
	return cmd.CommandPath()
}

// runnable returns the paths of all commands that do something.
func runnable(cmd *cobra.Command) []string {
	if !cmd.HasSubCommands() {
		return []string{cmd.CommandPath()}
	}
	var list []string
	for _, c := range cmd.Commands() {
		list = append(list, runnable(c)...)
	}
	return list
}

func testSpec(t *testing.T, name keystore.Name, urls ...string) keystore.Spec {
	t.Helper()
	return keystore.Spec{Name: name, Issuers: storetest.URLs(t, urls...), Keys: []keystore.VerificationKey{storetest.Key(t)}, Policy: view.NewPolicy(false)}
}
