package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/keypost/keypost/internal/text"
)

// mistyped returns a sentence for each setting below path whose value is of another kind than t wants: a text where a list belongs, or
// a word in quotes where true does. What a type reads by itself it also refuses in its own words.
func mistyped(path string, value json.RawMessage, t reflect.Type) []string {
	value = bytes.TrimSpace(value)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if string(value) == "null" || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		var members map[string]json.RawMessage
		if json.Unmarshal(value, &members) != nil {
			return []string{wrongKind(path, value, "settings by their names, such as "+exampleOf(t))}
		}
		var wrong []string
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if of := memberType(t, name); of != nil {
				wrong = append(wrong, mistyped(strings.TrimPrefix(path+"."+name, "."), members[name], of)...)
			}
		}
		return wrong
	case reflect.Slice:
		var entries []json.RawMessage
		if json.Unmarshal(value, &entries) != nil {
			return []string{wrongKind(path, value, "a list, also of one: ["+listed(value, t.Elem())+"]")}
		}
		var wrong []string
		for i, e := range entries {
			wrong = append(wrong, mistyped(fmt.Sprintf("%s[%d]", path, i), e, t.Elem())...)
		}
		return wrong
	case reflect.Bool:
		if value[0] != 't' && value[0] != 'f' {
			return []string{wrongKind(path, value, "true or false, without quotes")}
		}
	case reflect.Int:
		if _, err := strconv.Atoi(string(value)); err != nil {
			return []string{wrongKind(path, value, "a whole number, without quotes")}
		}
	case reflect.String:
		if value[0] != '"' {
			return []string{wrongKind(path, value, "text; put it in quotes if it is meant so")}
		}
	}
	return nil
}

// memberType returns the type of a member of a mapping, or nil for one that is unknown.
func memberType(t reflect.Type, name string) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	for f := range t.Fields() {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return f.Type
		}
	}
	return nil
}

func wrongKind(path string, value json.RawMessage, want string) string {
	kind := "a number"
	switch value[0] {
	case '"':
		kind = "text"
	case '{':
		kind = "a mapping"
	case '[':
		kind = "a list"
	case 't', 'f':
		kind = "true or false"
	}
	if path == "" {
		path = "the whole of it"
	}
	return fmt.Sprintf("%s is %s; it must be %s", path, kind, want)
}

// listed returns what to write between the brackets of a list that was given as a single value.
func listed(value json.RawMessage, t reflect.Type) string {
	var s string
	if t.Kind() == reflect.String && json.Unmarshal(value, &s) == nil {
		return strconv.Quote(text.OneLine(s, 200))
	}
	if t.Kind() == reflect.String {
		return "…"
	}
	return exampleOf(t)
}

// exampleOf returns the shape of a mapping: its first settings, without their values.
func exampleOf(t reflect.Type) string {
	if t.Kind() == reflect.Map {
		return "{origin.oidc.example.com: oidc.example.com}"
	}
	var names []string
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, tag+": …")
	}
	return "{" + strings.Join(names[:min(2, len(names))], ", ") + "}"
}
