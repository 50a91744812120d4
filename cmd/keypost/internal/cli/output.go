package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/internal/text"
)

// Print writes a result: v as JSON or YAML, or what table writes, with its columns (separated by tabs) aligned.
func (f *Factory) Print(v any, table func(w *tabwriter.Writer)) error {
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
	w := tabwriter.NewWriter(f.Out, 0, 8, 2, ' ', 0)
	table(w)
	return w.Flush()
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

// maxCell bounds a cell, in characters: a key set may have many issuer URLs.
const maxCell = 32000

// Row writes one line of a table. Whatever a file, a server or a person put into it cannot change how it looks.
func Row(w *tabwriter.Writer, cells ...any) {
	for i, c := range cells {
		if i > 0 {
			_, _ = fmt.Fprint(w, "\t")
		}
		_, _ = fmt.Fprint(w, text.OneLine(fmt.Sprint(c), maxCell))
	}
	_, _ = fmt.Fprintln(w) // Flush reports what went wrong
}
