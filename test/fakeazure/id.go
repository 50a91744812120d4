package fakeazure

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// guid makes a GUID of what it is to stand for, so that the same names give the same IDs in every run.
func guid(parts ...string) string {
	b := sha256.Sum256([]byte(strings.ToLower(strings.Join(parts, "\x00"))))
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// bare is a GUID as some sentences have it.
func bare(guid string) string { return strings.ToLower(strings.ReplaceAll(guid, "-", "")) }

// within reports whether an ID is at a scope or below it. Neither's letter case counts.
func within(id, scope string) bool {
	id, scope = strings.ToLower(id), strings.TrimSuffix(strings.ToLower(scope), "/")
	return id == scope || strings.HasPrefix(id, scope+"/")
}

// idMembers are the members of answers that hold IDs.
var idMembers = map[string]bool{"id": true, "scope": true, "roleDefinitionId": true, "principalId": true, "assignableScopes": true}

// varied is an answer whose IDs are in another letter case, of one of three sorts, as Azure's come back in one or another.
func varied(v any, sort int) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if text, ok := value.(string); ok && idMembers[name] {
				v[name] = recased(text, sort)
			} else if list, ok := value.([]any); ok && idMembers[name] {
				for i := range list {
					if text, ok := list[i].(string); ok {
						list[i] = recased(text, sort)
					}
				}
			} else {
				v[name] = varied(value, sort)
			}
		}
	case []any:
		for i := range v {
			v[i] = varied(v[i], sort)
		}
	}
	return v
}

func recased(id string, sort int) string {
	switch sort % 3 {
	case 1:
		return strings.ToLower(id)
	case 2:
		return strings.ToUpper(id)
	}
	return id
}
