package keystore

import (
	"encoding"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// schema is as much of an OpenAPI schema as the custom resource's definition uses for the form of a document.
type schema struct {
	Type       string            `json:"type"`
	Required   []string          `json:"required"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
}

// members returns "path type" for each member below path, and "path required" for one that must be there.
func (s schema) members(path string) (lines []string) {
	if s.Items != nil {
		return append(s.Items.members(path+"[]"), path+"[] "+s.Items.Type)
	}
	for _, name := range s.Required {
		lines = append(lines, path+"."+name+" required")
	}
	for name, p := range s.Properties {
		lines = append(append(lines, p.members(path+"."+name)...), path+"."+name+" "+p.Type)
	}
	return lines
}

var textForm = reflect.TypeFor[encoding.TextUnmarshaler]()

// schemaOf returns the schema of a Go type, by its JSON tags. Required is what is always written.
func schemaOf(t *testing.T, typ reflect.Type) schema {
	t.Helper()
	if typ.Kind() == reflect.Pointer {
		return schemaOf(t, typ.Elem())
	}
	switch kind := typ.Kind(); {
	case kind == reflect.String, typ == reflect.TypeFor[Duration](), reflect.PointerTo(typ).Implements(textForm):
		return schema{Type: "string"}
	case kind == reflect.Bool:
		return schema{Type: "boolean"}
	case kind == reflect.Int64:
		return schema{Type: "integer"}
	case kind == reflect.Slice:
		items := schemaOf(t, typ.Elem())
		return schema{Type: "array", Items: &items}
	case kind != reflect.Struct:
		t.Fatalf("%s has no form in a document", typ)
	}
	s := schema{Type: "object", Properties: map[string]schema{}}
	for i := range typ.NumField() {
		if typ.Field(i).Anonymous { // of an Event, whose other members are read and never written
			continue
		}
		name, omit, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			t.Errorf("%s.%s has no name in a document", typ, typ.Field(i).Name)
		}
		if omit == "" {
			s.Required = append(s.Required, name)
		}
		s.Properties[name] = schemaOf(t, typ.Field(i).Type)
	}
	return s
}

// The chart's definition of the custom resource has every member of a document, with its type, and no others: the API
// server keeps a member that its definition does not know, but checks nothing of it. What it requires is always written.
func TestDefinitionHasEveryMember(t *testing.T) {
	data, err := os.ReadFile("../charts/keypost/files/keysets.keypost.dev.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &definition); err != nil {
		t.Fatal(err)
	}
	if v := definition.Spec.Versions; len(v) != 1 || "keypost.dev/"+v[0].Name != APIVersion {
		t.Fatalf("the definition has the versions %v, want that of %s", v, APIVersion)
	}
	defined := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].members("spec")
	written := schemaOf(t, reflect.TypeFor[body]()).members("spec")
	if len(written) < 50 {
		t.Errorf("a document has %d members: %q", len(written), written)
	}
	for _, line := range written {
		if !slices.Contains(defined, line) && !strings.HasSuffix(line, " required") {
			t.Errorf("a document has %q, and the definition does not", line)
		}
	}
	for _, line := range defined {
		if !slices.Contains(written, line) {
			t.Errorf("the definition has %q, and no document does", line)
		}
	}
}
