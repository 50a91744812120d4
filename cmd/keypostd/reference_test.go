package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/golden"
)

const configurationPreface = `# Configuration of keypostd

Made from cmd/keypostd/config.go by ` + "`KEYPOST_UPDATE=1 go test ./cmd/keypostd -run TestConfigurationReference`" + `: edit that.

`

// configurations are whole files. Each is taken by the program.
var configurations = []struct{ title, text string }{
	{"The least: certificate files", `dir: /var/lib/keypost
issuerURLs: ["https://oidc.example.com/{name}"]
listen:
  tls: {mode: files, files: [{cert: /etc/keypost/tls.crt, key: /etc/keypost/tls.key}]}
`},
	{"A certificate from Let's Encrypt, ordered on port 443", `dir: /var/lib/keypost
issuerURLs: ["https://oidc.example.com/{name}"]
listen:
  address: ":443"
  tls: {mode: acme, acme: {cache: /var/lib/keypost-acme, acceptTerms: true}}
`},
	{"Behind a proxy that ends TLS", `dir: /var/lib/keypost
issuerURLs: ["https://{name}.oidc.example.com"]
listen:
  address: "127.0.0.1:8080"
  tls: {mode: off}
`},
	{"Behind a CDN, which shows a secret", `dir: /var/lib/keypost
issuerURLs: ["https://oidc.example.com/{name}"]
hostAliases: {origin.oidc.example.com: oidc.example.com}
listen:
  tls: {mode: files, files: [{cert: /etc/keypost/tls.crt, key: /etc/keypost/tls.key}]}
  shield: {header: X-Origin-Secret, secretFiles: [/etc/keypost/shield-old, /etc/keypost/shield-new]}
`},
}

// TestConfigurationReference: docs/reference/configuration.md says of every setting what its comment says, which has the default
// that the program has.
func TestConfigurationReference(t *testing.T) {
	r := reference{t: t, comments: comments(t, "config.go")}
	r.WriteString(configurationPreface)
	r.WriteString(r.comments["config"].own + "\n\n`keypostd --config FILE --check` prints the configuration with its defaults, and what would be served.\n\n")
	for _, c := range configurations {
		if _, err := parseConfig([]byte(c.text)); err != nil {
			t.Errorf("%s: %v", c.title, err)
		}
		fmt.Fprintf(&r, "%s:\n\n```yaml\n%s```\n\n", c.title, c.text)
	}
	r.settings("", reflect.ValueOf(defaultConfig()), 2)
	r.WriteString("## Defaults\n\nWhat is not set is as here.\n\n```yaml\n")
	defaults, err := yaml.Marshal(defaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	r.Write(defaults)
	r.WriteString("```\n")
	golden.Same(t, "../../docs/reference/configuration.md", r.String())
}

type reference struct {
	strings.Builder
	t        *testing.T
	comments map[string]structComments
	all      []setting
}

type setting struct{ path, text string }

type structComments struct {
	own    string
	fields map[string]string
}

// settings writes a section for each field of a structure, and below it those of its own fields.
func (r *reference) settings(path string, v reflect.Value, depth int) {
	of := r.comments[v.Type().Name()]
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		words, found := of.fields[field.Name]
		if words = strings.TrimPrefix(words, field.Name+" "); found && words != of.fields[field.Name] {
			words = "`" + name + "` " + words
		}
		inner, form := r.form(field.Type)
		if inner.IsValid() && words == "" {
			words = strings.TrimSpace(r.comments[inner.Type().Name()].own)
		}
		at := path + name
		if words == "" {
			r.t.Errorf("%s has no comment", at)
		}
		if !field.Type.AssignableTo(reflect.TypeFor[map[string]string]()) {
			r.agrees(at, v.Field(i), words)
		}
		join := ". "
		if first, _ := utf8.DecodeRuneInString(words); unicode.IsLower(first) {
			join = ": "
		}
		fmt.Fprintf(r, "%s %s\n\n%s%s%s\n\n", strings.Repeat("#", min(depth, 4)), at, form, join, sentence(words))
		r.all = append(r.all, setting{at, form + join + words})
		if inner.IsValid() {
			if f := v.Field(i); f.Kind() == reflect.Struct {
				inner = f // with its defaults
			}
			if field.Type.Kind() == reflect.Slice {
				at += "[]"
			}
			r.settings(at+".", inner, depth+1)
		}
	}
}

// form names the type of a setting. A structure has settings of its own.
func (r *reference) form(t reflect.Type) (inner reflect.Value, form string) {
	switch {
	case t == reflect.TypeFor[keystore.Duration]() || t == reflect.TypeFor[*keystore.Duration]():
		return inner, "Duration"
	case t == reflect.TypeFor[*bool]():
		return inner, "Boolean"
	case t.Kind() == reflect.Pointer:
		return reflect.Zero(t.Elem()), "Settings, left out if not wanted"
	case t.Kind() == reflect.Struct:
		return reflect.Zero(t), "Settings"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return reflect.Zero(t.Elem()), "List of settings"
	case t.Kind() == reflect.Slice:
		return inner, "List of strings"
	case t.Kind() == reflect.Map:
		return inner, "Map of strings"
	case t.Kind() == reflect.Bool:
		return inner, "Boolean"
	case t.Kind() == reflect.Int:
		return inner, "Number"
	case t.Kind() == reflect.String:
		return inner, "String"
	}
	r.t.Errorf("a setting of type %s", t)
	return inner, ""
}

// agrees fails the test unless the comment says which default a setting has.
func (r *reference) agrees(at string, v reflect.Value, words string) {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.IsZero() || v.Kind() == reflect.Struct {
		return
	}
	if is := fmt.Sprint(v.Interface()); !strings.Contains(words, is) {
		r.t.Errorf("the comment of %s does not say that the default is %s", at, is)
	}
}

// sentence makes one of a comment, with what is to be typed marked as code.
func sentence(s string) string {
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return regexp.MustCompile(`"[^" ]*[{/:][^" ]*"|\{[a-z.]+: [a-z.]+\}`).ReplaceAllString(s, "`$0`")
}

// comments returns those of the structures in a file.
func comments(t *testing.T, name string) map[string]structComments {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]structComments{}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		spec := g.Specs[0].(*ast.TypeSpec)
		fields, ok := spec.Type.(*ast.StructType)
		if !ok {
			continue
		}
		of := structComments{fields: map[string]string{}}
		own := prose(g.Doc)
		if first, rest, _ := strings.Cut(own, " "); first == spec.Name.Name {
			own = rest
		}
		of.own = strings.Replace(own, "is keypostd's configuration file", "keypostd's configuration file", 1)
		for _, f := range fields.Fields.List {
			of.fields[f.Names[0].Name] = prose(f.Doc) + prose(f.Comment)
		}
		all[spec.Name.Name] = of
	}
	return all
}

func prose(c *ast.CommentGroup) string {
	return strings.Join(strings.Fields(c.Text()), " ")
}

// TestConfigurationsInDocs: whole configurations on the pages of docs/ are taken by the program.
func TestConfigurationsInDocs(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?ms)^```yaml\n(dir: .*?)^```$").FindAllStringSubmatch(string(text), -1) {
			found++
			if _, err := parseConfig([]byte(m[1])); err != nil {
				t.Errorf("%s: %v in\n%s", page, err, m[1])
			}
		}
	}
	if found < 2 {
		t.Errorf("only %d configurations were found", found)
	}
}
