package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/test/commands"
)

// Every command that the documentation and the help tell people to type names a command that exists, with flags and
// arguments that it takes.
func TestDocumentedCommandsParse(t *testing.T) {
	all, err := commands.All("../..")
	if err != nil {
		t.Fatal(err)
	}
	walk(newRoot(&cli.Factory{}), func(c *cobra.Command) {
		examples, err := commands.Notes(c.CommandPath()+" --help", c.Example)
		if err != nil {
			t.Error(err)
		}
		all = append(all, examples...)
	})
	mine := commands.For(all, "keypost")
	if len(mine) < 30 {
		t.Fatalf("only %d commands were found", len(mine))
	}
	for _, c := range mine {
		if err := takes(c.Words[1:], c.Mention); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// Every command of a document that reads or writes key sets says where they are, or its document says before it that KEYPOST_STORE
// does: typed as it stands it would end with "no store" else.
func TestDocumentedCommandsNameTheirStore(t *testing.T) {
	all, err := commands.All("../..")
	if err != nil {
		t.Fatal(err)
	}
	needed := 0
	for _, c := range commands.For(all, "keypost") {
		if !needsStore(c.Words[1:]) {
			continue
		}
		needed++
		if !c.Stored && !slices.ContainsFunc(c.Words, func(w string) bool { return w == "--store" || strings.HasPrefix(w, "--store=") }) {
			t.Errorf("%s: give it --store, or say before it that KEYPOST_STORE is set", c)
		}
	}
	if needed < 100 {
		t.Errorf("only %d commands were seen to need a store", needed)
	}
}

// needsStore reports whether a command ends with an error where neither --store nor KEYPOST_STORE says where key sets are. One
// without any argument only stands for the command as such.
func needsStore(args []string) bool {
	root := newRoot(&cli.Factory{})
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(cli.DashedKID(root, args))
	if err != nil || len(rest) == 0 || slices.Contains(rest, "--help") {
		return false
	}
	switch group, _, _ := strings.Cut(strings.TrimPrefix(cmd.CommandPath(), "keypost "), " "); group {
	case "issuer", "key", "rotate", "audit", "export", "mirror", "watch":
		return cmd.Name() != "generate"
	case "azure":
		given := func(flag string) bool { return slices.Contains(rest, flag) }
		return slices.Contains([]string{"create-all", "create-oidc-issuer"}, cmd.Name()) && !given("--dry-run") || cmd.Name() == "migrate" && !given("--finish")
	case "verify": // of an issuer by its URL it needs none
		return cmd.ParseFlags(rest) == nil && slices.ContainsFunc(cmd.Flags().Args(), func(a string) bool { return !strings.Contains(a, "://") && a != "URL" })
	}
	return false
}

// takes says what keypost would find wrong with its arguments before it does anything.
func takes(args []string, mention bool) error {
	f := &cli.Factory{}
	root := newRoot(f)
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(cli.DashedKID(root, args))
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	for _, flag := range []string{"help", "version"} {
		if given := cmd.Flag(flag); given != nil && given.Changed {
			return nil
		}
	}
	if mention && len(rest) == 0 && cmd != root {
		return nil
	}
	given := cmd.Flags().Args()
	if cmd.HasSubCommands() {
		return fmt.Errorf("it needs one of the commands below %s, not %q", cmd.CommandPath(), given)
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	for _, flag := range strings.Fields(cmd.Annotations["keypost.dev/required"]) {
		if !cmd.Flags().Changed(flag) {
			return fmt.Errorf("it needs --%s", flag)
		}
	}
	if err := cmd.ValidateFlagGroups(); err != nil {
		return err
	}
	if f.Store != "" && !strings.Contains(f.Store, "$") && f.Store != "STORE" {
		if _, err := cli.ParseStore(f.Store); err != nil {
			return err
		}
	}
	return cmd.ValidateArgs(given)
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, child := range c.Commands() {
		walk(child, visit)
	}
}

// printed calls found with the words of each command that the program prints, and the file that prints it.
func printed(t *testing.T, found func(file string, words []string)) {
	t.Helper()
	files, err := filepath.Glob("internal/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if words := wordsOf(n); words != nil {
				count++
				found(name, words)
			}
			return true
		})
	}
	if count < 20 {
		t.Errorf("only %d commands were found", count)
	}
}

