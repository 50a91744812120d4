// Package manifest is the frame of a key set's document: YAML with apiVersion and kind, of a bounded size, without private keys. It knows
// which issuer URLs a document has that may be broken otherwise, and writes the form that every store has.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/internal/privatekey"
	"github.com/keypost/keypost/internal/strictyaml"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore/issuerurl"
)

// The identity of key set documents. A reader takes any minor addition to this version and rejects another major one.
const (
	APIVersion = "keypost.dev/v1"
	Kind       = "KeySet"
)

// MaxSize bounds a key set document, in bytes: what fits into a ConfigMap or an etcd value.
const MaxSize = 1 << 20

// ErrNewerVersion is wrapped by the error for a document of another major version.
var ErrNewerVersion = errors.New("upgrade this program, or write the document with the older one")

// Header is what says which document it is, and which issuer URLs it has, whatever else it holds.
type Header struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Spec       json.RawMessage `json:"spec"`
}

// ReadHeader returns the header of a document in JSON.
func ReadHeader(asJSON []byte) (Header, error) {
	var h Header
	if kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &h) != nil {
		return Header{}, errors.New("it is not a manifest with apiVersion and kind")
	}
	return h, nil
}

// Claimed returns the issuer URLs, nil if they are unknown. A manifest of another kind, such as a kustomization.yaml, has none.
func (h Header) Claimed() []issuerurl.URL {
	if h.APIVersion != "" && h.Kind != "" && !strings.HasPrefix(h.APIVersion, "keypost.") && !strings.EqualFold(h.Kind, Kind) {
		return []issuerurl.URL{} // both, so that no slip of the pen makes a key set one
	}
	var spec struct {
		Issuers []string `json:"issuers"`
	}
	if h.APIVersion != APIVersion || h.Kind != Kind || kjson.UnmarshalCaseSensitivePreserveInts(h.Spec, &spec) != nil {
		return nil
	}
	var urls []issuerurl.URL
	for _, raw := range spec.Issuers {
		u, err := issuerurl.Parse(raw, true)
		if err != nil {
			return nil
		}
		urls = append(urls, u)
	}
	return urls
}

// Check returns an error unless it is the header of a key set that this program reads.
func (h Header) Check() error {
	apiVersion, kind := h.APIVersion, h.Kind
	group, version, _ := strings.Cut(apiVersion, "/")
	switch {
	case group != "keypost.dev" || kind != Kind:
		return fmt.Errorf("it is apiVersion %q, kind %q, not %q, %q", printable(apiVersion), printable(kind), APIVersion, Kind)
	case apiVersion != APIVersion:
		return fmt.Errorf("its version is %q and this program reads v1: %w", printable(version), ErrNewerVersion)
	}
	return nil
}

// ToJSON returns a document as JSON. It refuses one that holds private key material.
func ToJSON(data []byte) ([]byte, error) {
	asJSON, err := strictyaml.ToJSON(data, MaxSize)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.Unmarshal(asJSON, &tree); err != nil {
		return nil, err
	}
	if privatekey.HasLabel(data) {
		return nil, fmt.Errorf("a part of it has the label of a private key: %w", privatekey.ErrFound)
	}
	if where, found := privatekey.Find(tree); found {
		return nil, fmt.Errorf("%s: %w; remove it, and treat that key as stolen", printable(where), privatekey.ErrFound)
	}
	return asJSON, nil
}

// SortedYAML turns the JSON of a document into the form that every store has: YAML with sorted keys. It returns the JSON itself if the
// YAML would be too large, or if it has a member named <<, which is written without quotes and read as a merge. It returns an error
// if there is a character that YAML has not.
func SortedYAML(asJSON []byte) ([]byte, error) {
	if deeper(asJSON, maxDepth) {
		return asJSON, nil
	}
	data, err := yaml.JSONToYAML(asJSON)
	if err == nil && (len(data) > MaxSize || bytes.Contains(data, []byte("<<"))) {
		return asJSON, nil
	}
	return data, err
}

// maxDepth is several times what a document has. A kilobyte of brackets would become a megabyte of indentation.
const maxDepth = 32

// deeper reports whether objects and lists stand in each other more than most times.
func deeper(asJSON []byte, most int) bool {
	depth, quoted, escaped := 0, false, false
	for _, c := range asJSON {
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			depth--
		}
		if depth > most {
			return true
		}
	}
	return false
}

// printable keeps control characters and text direction marks of the input out of terminals and logs, and long ones short.
func printable(s string) string { return text.OneLine(s, 64) }
