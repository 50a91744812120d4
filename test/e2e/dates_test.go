//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// moments matches the times in key sets and observations.
var moments = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// moveBack writes the documents of one directory into another, or the same, as if all of it had happened earlier.
func moveBack(t *testing.T, from, to string, d time.Duration) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	must(t, err)
	if len(files) == 0 {
		t.Fatalf("%s has no documents", from)
	}
	for _, file := range files {
		doc := read(t, file)
		doc = moments.ReplaceAllFunc(doc, func(date []byte) []byte {
			at, err := time.Parse(time.RFC3339, string(date))
			must(t, err)
			return at.Add(-d).AppendFormat(nil, time.RFC3339Nano)
		})
		must(t, os.WriteFile(filepath.Join(to, filepath.Base(file)), doc, 0o600))
	}
}
