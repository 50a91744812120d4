// Package strictyaml reads a YAML text that somebody else may have written. It promises that two readers cannot
// understand it differently, and that reading it takes memory and time in proportion to its length.
//
// It refuses a text with a duplicate key, more than one document, a tag, a directive, a merge key, a number, a word (yes,
// on and the like) or a line break that YAML 1.1 and 1.2 read differently, and one whose size, depth or number of aliases
// exceeds bounds that documents written by people never reach. JSON is YAML too, and what is valid JSON is no riddle.
//
// A date or time without quotes is text here and to YAML 1.2; readers of 1.1 may make a time of 2026-01-02 and the number
// 5400 of 1:30:00.
package strictyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v2" // the reader below sigs.k8s.io/yaml

	"github.com/keypost/keypost/internal/text"
)

// maxDepth bounds the lists and mappings in each other.
const maxDepth = 64

// Bounds of what the YAML reader is given. It reads 10,000 levels, each of which costs up to 700 bytes: the other bounds
// keep that below 256 bytes for each byte of text.
const (
	maxTokens  = 200_000 // lines, commas, colons and opening brackets
	maxOpen    = 256     // brackets that are open at once, in quotes and comments or not
	maxAnchors = 64      // a chain of aliases makes depth too
)

var (
	anchor = regexp.MustCompile(`(?:^|[\s\[{,])&`)
	// tag matches a tag in every place where one may begin, and directives. !!binary hides text from every search, !!int
	// and !int make other values of one text for other readers.
	tag = regexp.MustCompile(`(?m)(?:(?:^|[\[{,:])[ \t]*|[-?][ \t]+|(?:^|[\s\[{,])\?|&\S+[ \t]+)!|^%`)
)

// ToJSON returns the one document in data as JSON, and as a tree of map[string]any, []any, string and other values.
// Neither data nor the JSON may have more than limit bytes. An error quotes only short parts of data.
func ToJSON(data []byte, limit int) (asJSON []byte, tree any, err error) {
	return toJSON(data, limit, false)
}

// ToJSONWithWords is ToJSON for a text that no other program reads: in it yes, on and the like are true, and off false.
func ToJSONWithWords(data []byte, limit int) (asJSON []byte, tree any, err error) {
	return toJSON(data, limit, true)
}

func toJSON(data []byte, limit int, words bool) (asJSON []byte, tree any, err error) {
	if tree, err = decode(data, limit, words); err != nil {
		return nil, nil, err
	}
	if asJSON, err = json.Marshal(tree); err != nil {
		return nil, nil, fmt.Errorf("it cannot be written as JSON: %s", text.OneLine(err.Error(), maxReason))
	}
	if len(asJSON) > limit {
		return nil, nil, fmt.Errorf("its content is larger than %d bytes", limit)
	}
	return asJSON, tree, nil
}

func decode(data []byte, limit int, words bool) (any, error) {
	switch {
	case len(data) > limit:
		return nil, fmt.Errorf("it is larger than %d bytes", limit)
	case len(bytes.TrimSpace(data)) == 0:
		return nil, ErrEmpty
	case !utf8.Valid(data):
		return nil, errors.New("it is not UTF-8")
	}
	if err := CheckShape(data); err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.SetStrict(true)
	var tree, more any
	switch err := d.Decode(&tree); {
	case errors.Is(err, io.EOF):
		return nil, ErrEmpty
	case err != nil:
		return nil, fmt.Errorf("it is not valid YAML: %s", reason(err))
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("it holds more than one YAML document")
	}
	if masked := mask(data, words); masked != nil && !isJSON(data) {
		if err := compare(tree, masked); err != nil {
			return nil, err
		}
	}
	c := converter{budget: 2 * limit, limit: 2 * limit}
	return c.convert(tree, 0)
}

// ErrEmpty is the error of a text without a document.
var ErrEmpty = errors.New("it is empty")

// CheckShape bounds what it costs to read data as YAML or JSON, in one pass and without building anything.
func CheckShape(data []byte) error {
	data = bytes.TrimPrefix(data, []byte(byteOrderMark)) // the YAML reader skips it, so a directive may follow
	tokens, brackets := count(data)
	if tokens > maxTokens {
		return fmt.Errorf("it has more than %d lines, commas, colons and brackets", maxTokens)
	}
	if isJSON(data) {
		return checkDepth(data)
	}
	switch {
	case hasOddBreak(data):
		return errors.New("it has a line break other than LF or CRLF; to YAML 1.1, what follows is a line of its own")
	case brackets > maxOpen:
		return fmt.Errorf("it has more than %d brackets in each other, or without their partner; write it as JSON if they are text", maxOpen)
	case compactDepth(data) > maxDepth:
		return fmt.Errorf("its lists are nested deeper than %d", maxDepth)
	case bytes.IndexByte(data, '&') >= 0 && len(anchor.FindAllIndex(data, maxAnchors+1)) > maxAnchors:
		return fmt.Errorf("it has more than %d YAML anchors", maxAnchors)
	case bytes.ContainsAny(data, "!%") && tag.Match(data):
		return errors.New("it has a YAML tag (!!int and the like) or directive; write the value without one")
	}
	return nil
}

