package rest

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/keypost/keypost/internal/text"
)

// written returns an error for an answer with 200 from which it does not follow that a write was made. What stands between here and Google
// may answer {}, or an error: who believed that would report what is not there.
func (k Call) written(answer json.RawMessage) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(answer, &fields) != nil || fields == nil {
		return k.without("an object")
	}
	if said, failed := fields["error"]; failed {
		return fmt.Errorf("%s was answered with 200 and an error, so nothing says that it was made: see what is between here and Google, and run this again (%s)",
			k, text.Sentence(string(said), 200))
	}
	if k.Lacks != nil && k.Method != http.MethodDelete { // whether a thing is gone is read
		if what := k.Lacks(answer); what != "" {
			return k.without(what)
		}
	}
	return nil
}

// without is the error for an answer that lacks something which Google's has.
func (k Call) without(what string) error {
	return fmt.Errorf("%s was answered without %s, so nothing says that it was made: see what is between here and Google, and run this again", k, what)
}

// Named returns what to ask of an answer that is about a thing, by one of its fields: "name", "projects/my-project/roles/x".
func Named(field, value string) func(answer []byte) string {
	return func(answer []byte) string {
		var said map[string]json.RawMessage
		var got string
		if json.Unmarshal(answer, &said) != nil || json.Unmarshal(said[field], &got) != nil || got != value {
			return fmt.Sprintf("the %s %s", field, value)
		}
		return ""
	}
}
