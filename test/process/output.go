package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// Output keeps what a program prints: all of it up to 4 MiB, then the end. It may be read while the program writes. Its
// zero value is empty and ready for use.
type Output struct {
	mu   sync.Mutex
	text []byte
}

// Write appends p. It never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if keep := 4 << 20; len(o.text) > 2*keep {
		o.text = bytes.Clone(o.text[len(o.text)-keep:])
	}
	return len(p), nil
}

// String returns what has been printed so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// Lines returns the log lines in JSON. A line for people (keypostd --dev) ends in the JSON object of its fields, and has
// its message in the column before.
func (o *Output) Lines() []map[string]any {
	var all []map[string]any
	for line := range strings.Lines(o.String()) {
		l := map[string]any{}
		if cells := strings.Split(line, "\t"); len(cells) > 3 {
			l["msg"], line = cells[len(cells)-2], cells[len(cells)-1]
		}
		if json.Unmarshal([]byte(line), &l) == nil {
			all = append(all, l)
		}
	}
	return all
}

// Address returns the field "address" of the first log line with a message, or "" while there is none.
func (o *Output) Address(message string) string {
	for _, l := range o.Lines() {
		if l["msg"] == message {
			return fmt.Sprint(l["address"])
		}
	}
	return ""
}
