// Package strictjson finds what two readers of one JSON text may read differently.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/keypost/keypost/internal/text"
	kjson "sigs.k8s.io/json"
)

// maxName bounds what an error quotes of a name.
const maxName = 400

// Check refuses JSON that two relying parties may read differently. Of a member that occurs twice some take the
// first and some the last; some take "KEYS" for "keys" and some do not. Anyone who publishes such a document can show one
// key to anyone who checks and another to anyone who trusts. known are the names that a reader looks for.
func Check(data []byte, known []string) error {
	spelling := map[string]string{}
	for _, name := range known {
		spelling[fold(name)] = name
	}
	w := memberWalk{decoder: json.NewDecoder(bytes.NewReader(data)), spelling: spelling}
	w.decoder.UseNumber() // a number that no float64 holds is valid JSON, and must not end the walk
	for {
		token, err := w.decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errors.New("it is not valid JSON")
		}
		if err := w.step(token); err != nil {
			return err
		}
	}
}

// Decode decodes JSON. Names of members are case-sensitive, and a duplicate is an error: else two readers of one text
// may see two different keys in it (RFC 8725, section 2.4).
func Decode(data []byte, into any) error {
	again, err := kjson.UnmarshalStrict(data, into, kjson.DisallowDuplicateFields)
	if err != nil {
		return err
	}
	if len(again) > 0 {
		return again[0]
	}
	return nil
}

// memberWalk reads a JSON text token by token.
type memberWalk struct {
	decoder  *json.Decoder
	spelling map[string]string // of the known names, by folded name
	open     []container       // the objects and lists around the next token
}

// container is an object or a list that has been entered.
type container struct {
	names map[string]string // the members so far, by folded name; nil in a list
	value bool              // in an object: the next token is a value, not a name
}

func (w *memberWalk) step(token json.Token) error {
	switch token {
	case json.Delim('{'):
		w.open = append(w.open, container{names: map[string]string{}})
		return nil
	case json.Delim('['):
		w.open = append(w.open, container{})
		return nil
	case json.Delim('}'), json.Delim(']'):
		w.open = w.open[:len(w.open)-1]
	}
	if len(w.open) == 0 {
		return nil
	}
	in := &w.open[len(w.open)-1]
	name, isString := token.(string)
	if in.names == nil || in.value || !isString {
		in.value = false
		return nil
	}
	in.value = true
	return w.enter(in, name)
}

func (w *memberWalk) enter(in *container, name string) error {
	folded := fold(name)
	other, twice := in.names[folded]
	known, isKnown := w.spelling[folded]
	in.names[folded] = name
	switch {
	case twice && other == name:
		return fmt.Errorf("it has the member %q twice in one object, and relying parties disagree on which of them counts", text.OneLine(name, maxName))
	case twice:
		return fmt.Errorf("it has the members %q and %q in one object, and relying parties disagree on whether they are the same", text.OneLine(other, maxName), text.OneLine(name, maxName))
	case isKnown && known != name:
		return fmt.Errorf("it has the member %q, which some relying parties read as %q and others ignore", text.OneLine(name, maxName), known)
	}
	return nil
}

// fold maps names that differ in case only to one: each character becomes the smallest of those that count as equal.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		smallest := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			smallest = min(smallest, other)
		}
		return smallest
	}, name)
}
