package credrequest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/internal/text"
)

// maxFile bounds a file of manifests, in bytes: several times what a release holds for all clouds together, and little enough for
// the worst that can be written in it (aliases, merges, depth) to be read in seconds.
const maxFile = 1 << 20

// ReadDir reads the requests for a cloud of a directory in the order of file names, as ccoctl does: files named *.yaml and *.yml
// (YAML or JSON, several documents each), no subdirectories. skipped has a line for each manifest and file that was
// skipped, with the reason, in the words of ccoctl's log where it has any. The error
// has a line for each document that is wrong, and no request is returned then.
//
// With techPreview, requests count that are annotated for the feature set TechPreviewNoUpgrade, as with ccoctl's
// --enable-tech-preview. They count whatever feature gates they name, as with ccoctl: a role that nobody assumes harms
// nobody, and a component without its role does not start.
func ReadDir(cloud Cloud, dir string, techPreview bool) (requests []Request, skipped []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, e := range entries {
		if why := leftOut(e); why != "" {
			skipped = append(skipped, fmt.Sprintf("Ignoring %s: %s", printable(e.Name()), why))
			continue
		}
		if !isManifest(e.Name()) {
			continue
		}
		data, err := regular.Read(filepath.Join(dir, e.Name()), maxFile)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rs, lines, err := Read(cloud, e.Name(), data, techPreview)
		requests, skipped, errs = append(requests, rs...), append(skipped, lines...), append(errs, err)
	}
	if err := errors.Join(append(errs, unique(requests))...); err != nil {
		return nil, nil, err
	}
	return requests, skipped, nil
}

func isManifest(base string) bool {
	return strings.HasSuffix(base, ".yaml") || strings.HasSuffix(base, ".yml")
}

// leftOut returns why a directory entry is not read, or "". Hidden ones that are no manifests are not worth a line: a mounted
// ConfigMap and a Git checkout have them.
func leftOut(e os.DirEntry) string {
	switch {
	case e.IsDir() && !strings.HasPrefix(e.Name(), "."):
		return "subdirectories are not read"
	case !isManifest(e.Name()) && !strings.HasPrefix(e.Name(), "."):
		return "only files whose names end in .yaml or .yml are read"
	}
	return ""
}

