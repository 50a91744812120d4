package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

// print writes a result: v as JSON or YAML, or what table writes, with its columns (separated by tabs) aligned.
func (a *app) print(v any, table func(w *tabwriter.Writer)) error {
	switch a.output {
	case "json":
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case "yaml":
		data, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = a.out.Write(data)
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// row writes one line of a table; what comes from files and servers passes through oneLine.
func row(w *tabwriter.Writer, cells ...any) {
	for i, c := range cells {
		if i > 0 {
			_, _ = fmt.Fprint(w, "\t")
		}
		_, _ = fmt.Fprint(w, oneLine(fmt.Sprint(c)))
	}
	_, _ = fmt.Fprintln(w) // Flush reports what went wrong
}
