package keystore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// Bounds on the shape of a document. The YAML reader recurses and takes a time that grows with the square of the depth,
// so that they are checked on the text, before anything else looks at it.
const (
	maxDepth  = 64      // lists and objects in each other; a key set has 6
	maxOpen   = 256     // brackets of which the text does not show plainly that they are closed again
	maxTokens = 200_000 // lines, commas and colons; the largest key set has about half of it
	maxAnchor = 64      // anchors: a chain of aliases makes depth too
)

var (
	anchor = regexp.MustCompile(`(?:^|[\s\[{,])&`)
	// tag matches what can name the type !!binary, which hides text from every search.
	tag = regexp.MustCompile(`(?m)(?:^|[\s\[{,:])!(?:!|<)[0-9A-Za-z%]|^%`)
)

// checkShape bounds what it costs to read data, in one pass and without building anything.
func checkShape(data []byte) error {
	if bytes.Count(data, []byte("\n"))+bytes.Count(data, []byte(","))+bytes.Count(data, []byte(":")) > maxTokens {
		return fmt.Errorf("it has more than %d lines, commas and colons", maxTokens)
	}
	if isJSON(data) {
		return checkDepth(data)
	}
	switch {
	case openBrackets(data) > maxOpen:
		return fmt.Errorf("it has more than %d brackets in each other, or without their partner; write it as JSON if they are text", maxOpen)
	case compactDepth(data) > maxDepth:
		return fmt.Errorf("its lists are nested deeper than %d", maxDepth)
	case bytes.IndexByte(data, '&') >= 0 && len(anchor.FindAllIndex(data, maxAnchor+1)) > maxAnchor:
		return fmt.Errorf("it has more than %d YAML anchors", maxAnchor)
	case bytes.ContainsAny(data, "!%") && tag.Match(data):
		return errors.New("it has a YAML tag (!!binary and the like) or directive; write the value without one")
	}
	return nil
}

func isJSON(data []byte) bool {
	text := bytes.TrimLeft(data, " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[') && json.Valid(text)
}

// checkDepth bounds the depth of valid JSON.
func checkDepth(data []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("it is nested deeper than %d", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// openBrackets returns at least how deep the flow collections of a YAML text are nested. Only the YAML reader knows
// which brackets are structure, so that every opening one counts. A closing one counts against it only if the text
// between the two is plain enough to be sure: once an opening bracket is structure, what follows it is read here as the
// reader does. Whatever this does not know leaves the open brackets counted for good, as are brackets in quotes.
func openBrackets(text []byte) int {
	f := flow{text: text}
	for f.at < len(text) && f.stray+f.open <= maxOpen {
		if f.open == 0 {
			skip := bytes.IndexAny(text[f.at:], "[{")
			if skip < 0 {
				break
			}
			f.at += skip
		}
		f.next()
	}
	return f.stray + f.open
}

// compactDepth returns the most lists and keys that begin on one line ("- - - x"), which is depth without indentation.
func compactDepth(text []byte) (most int) {
	for line := range bytes.Lines(text) {
		n := 0
		for i := 0; i < len(line) && bytes.IndexByte([]byte(" \t-?"), line[i]) >= 0; i++ {
			if line[i] == '-' || line[i] == '?' {
				n++
			}
		}
		if n > most && !bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("--")) { // a rule in a text
			most = n
		}
	}
	return most
}

type flow struct {
	text        []byte
	at          int
	stray, open int
	value       bool // a value stands before at, so that no quote can begin there
}

func (f *flow) next() {
	c := f.text[f.at]
	switch {
	case c == '[' || c == '{':
		f.open++
		f.value = false
	case c == ']' || c == '}':
		f.open--
		f.value = true
	case c == ' ' || c == '\t' || c == '\r' || c == '\n':
	case c == ',' || c == ':':
		f.value = false
	case (c == '"' || c == '\'') && !f.value:
		f.quoted(c)
	case isPlain(c):
		f.plain()
	default:
		f.giveUp()
	}
	f.at++
}

func (f *flow) giveUp() {
	f.stray += f.open
	f.open = 0
}

// quoted goes to the end of a text in quotes on one line.
func (f *flow) quoted(quote byte) {
	brackets := 0
	for i := f.at + 1; i < len(f.text); i++ {
		switch c := f.text[i]; {
		case c == '\n' || c == '\r':
			f.giveUp()
			return
		case c == '\\' && quote == '"':
			i++
			if i < len(f.text) && (f.text[i] == '[' || f.text[i] == '{') {
				brackets++
			}
		case c == quote && quote == '\'' && i+1 < len(f.text) && f.text[i+1] == quote:
			i++
		case c == quote:
			f.stray += brackets
			f.at, f.value = i, true
			return
		case c == '[' || c == '{':
			brackets++
		}
	}
	f.giveUp()
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '/' || c == '+' || c == '-' || c == '='
}

// plain goes to the end of a word. A colon in it, as in a URL, is not the end of a name.
func (f *flow) plain() {
	f.value = true
	for f.at+1 < len(f.text) {
		c := f.text[f.at+1]
		if !isPlain(c) && (c != ':' || f.at+2 >= len(f.text) || !isPlain(f.text[f.at+2])) {
			return
		}
		f.at++
	}
}
