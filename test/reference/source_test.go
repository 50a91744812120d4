// Package reference makes docs/reference/metrics.md and log.md from the source.
package reference

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// source is what a package says.
type source struct {
	dir       string
	files     []*ast.File
	functions map[string]*ast.FuncDecl // by name; of methods of one name, any
	constants map[string]ast.Expr      // declared anywhere, also in functions
}

func parse(t *testing.T, dir string) *source {
	t.Helper()
	s := &source{dir: dir, functions: map[string]*ast.FuncDecl{}, constants: map[string]ast.Expr{}}
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s has no source: %v", dir, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.files = append(s.files, file)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				s.functions[n.Name.Name] = n
			case *ast.ValueSpec:
				for i, v := range n.Values {
					s.constants[n.Names[i].Name] = v
				}
			}
			return true
		})
	}
	return s
}

// text returns the value of a constant expression of strings; ok is false for everything else.
func (s *source) text(e ast.Expr) (value string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		v, err := strconv.Unquote(e.Value)
		return v, err == nil
	case *ast.BinaryExpr:
		a, okA := s.text(e.X)
		b, okB := s.text(e.Y)
		if !okA || !okB {
			return "", false
		}
		return constant.StringVal(constant.BinaryOp(constant.MakeString(a), e.Op, constant.MakeString(b))), true
	case *ast.Ident:
		if v, declared := s.constants[e.Name]; declared {
			return s.text(v)
		}
	}
	return "", false
}

// texts returns the elements of a []string{…}.
func (s *source) texts(e ast.Expr) (all []string) {
	list, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, x := range list.Elts {
		if v, ok := s.text(x); ok {
			all = append(all, v)
		}
	}
	return all
}

// called returns the name of a called function or method, and before it that of a package or the last part of what it is called on.
func called(c *ast.CallExpr) (of, name string) {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return "", f.Name
	case *ast.SelectorExpr:
		switch x := f.X.(type) {
		case *ast.Ident:
			return x.Name, f.Sel.Name
		case *ast.SelectorExpr:
			return x.Sel.Name, f.Sel.Name
		case *ast.CallExpr:
			_, of = called(x)
			return of, f.Sel.Name
		}
	}
	return "", ""
}

// sources returns the directories below root whose packages import path, tests apart.
func sources(t *testing.T, path string) (dirs []string) {
	t.Helper()
	for _, top := range []string{"cmd", "internal", "issuer", "keystore", "provision"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(name string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, i := range file.Imports {
				dir, _ := filepath.Rel(root, filepath.Dir(name))
				if i.Path.Value == strconv.Quote(path) && (len(dirs) == 0 || dirs[len(dirs)-1] != dir) {
					dirs = append(dirs, dir)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return dirs
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func cell(s string) string { return strings.NewReplacer("|", "\\|", "<", "\\<", "*", "\\*").Replace(s) }

func codes(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}