// Every command that a hint or a notice prints is one that exists, with flags that it has. Its arguments are known only
// when it is printed.
func TestPrintedCommandsExist(t *testing.T) {
	printed(t, func(file string, words []string) {
		if err := exists(words); err != nil {
			t.Errorf("%s prints %q: %v", file, words, err)
		}
	})
	for _, words := range [][]string{{"issuer", "lst"}, {"issuer", "show", "--edge"}, {"issuer"}} {
		if exists(words) == nil {
			t.Errorf("%q passes for a command", words)
		}
	}
}

// runOtherwise names the scripts that run a printed command with what the stand-ins need besides, and not by the word hint.
func runOtherwise() map[string]string {
	return map[string]string{
		"aws create-identity-provider": "aws_stored_keys.txtar",
		"aws migrate":                  "awsmigrate/move.txtar",
		"gcp create-service-account":   "gcp_migrate.txtar",
		"gcp migrate":                  "gcp_migrate.txtar",
		"key remove":                   "rotate.txtar",
		"rotate rollback":              "rotate.txtar",
	}
}

// Each command that the program prints is run in a script: as it is printed, by the word hint, or as runOtherwise says.
func TestEachPrintedCommandIsRun(t *testing.T) {
	var scripts strings.Builder
	for _, pattern := range []string{"testdata/*.txtar", "testdata/*/*.txtar"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			scripts.Write(text)
		}
	}
	runs := func(command, script, form string) bool {
		return regexp.MustCompile(`(?m)^` + form + `keypost ` + regexp.QuoteMeta(command) + `($|[ '])`).MatchString(script)
	}
	commands := map[string]bool{}
	printed(t, func(_ string, words []string) {
		if len(words) > 1 && !strings.HasPrefix(words[1], "-") {
			commands[words[0]+" "+words[1]] = true
		}
	})
	for command := range commands {
		verb, _, _ := strings.Cut(command, " ")
		known := exists([]string{verb}) == nil // verify, watch: the second word is an argument
		if known {
			command = verb
		}
		if runs(command, scripts.String(), `hint \d+ '`) {
			continue
		}
		script, listed := runOtherwise()[command]
		text, err := os.ReadFile(filepath.Join("testdata", script))
		if !listed || err != nil || !runs(command, string(text), `(?:exec|exits \d+) `) {
			t.Errorf("keypost %s is printed, and no script runs it as it is printed: hint CODE 'keypost %s'", command, command)
		}
	}
}

// wordsOf returns the words of a cli.Command{…} literal, or of a hint that begins with a command in its text; nil for
// everything else. A word that is not a constant is "X".
func wordsOf(n ast.Node) []string {
	switch n := n.(type) {
	case *ast.CompositeLit:
		if name := nameOf(n.Type); name != "command" && name != "Command" {
			return nil
		}
		var words []string
		for _, e := range n.Elts {
			words = append(words, constant(e, "X"))
		}
		return words
	case *ast.CallExpr:
		if name := nameOf(n.Fun); name != "withHint" && name != "WithHint" || len(n.Args) < 2 {
			return nil
		}
		words := strings.Fields(strings.NewReplacer(",", " ", ";", " ").Replace(constant(n.Args[1], "")))
		if len(words) < 2 || words[0] != "keypost" {
			return nil
		}
		return words[1:]
	}
	return nil
}

// nameOf returns the last name of an expression: of cli.Command, Command; empty where it has none, or is cobra's.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if of, ok := e.X.(*ast.Ident); ok && of.Name == "cli" {
			return e.Sel.Name
		}
	}
	return ""
}

func constant(e ast.Expr, otherwise string) string {
	if lit, ok := e.(*ast.BasicLit); ok {
		if text, err := strconv.Unquote(lit.Value); err == nil {
			return text
		}
	}
	return otherwise
}

func exists(words []string) error {
	root := newRoot(&cli.Factory{})
	cmd, _, err := root.Find(words)
	cmd.InitDefaultHelpFlag()
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a command: %w", words, err)
	case slices.Contains(words, "--help"):
		return nil
	case cmd.HasSubCommands():
		return fmt.Errorf("%q is a group of commands", words)
	}
	for _, w := range words {
		if name, isFlag := strings.CutPrefix(w, "--"); isFlag && cmd.Flag(strings.SplitN(name, "=", 2)[0]) == nil {
			return fmt.Errorf("%s has no flag --%s", cmd.CommandPath(), name)
		}
	}
	return nil
}
