package reference

import (
	"cmp"
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/golden"
)

const logPreface = `# Log messages

Made from the source by ` + "`" + `KEYPOST_UPDATE=1 go test ./test/reference -run TestLogReference` + "`" + `: edit that.

keypostd, ` + "`" + `keypost mirror` + "`" + `, ` + "`" + `keypost watch` + "`" + ` and ` + "`" + `keypost enroll` + "`" + ` write one line of JSON per change of state to standard error: ` + "`" + `level` + "`" + `, ` + "`" + `ts` + "`" + `, ` + "`" + `msg` + "`" + `, perhaps ` + "`" + `logger` + "`" + `,
and the fields below. A message is constant, so that it can be searched for; what differs is in the fields, which are left out where they say
nothing. "…" stands for what is served meanwhile. Where a message tells of trouble, another one tells of its end. Nothing is logged per
request, unless ` + "`" + `log.access` + "`" + ` asks for it.

Act at once on ` + "`" + `a key is published that the store does not know` + "`" + `, of the watch; soon on ` + "`" + `key set rejected; its last good version, if any, stays served` + "`" + `.

`

// message is a line of the log as the source has it.
type message struct {
	level, text string
	fields      []string
}

// loggers are the programs, with the packages that write their log.
var loggers = []struct {
	title string
	dirs  []string
}{
	{"keypostd", []string{"cmd/keypostd", "issuer", "issuer/listen", "internal/admin"}},
	{"keypost mirror", []string{"cmd/keypost/internal/mirrorcmd", "keystore/replicate", "cmd/keypost/internal/service", "internal/admin"}},
	{"keypost watch", []string{"cmd/keypost/internal/watchcmd", "issuer/verify/watch", "cmd/keypost/internal/service", "internal/admin"}},
	{"keypost-signer", []string{"cmd/keypost-signer", "issuer/signer", "internal/admin"}},
	{"keypost enroll", []string{"cmd/keypost/internal/enrollcmd", "cmd/keypost/internal/service", "internal/admin"}},
}

// snake is the form of fields, by which queries name them.
var snake = regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)

// TestLogReference: docs/reference/log.md has every message that the source logs.
func TestLogReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(logPreface)
	packages := sources(t, "go.uber.org/zap")
	for _, l := range loggers {
		fmt.Fprintf(&b, "## %s\n\n| level | message | fields |\n|---|---|---|\n", l.title)
		all := messagesOf(t, l.dirs)
		if len(all) < 8 {
			t.Errorf("%s: only %d messages were found", l.title, len(all))
		}
		for _, m := range all {
			fmt.Fprintf(&b, "| %s | `%s` | %s |\n", m.level, cell(m.text), codes(m.fields))
			for _, field := range m.fields {
				if !snake.MatchString(field) {
					t.Errorf("%s: the field %q of %q is not in snake_case", l.title, field, m.text)
				}
			}
		}
		b.WriteString("\n")
		packages = slices.DeleteFunc(packages, func(dir string) bool { return slices.Contains(l.dirs, dir) })
	}
	if len(packages) > 0 {
		t.Errorf("%q log as well: say here for which program", packages)
	}
	golden.Same(t, root+"/docs/reference/log.md", strings.TrimRight(b.String(), "\n")+"\n")
}

// messagesOf returns what packages log: the most serious first, then by text.
func messagesOf(t *testing.T, dirs []string) (all []message) {
	t.Helper()
	for _, dir := range dirs {
		s := parse(t, dir)
		for _, f := range s.files {
			for _, d := range f.Decls {
				if function, ok := d.(*ast.FuncDecl); ok && function.Body != nil {
					all = append(all, s.messages(t, function)...)
				}
			}
		}
	}
	order := []string{"error", "warn", "info", "info or debug", "debug"}
	slices.SortFunc(all, func(a, b message) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.level), slices.Index(order, b.level)), cmp.Compare(a.text, b.text))
	})
	return slices.CompactFunc(all, func(a, b message) bool { return a.text == b.text && a.level == b.level })
}