// hasOddBreak reports whether data has a line break that YAML 1.1 knows and the checks here do not: a CR alone, NEL, LS or
// PS. Behind one, a directive could give tags another meaning.
func hasOddBreak(data []byte) bool {
	return bytes.Count(data, []byte("\r")) != bytes.Count(data, []byte("\r\n")) || bytes.Contains(data, []byte("\u0085")) ||
		bytes.Contains(data, []byte("\u2028")) || bytes.Contains(data, []byte("\u2029"))
}

func isJSON(data []byte) bool {
	start := bytes.TrimLeft(data, " \t\r\n")
	return len(start) > 0 && (start[0] == '{' || start[0] == '[') && json.Valid(start)
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
				return errDepth
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

var errDepth = fmt.Errorf("it is nested deeper than %d", maxDepth)

// count returns upper bounds on the tokens in data and on the brackets that are open at once. A closing bracket in a
// comment or in quotes hides one level from the second. That takes five bytes, so the cost per byte stays bounded, and
// convert checks the real depth.
func count(data []byte) (tokens, brackets int) {
	opening := bytes.Count(data, []byte("[")) + bytes.Count(data, []byte("{")) // several times faster than a loop over the bytes
	tokens = opening + bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte(",")) + bytes.Count(data, []byte(":"))
	if opening == 0 {
		return tokens, 0
	}
	open := 0
	for _, c := range data {
		switch c {
		case '[', '{':
			open++
			brackets = max(brackets, open)
		case ']', '}':
			open = max(open-1, 0)
		}
	}
	return tokens, brackets
}

// compactDepth returns the largest number of lists and keys that begin on one line ("- - - x").
func compactDepth(data []byte) (most int) {
	for line := range bytes.Lines(data) {
		n := 0
		for i := 0; i < len(line) && strings.IndexByte(" \t-?", line[i]) >= 0; i++ {
			if line[i] == '-' || line[i] == '?' {
				n++
			}
		}
		if n > most && !bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("--")) { // a line of hyphens in a text
			most = n
		}
	}
	return most
}

// converter turns a tree of the YAML reader into one of JSON, and bounds its depth and size. The YAML reader bounds the
// number of aliases but not their content: a thousand aliases of one long string are a thousand copies in JSON.
type converter struct{ budget, limit int }

func (c *converter) convert(node any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	if err := c.spend(1); err != nil {
		return nil, err
	}
	switch n := node.(type) {
	case string:
		return n, c.spend(len(n))
	case float64:
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return nil, errors.New("it has a number that JSON does not have (.inf or .nan)")
		}
	case []any:
		list := make([]any, len(n)) // not in place: aliases share it
		for i, v := range n {
			var err error
			if list[i], err = c.convert(v, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[any]any:
		object := make(map[string]any, len(n))
		for k, v := range n {
			if err := c.member(object, k, v, depth); err != nil {
				return nil, err
			}
		}
		return object, nil
	}
	return node, nil
}

func (c *converter) member(object map[string]any, k, v any, depth int) error {
	key, err := keyOf(k)
	if err != nil {
		return err
	}
	if _, twice := object[key]; twice { // 1 and "1"
		return fmt.Errorf("key %q is in one mapping twice", text.OneLine(key, maxReason))
	}
	if err := c.spend(len(key) + 1); err != nil {
		return err
	}
	object[key], err = c.convert(v, depth+1)
	return err
}

func (c *converter) spend(bytes int) error {
	if c.budget -= bytes; c.budget < 0 {
		return fmt.Errorf("its aliases expand to more than %d bytes", c.limit)
	}
	return nil
}

// keyOf converts a key to a string as sigs.k8s.io/yaml does.
func keyOf(k any) (string, error) {
	switch k := k.(type) {
	case string:
		return k, nil
	case int:
		return strconv.Itoa(k), nil
	case int64:
		return strconv.FormatInt(k, 10), nil
	case uint64:
		return strconv.FormatUint(k, 10), nil
	case float64:
		if !math.IsNaN(k) && !math.IsInf(k, 0) {
			return strconv.FormatFloat(k, 'g', -1, 32), nil
		}
	case bool:
		return strconv.FormatBool(k), nil
	}
	return "", errors.New("it has a key that is no text; put it in quotes")
}

// maxReason bounds the quoted part of an error of the YAML reader, in characters.
const maxReason = 200

// reason returns the first complaint of the YAML reader, which puts several below a heading, a line each.
func reason(err error) string {
	complaint := strings.TrimPrefix(err.Error(), "yaml: ")
	if heading, rest, several := strings.Cut(complaint, "\n"); several && strings.HasSuffix(heading, ":") {
		complaint = rest
	}
	complaint, _, _ = strings.Cut(strings.TrimSpace(complaint), "\n")
	return text.OneLine(complaint, maxReason)
}
