// Package commands finds every command that the documentation tells people to type, so that the program which each is
// for can be asked whether it takes it: keypost and keypostd in the tests beside their flags, helm, kubectl and aws in
// test/chart. Nobody lists commands by hand, so a new one cannot be forgotten.
package commands

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Command is one simple command: a program and its arguments, without its place in a pipe and without redirections.
type Command struct {
	Where   string   // file and line
	Words   []string // as the program gets them; what only a shell could expand stays as it is written
	Mention bool     // inline in a sentence, where "keypost verify" may stand for the command as such
	Run     bool     // in a block of README.md or docs/install.md that the tests run
	Stored  bool     // its document speaks of KEYPOST_STORE before it, so that --store may be left out
}

// String is the command as it is reported.
func (c Command) String() string { return c.Where + ": " + strings.Join(c.Words, " ") }

// Checkers says for each program that the documentation uses where its commands are checked.
func Checkers() map[string]string {
	return map[string]string{
		"keypost":        "cmd/keypost",
		"keypostd":       "cmd/keypostd",
		"keypost-signer": "cmd/keypost-signer",
		"helm":           "test/chart",
		"kubectl":        "test/chart",
		"oc":             "test/chart", // as kubectl, whose subcommands those in use are
		"aws":            "test/chart",
		"make":           "test/readme",
		"go":             "test/readme",
		"docker":         "test/readme", // its image has to be one that the release makes
		"cosign":         "test/readme", // likewise; cosign itself is not among the pinned tools
		"grep":           "test/readme", // what it looks for in a log has to be logged
		// Those of docs/platforms have to be of a form that their own documentation has.
		"kubeadm": "test/readme", "k3s": "test/readme", "rke2": "test/readme", "systemctl": "test/readme", "talosctl": "test/readme", "kops": "test/readme",
		"gcloud": "test/readme", "az": "test/readme", "xargs": "test/readme", // of provision/gcp and provision/azure, likewise
		"mkdir": "test/readme", "cat": "test/readme", "cp": "test/readme", "umask": "test/readme", "install": "test/readme", "rm": "test/readme",
	}
}

// All returns the commands of every file of documentation below root: Markdown, units, and the comments of the chart.
// The chart's notes are templates: render them and use Notes.
func All(root string) ([]Command, error) {
	var all []Command
	tree := os.DirFS(root)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "bin", "dist", "node_modules", "testdata"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		read := reader(name)
		if read == nil {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		found, err := read(name, string(text))
		afterStore(found, string(text))
		all = append(all, found...)
		return err
	})
	return all, err
}

// afterStore marks the commands that stand after the first line of their document that speaks of KEYPOST_STORE, or in it.
func afterStore(found []Command, text string) {
	before, _, says := strings.Cut(text, "KEYPOST_STORE")
	for i, c := range found {
		line, err := strconv.Atoi(c.Where[strings.LastIndex(c.Where, ":")+1:])
		found[i].Stored = says && err == nil && line > strings.Count(before, "\n")
	}
}

// For returns those commands of all that are for one of the programs.
func For(all []Command, programs ...string) []Command {
	var found []Command
	for _, c := range all {
		if slices.Contains(programs, c.Words[0]) {
			found = append(found, c)
		}
	}
	return found
}

func reader(name string) func(name, text string) ([]Command, error) {
	switch path.Ext(name) {
	case ".md":
		if name == "CHANGELOG.md" { // history: what it names may have gone since
			return nil
		}
		return Markdown
	case ".service":
		return unit
	case ".yaml", ".tpl", ".txt":
		if strings.HasPrefix(name, "charts/") {
			return func(name, text string) ([]Command, error) { return mentions(name, 1, text) }
		}
	}
	return nil
}

// languages of blocks; those of commands are true.
var languages = map[string]bool{"sh": true, "console": true, "text": false, "yaml": false, "json": false, "mermaid": false}

// Markdown returns the commands of fenced and indented blocks and of code in sentences.
func Markdown(name, text string) ([]Command, error) {
	var all []Command
	add := func(found []Command, err error) error {
		all = append(all, found...)
		return err
	}
	lines := strings.Split(text, "\n")
	inList := false
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		var err error
		switch language, fenced := strings.CutPrefix(strings.TrimSpace(line), "```"); {
		case fenced:
			end := i + 1
			for end < len(lines) && strings.TrimSpace(lines[end]) != "```" {
				end++
			}
			err = add(block(name, i+2, language, lines[i+1:min(end, len(lines))]))
			i = end
		case strings.HasPrefix(line, "    ") && !inList:
			end := i
			for end < len(lines) && strings.HasPrefix(lines[end], "    ") {
				end++
			}
			if body := strings.Join(lines[i:end], "\n"); isASCII(body) { // what has arrows is a drawing
				err = add(shell(name, i+1, body))
			}
			i = end - 1
		case strings.TrimSpace(line) != "":
			inList = listItem.MatchString(line) || inList && strings.HasPrefix(line, " ")
			end := i + 1 // of the paragraph: code in a sentence may go on in the next line
			for end < len(lines) && strings.TrimSpace(lines[end]) != "" && !strings.HasPrefix(lines[end], "```") && !strings.HasPrefix(lines[end], "    ") {
				inList = inList || listItem.MatchString(lines[end])
				end++
			}
			err = add(mentions(name, i+1, strings.Join(lines[i:end], "\n")))
			i = end - 1
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Notes returns the commands of a text for a terminal, in which they are the indented lines.
func Notes(name, text string) ([]Command, error) {
	var all []Command
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		if !strings.HasPrefix(lines[i], "  ") {
			continue
		}
		end := i + 1
		for end < len(lines) && strings.HasPrefix(lines[end], "  ") {
			end++
		}
		found, err := shell(name, i+1, strings.Join(lines[i:end], "\n"))
		if err != nil {
			return nil, err
		}
		all, i = append(all, found...), end-1
	}
	return all, nil
}

func block(name string, line int, language string, lines []string) ([]Command, error) {
	isCommand, known := languages[language]
	switch {
	case !known:
		return nil, fmt.Errorf("%s:%d: a block of %q; the tests know sh, console, text, yaml, json and mermaid", name, line, language)
	case !isCommand:
		for i, l := range lines {
			first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(l), "$ "), " ")
			if _, program := Checkers()[first]; program {
				return nil, fmt.Errorf("%s:%d: a command in a block of %s, which nobody checks", name, line+i, language)
			}
		}
		return nil, nil
	case language == "console":
		return console(name, line, lines)
	}
	found, err := shell(name, line, strings.Join(lines, "\n"))
	for i := range found {
		found[i].Run = name == "README.md" || name == "docs/install.md"
	}
	return found, err
}