// messages returns what a function logs: log.Warn("…", fields…), log.Log(level, "…", …), the batch's b.log(level, "…", name, …), and the
// lines of a condition of the watch or of a trouble of the mirror.
func (s *source) messages(t *testing.T, function *ast.FuncDecl) (all []message) {
	t.Helper()
	ast.Inspect(function, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if name, ok := n.Type.(*ast.Ident); ok && name.Name == "lines" && len(n.Elts) == 3 {
				of := s.functions["logChanges"]
				begins, _ := s.text(n.Elts[1])
				ends, _ := s.text(n.Elts[2])
				all = append(all, message{level(n.Elts[0], function), begins, s.fields(of, of)},
					message{"info", ends, slices.DeleteFunc(s.fields(of, of), func(f string) bool { return f == "evidence" || f == "at" })})
			} else if ok && name.Name == "trouble" {
				for _, e := range n.Elts {
					pair := e.(*ast.KeyValueExpr)
					switch text, _ := s.text(pair.Value); fmt.Sprint(pair.Key) {
					case "begins":
						all = append(all, message{"warn", text + "; …", []string{"error"}})
					case "ends":
						all = append(all, message{"info", text, nil})
					}
				}
			}
		case *ast.CallExpr:
			of, name := called(n)
			if !strings.EqualFold(of, "log") && name != "log" {
				return true
			}
			args, m := n.Args, message{level: strings.ToLower(name)}
			switch name {
			case "Info", "Warn", "Error", "Debug":
			case "Log", "log":
				if len(args) < 2 {
					return true
				}
				m.level, args = level(args[0], function), args[1:]
			default:
				return true
			}
			for _, a := range args[1:] {
				m.fields = append(m.fields, s.fields(a, function)...)
			}
			if name == "log" {
				m.fields = append([]string{"key_set"}, m.fields...)
			}
			texts := s.messageTexts(args[0])
			if len(texts) == 0 && !forwards(args[0]) {
				t.Errorf("%s.%s logs a message that this test does not find", s.dir, function.Name.Name)
			}
			for _, m.text = range texts {
				all = append(all, m)
			}
		}
		return true
	})
	return all
}

// forwards reports whether a message is a parameter or a part of a value, which is found where that is made.
func forwards(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "message"
	case *ast.SelectorExpr:
		return slices.Contains([]string{"begins", "end", "ends"}, e.Sel.Name)
	case *ast.BinaryExpr:
		return forwards(e.X)
	}
	return false
}

// messageTexts returns a constant message, or the constants that a function returns.
func (s *source) messageTexts(e ast.Expr) (all []string) {
	if v, ok := s.text(e); ok {
		return []string{v}
	}
	if c, ok := e.(*ast.CallExpr); ok {
		_, name := called(c)
		if f := s.functions[name]; f != nil {
			ast.Inspect(f, func(n ast.Node) bool {
				if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) == 1 {
					if v, ok := s.text(r.Results[0]); ok {
						all = append(all, v)
					}
				}
				return true
			})
		}
	}
	return all
}

// level returns the level that an expression such as zap.WarnLevel stands for, or all that a variable of a function may have.
func level(e ast.Expr, function *ast.FuncDecl) string {
	var found []string
	add := func(e ast.Expr) {
		if x, ok := e.(*ast.SelectorExpr); ok && strings.HasSuffix(x.Sel.Name, "Level") {
			found = append(found, strings.ToLower(strings.TrimSuffix(x.Sel.Name, "Level")))
		}
	}
	if v, ok := e.(*ast.Ident); ok {
		assigned(v.Name, function, add)
	} else {
		add(e)
	}
	return strings.Join(found, " or ")
}

// assigned calls visit with what a function assigns to a variable.
func assigned(name string, function *ast.FuncDecl, visit func(ast.Expr)) {
	ast.Inspect(function, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, l := range a.Lhs {
				if v, ok := l.(*ast.Ident); ok && v.Name == name {
					visit(a.Rhs[i])
				}
			}
		}
		return true
	})
}

// fields returns the names of the zap fields that a part of a function makes, itself, in a variable, or in a function that it calls.
func (s *source) fields(part ast.Node, function *ast.FuncDecl) (names []string) {
	seen := map[string]bool{}
	var look func(ast.Node, *ast.FuncDecl)
	look = func(part ast.Node, function *ast.FuncDecl) {
		ast.Inspect(part, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				of, name := called(n)
				switch {
				case of == "zap" && name == "Error":
					names = append(names, "error")
				case of == "zap" && len(n.Args) > 0:
					if field, ok := s.text(n.Args[0]); ok {
						names = append(names, field)
					}
				case s.functions[name] != nil && returnsFields(s.functions[name]) && !seen[name]:
					seen[name] = true
					look(s.functions[name].Body, s.functions[name])
				}
			case *ast.Ident:
				if key := function.Name.Name + "." + n.Name; part != function && !seen[key] {
					seen[key] = true
					assigned(n.Name, function, func(e ast.Expr) { look(e, function) })
				}
			}
			return true
		})
	}
	look(part, function)
	var once []string
	for _, n := range names {
		if !slices.Contains(once, n) {
			once = append(once, n)
		}
	}
	return once
}

func returnsFields(f *ast.FuncDecl) bool {
	if f.Type.Results == nil {
		return false
	}
	for _, r := range f.Type.Results.List {
		e := r.Type
		if list, ok := e.(*ast.ArrayType); ok {
			e = list.Elt
		}
		if x, ok := e.(*ast.SelectorExpr); ok && x.Sel.Name == "Field" {
			return true
		}
	}
	return false
}
