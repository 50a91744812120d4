package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/internal/text"
)

// Print writes a result: v as JSON or YAML, or the table for people.
func (f *Factory) Print(v any, table func(w *terminal.Table)) error {
	f.Live().Clear()
	switch f.Output {
	case "json":
		data, err := marshalJSON(v)
		if err != nil {
			return err
		}
		_, err = f.Out.Write(text.EscapeJSON(data))
		return err
	case "yaml":
		data, err := marshalYAML(v)
		if err != nil {
			return err
		}
		_, err = f.Out.Write(data)
		return err
	}
	var t terminal.Table
	table(&t)
	return t.Write(f.Out, f.screen(f.Out))
}

// screen returns what w is laid out for.
func (f *Factory) screen(w io.Writer) terminal.Screen {
	s := terminal.Of(w, os.Getenv)
	s.Whole = f.whole
	return s
}

func marshalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

// marshalYAML falls back on JSON, which is YAML as well, for a value with unprintable characters: YAML's encoder writes
// them as they are, in a style without escapes.
func marshalYAML(v any) ([]byte, error) {
	data, err := marshalJSON(v)
	if err != nil {
		return nil, err
	}
	if escaped := text.EscapeYAML(data); !bytes.Equal(escaped, data) {
		return escaped, nil
	}
	return yaml.JSONToYAML(data)
}
