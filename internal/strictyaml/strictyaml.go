// Package strictyaml reads one YAML document of bounded size into JSON. It is sigs.k8s.io/yaml, as kubectl and the API
// server read manifests, with what a document in a store must not have refused: a key twice, a second document, anchors
// and aliases. A thousand aliases of one long text would become a thousand copies in JSON.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3" // its tree has the anchors, which the reader below sigs.k8s.io/yaml resolves
	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/internal/text"
)

// ErrEmpty is the error for a text without a document.
var ErrEmpty = errors.New("it is empty")

// maxReason bounds the quoted part of an error of the YAML reader, in characters.
const maxReason = 200

// ToJSON returns the one document in data as JSON. Neither data nor the JSON may have more than limit bytes. An error quotes
// only a short part of data.
func ToJSON(data []byte, limit int) ([]byte, error) {
	switch {
	case len(data) > limit:
		return nil, fmt.Errorf("it is larger than %d bytes", limit)
	case !utf8.Valid(data):
		return nil, errors.New("it is not UTF-8")
	case hasSecondDocument(data):
		return nil, errors.New("it holds more than one YAML document")
	}
	if bytes.IndexByte(data, '&') >= 0 {
		var root yamlv3.Node
		if err := yamlv3.Unmarshal(data, &root); err != nil {
			return nil, fmt.Errorf("it is not valid YAML: %s", reason(err))
		}
		if hasAnchor(&root) {
			return nil, errors.New("it has a YAML anchor (&name); write the value in each place")
		}
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it is not valid YAML: %s", reason(err))
	case string(asJSON) == "null":
		return nil, ErrEmpty
	case len(asJSON) > limit:
		return nil, fmt.Errorf("its content is larger than %d bytes", limit)
	}
	return asJSON, nil
}

// hasSecondDocument reports whether there is text after a marker that ends the first document (YAML 1.2, section 9.1.2): no
// text of a document can have one at the start of a line. sigs.k8s.io/yaml would read only the first document. After JSON and
// the like it also ignores text that follows without a marker.
func hasSecondDocument(data []byte) bool {
	begun, ended := false, false
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte("---")) || bytes.HasPrefix(line, []byte("...")) {
			ended = begun
			line = line[3:]
		}
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		switch {
		case ended:
			return true
		case !begun && bytes.IndexByte([]byte(`{[!%"'`), line[0]) >= 0:
			return hasMore(data)
		}
		begun = true
	}
	return false
}

// hasMore reports whether the reader finds anything after the first document. It takes as long as reading.
func hasMore(data []byte) bool {
	var first, second yamlv3.Node
	d := yamlv3.NewDecoder(bytes.NewReader(data))
	return d.Decode(&first) == nil && !errors.Is(d.Decode(&second), io.EOF)
}

func hasAnchor(n *yamlv3.Node) bool {
	return n.Anchor != "" || slices.ContainsFunc(n.Content, hasAnchor)
}

// reason returns the first complaint of the YAML reader, which puts several below a heading, a line each.
func reason(err error) string {
	complaint := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	complaint = strings.TrimPrefix(complaint, "yaml: ")
	if heading, rest, several := strings.Cut(complaint, "\n"); several && strings.HasSuffix(heading, ":") {
		complaint = rest
	}
	complaint, _, _ = strings.Cut(strings.TrimSpace(complaint), "\n")
	return text.OneLine(complaint, maxReason)
}