// Read reads the requests of one file; name is its base name. See [ReadDir].
func Read(cloud Cloud, name string, data []byte, techPreview bool) (requests []Request, skipped []string, err error) {
	docs, err := documents(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", printable(name), err)
	}
	if len(docs) == 0 {
		return nil, []string{fmt.Sprintf("Ignoring %s: it is empty or holds only comments", printable(name))}, nil
	}
	var errs []error
	for i, doc := range docs {
		m := manifest{cloud: cloud, place: fmt.Sprintf("document %d of %s", i+1, printable(name))}
		r, why := m.request(value{raw: doc}, techPreview)
		switch {
		case m.err != nil:
			errs = append(errs, m.err)
		case why != "":
			skipped = append(skipped, why)
		default:
			r.File = name
			requests = append(requests, r)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	return requests, skipped, nil
}

// documents decodes a stream of YAML documents, or one of JSON values. A key that is written twice in one mapping is an
// error: which of the two counts differs from reader to reader, and either may be the one that was meant. A key that a
// merge (<<) brings may be written again: that is what merges are for. What is written counts (https://yaml.org/type/merge.html), and
// where the decoder takes what is merged, as it does with a merge below, the document is refused.
func documents(data []byte) ([]any, error) {
	if parts := jsonStream(data); parts != nil {
		var docs []any
		for _, part := range parts {
			more, err := documents(part)
			if err != nil {
				return nil, err
			}
			docs = append(docs, more...)
		}
		return docs, nil
	}
	values, keys, strict := yaml.NewDecoder(bytes.NewReader(data)), yaml.NewDecoder(bytes.NewReader(data)), yaml.NewDecoder(bytes.NewReader(data))
	strict.SetStrict(true)
	var docs []any
	for {
		var doc any
		err := values.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d is not readable as YAML: %s", len(docs)+1, printable(err.Error()))
		}
		var written yaml.MapSlice // has every key that is written, and those of a merge nowhere
		inOrder := keys.Decode(&written) == nil
		if inOrder {
			if wrong := wrongKey(written); wrong != "" {
				return nil, fmt.Errorf("document %d is not readable as YAML: %s", len(docs)+1, wrong)
			}
		}
		var again any
		twice := setTwiceOf(strict.Decode(&again)) // whose error has each key that is set twice, as often as it is
		if inOrder {
			if key := twice.overMerged(doc, written); key != "" {
				return nil, fmt.Errorf("document %d is read differently by readers of YAML: key %q is written and merged (<<) in one mapping; write the "+
					"merge first, or leave one of them out", len(docs)+1, printable(key))
			}
		}
		docs = append(docs, doc)
	}
}

// jsonStream splits a stream of JSON objects; nil unless there are several. A single one is YAML as well.
func jsonStream(data []byte) [][]byte {
	d := json.NewDecoder(bytes.NewReader(data))
	var parts [][]byte
	for {
		var part json.RawMessage
		err := d.Decode(&part)
		switch {
		case errors.Is(err, io.EOF) && len(parts) > 1:
			return parts
		case err != nil || !bytes.HasPrefix(part, []byte("{")):
			return nil
		}
		parts = append(parts, part)
	}
}

// maxKey bounds a key, in bytes. YAML has it for keys without a question mark (https://yaml.org/spec/1.2.2/#742-flow-mappings), but an
// alias may stand for any text, and be a key in each line.
const maxKey = 1024

// wrongKey says which key a mapping, at any depth, has twice, or has that is too long; else "".
func wrongKey(v any) string {
	switch v := v.(type) {
	case yaml.MapSlice:
		seen := map[any]bool{}
		for _, item := range v {
			key := scalar(item.Key)
			if seen[key] {
				return fmt.Sprintf("key %q is written twice in one mapping", printable(fmt.Sprint(item.Key)))
			}
			if s, is := item.Key.(string); is && len(s) > maxKey {
				return fmt.Sprintf("key %q is longer than %d bytes", printable(s), maxKey)
			}
			seen[key] = true
			if below := wrongKey(item.Value); below != "" {
				return below
			}
		}
	case []any:
		for _, e := range v {
			if below := wrongKey(e); below != "" {
				return below
			}
		}
	}
	return ""
}

// scalar returns something that is equal for equal scalars, and for nothing else. Text stays what it is: aliases may repeat a long one
// in each line.
func scalar(v any) any {
	if _, is := v.(string); is {
		return v
	}
	return [1]string{fmt.Sprintf("%T %v", v, v)} // no text, and what is not comparable (NaN, a list) has a form that is
}

// setTwice has what a strict decoder says of each key that a mapping gets twice: both written, or one merged.
type setTwice map[string]bool

func setTwiceOf(err error) setTwice {
	t := setTwice{}
	if all, is := errors.AsType[*yaml.TypeError](err); is {
		for _, e := range all.Errors {
			_, said, _ := strings.Cut(e, ": ") // behind the line's number
			t[said] = true
		}
	}
	return t
}

func (t setTwice) has(key any) bool {
	return t[fmt.Sprintf("key %#v already set in map", key)]
}

// overMerged returns a key that is written in a mapping, at any depth, and whose value was read from a merge; else "". What was
// written is known without its own merges, so that a mapping that was perhaps replaced must have nothing beside it.
func (t setTwice) overMerged(read, written any) string {
	if len(t) == 0 {
		return ""
	}
	key, _ := t.compare(read, written)
	return key
}

// compare returns what overMerged does, and whether the value that was read is what was written, without any merge. It takes
// each part once: a file decides how deep its mappings are, and comparing them anew at each depth took minutes for one of 400 KB.
func (t setTwice) compare(read, written any) (over string, same bool) {
	switch w := written.(type) {
	case yaml.MapSlice:
		mapping, is := read.(map[any]any)
		same = is && len(mapping) == len(w)
		for _, item := range w {
			below, as := t.compare(mapping[item.Key], item.Value)
			if !as && t.has(item.Key) {
				return fmt.Sprint(item.Key), false
			}
			if below != "" {
				return below, false
			}
			same = same && as
		}
		return "", same
	case []any:
		list, is := read.([]any)
		same = is && len(list) == len(w)
		for i, e := range w[:min(len(w), len(list))] {
			below, as := t.compare(list[i], e)
			if below != "" {
				return below, false
			}
			same = same && as
		}
		return "", same
	}
	return "", scalar(read) == scalar(written)
}

// unique returns an error for requests with the same name of a Secret manifest, which joins namespace and name with a
// hyphen that both may contain. They would overwrite each other's manifest, and share one role, with the trust of the one
// and the permissions of the other.
func unique(requests []Request) error {
	var errs []error
	first := map[string]Request{}
	for _, r := range requests {
		key := r.SecretNamespace + "-" + r.SecretName
		f, taken := first[key]
		if !taken {
			first[key] = r
			continue
		}
		errs = append(errs, fmt.Errorf("%s (%s) and %s (%s) ask for Secrets with one manifest name, %s/%s and %s/%s: remove or rename one",
			printable(f.File), f, printable(r.File), r, f.SecretNamespace, f.SecretName, r.SecretNamespace, r.SecretName))
	}
	return errors.Join(errs...)
}

// String returns namespace/name, as ccoctl logs it.
func (r Request) String() string { return r.Namespace + "/" + r.Name }

// shorten cuts long text and changes nothing else, for %q: a space at its end may be what is wrong with it.
func shorten(s string) string {
	if r := []rune(s); len(r) > 200 {
		return string(r[:200]) + "…"
	}
	return s
}

// printable returns text from a file in a form that is safe for one line of a terminal.
func printable(s string) string { return text.OneLine(s, 200) }