// console takes what follows "$ ", with the lines that continue it; other lines are output.
func console(name string, line int, lines []string) ([]Command, error) {
	var script []string
	continued := false
	for i, l := range lines {
		text, prompted := strings.CutPrefix(l, "$ ")
		if i == 0 && !prompted {
			return nil, fmt.Errorf("%s:%d: a block of console does not begin with \"$ \"", name, line)
		}
		if !prompted && !continued {
			text = "" // keeps the numbers of the lines
		}
		continued = (prompted || continued) && strings.HasSuffix(l, `\`)
		script = append(script, text)
	}
	return shell(name, line, strings.Join(script, "\n"))
}

var listItem = regexp.MustCompile(`^\s*([-*]|\d+\.) `)

var inline = regexp.MustCompile("`([^`]+)`")

// mentions are the commands in sentences: code that begins with the name of a program.
func mentions(name string, line int, text string) ([]Command, error) {
	var all []Command
	for _, at := range inline.FindAllStringSubmatchIndex(text, -1) {
		code := strings.Join(strings.Fields(text[at[2]:at[3]]), " ")
		first, rest, _ := strings.Cut(code, " ")
		if _, program := Checkers()[first]; !program || rest == "" {
			continue
		}
		found, err := shell(name, line+strings.Count(text[:at[0]], "\n"), code)
		if err != nil {
			return nil, err
		}
		for j := range found {
			found[j].Mention = true
		}
		all = append(all, found...)
	}
	return all, nil
}

var assignment = regexp.MustCompile(`(?m)^# +([A-Z_]+)=(\S+(?: --\S+)*)$`)

// unit returns what a systemd unit starts, with the variables that its comments tell people to set.
func unit(name, text string) ([]Command, error) {
	var all []Command
	for _, m := range assignment.FindAllStringSubmatch(text, -1) {
		text = strings.NewReplacer("${"+m[1]+"}", "'"+m[2]+"'", "$"+m[1]+" ", m[2]+" ").Replace(text)
	}
	for i, line := range strings.Split(text, "\n") {
		_, command, found := strings.Cut(line, "/usr/local/bin/")
		if !found || !strings.HasPrefix(line, "Exec") {
			continue
		}
		words, err := shell(name, i+1, command)
		if err != nil {
			return nil, err
		}
		all = append(all, words...)
	}
	return all, nil
}

// shell returns the simple commands of a script, those in pipes and substitutions too.
func shell(name string, line int, script string) ([]Command, error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %w in\n%s", name, line, err, script)
	}
	var all []Command
	syntax.Walk(file, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			c := Command{Where: fmt.Sprintf("%s:%d", name, line-1+int(call.Pos().Line()))}
			for _, w := range call.Args {
				c.Words = append(c.Words, value(w))
			}
			all = append(all, c)
			all = append(all, nested(c)...)
		}
		return true
	})
	return all, nil
}

// nested is the command that another one runs, as "kubectl exec POD -- keypost …" does.
func nested(c Command) []Command {
	i := slices.Index(c.Words, "--")
	if i < 0 || i+1 == len(c.Words) {
		return nil
	}
	words := slices.Clone(c.Words[i+1:])
	words[0] = path.Base(words[0])
	if _, program := Checkers()[words[0]]; !program {
		return nil
	}
	return []Command{{Where: c.Where, Words: words}}
}

// value is a word without its quotes.
func value(w *syntax.Word) string {
	var b strings.Builder
	for _, p := range w.Parts {
		part(&b, p)
	}
	return b.String()
}

func part(b *strings.Builder, p syntax.WordPart) {
	switch p := p.(type) {
	case *syntax.Lit:
		b.WriteString(strings.ReplaceAll(p.Value, "\\\n", ""))
	case *syntax.SglQuoted:
		b.WriteString(p.Value)
	case *syntax.DblQuoted:
		for _, inner := range p.Parts {
			part(b, inner)
		}
	default: // a variable, say: the program gets something there
		_ = syntax.NewPrinter().Print(b, p)
	}
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 127 })
}
